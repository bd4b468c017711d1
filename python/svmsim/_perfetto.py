"""A run as a timeline for ui.perfetto.dev, made with the classes of the package perfetto."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from svmsim._files import write_bytes
from svmsim._timeline import Flow, Slice
from svmsim.events import Events

_SEQUENCE = 1
_HOST_TRACK = 1

_CATEGORIES = {
    "guest": "guest",
    "host": "host",
    "exit": "exit",
    "poll": "poll",
    "idle": "idle",
    "blocked": "wait",
    "runqueue": "wait",
}
_NAMES = {"poll": "poll", "blocked": "blocked", "runqueue": "run queue"}


class _Writer:
    def __init__(self, file: io.BytesIO) -> None:
        # Slow to import, and needed for this alone.
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
        from perfetto.trace_builder.proto_builder import StreamingTraceProtoBuilder

        self.proto: Any = perfetto_trace_pb2
        self.builder: Any = StreamingTraceProtoBuilder(file)
        self.first = True

    def track(self, uuid: int, name: str, parent: int = 0, rank: int = 0) -> None:
        packet = self._packet()
        track = packet.track_descriptor
        track.uuid, track.name = uuid, name
        if parent:
            track.parent_uuid = parent
        track.sibling_order_rank = rank
        track.child_ordering = self.proto.TrackDescriptor.EXPLICIT
        self.builder.write_packet(packet)

    def counter_track(self, uuid: int, name: str, parent: int, rank: int) -> None:
        packet = self._packet()
        track = packet.track_descriptor
        track.uuid, track.name, track.parent_uuid = uuid, name, parent
        track.sibling_order_rank = rank
        track.counter.unit = self.proto.CounterDescriptor.UNIT_TIME_NS
        self.builder.write_packet(packet)

    def event(self, time_ns: int, track: int, kind: str) -> tuple[Any, Any]:
        """A packet to be filled and written, and its track event."""
        packet = self._packet()
        packet.timestamp = time_ns
        event = packet.track_event
        event.type = getattr(self.proto.TrackEvent, kind)
        event.track_uuid = track
        return packet, event

    def write(self, packet: Any) -> None:
        self.builder.write_packet(packet)

    def _packet(self) -> Any:
        packet = self.builder.create_packet()
        packet.trusted_packet_sequence_id = _SEQUENCE
        if self.first:
            packet.sequence_flags = self.proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
            self.first = False
        return packet


def _marks(slices: Iterable[Slice]) -> Iterator[tuple[int, Slice, bool]]:
    """Begins and ends of a track's slices, so that what lies within another is opened after it."""
    open_: list[Slice] = []
    for one in sorted(slices, key=lambda s: (s.begin_ns, -s.end_ns)):
        while open_ and open_[-1].end_ns <= one.begin_ns:
            ended = open_.pop()
            yield ended.end_ns, ended, False
        open_.append(one)
        yield one.begin_ns, one, True
    while open_:
        ended = open_.pop()
        yield ended.end_ns, ended, False


def perfetto_bytes(events: Events) -> bytes:
    """Return a trace with a track for each pCPU and each vCPU.

    A pCPU has slices guest, host, poll and idle; a vCPU guest, the exits by reason, and within them
    poll, blocked and run queue. An arrow leads from an IPI to the entry that injects it. A counter
    below each vCPU is its halt_poll_ns.
    """
    line = events.timeline
    file = io.BytesIO()
    writer = _Writer(file)
    writer.track(_HOST_TRACK, "Physical CPUs", rank=0)
    uuid = _HOST_TRACK
    tracks: dict[tuple[str, str, int], int] = {}
    by_track: dict[tuple[str, str, int], list[Slice]] = {}
    for one in [*line.pcpus, *line.vcpus]:
        by_track.setdefault((one.track, one.vm, one.index), []).append(one)
    for _, _, index in sorted(key for key in by_track if key[0] == "pcpu"):
        uuid += 1
        tracks["pcpu", "", index] = uuid
        writer.track(uuid, f"pCPU {index}", _HOST_TRACK, index)
    names = list(dict.fromkeys(vm for vm, _ in events.vcpus.values()))
    windows: dict[tuple[str, int], int] = {}
    for rank, vm in enumerate(names, 1):
        uuid += 1
        parent = uuid
        writer.track(parent, f"VM {vm}", rank=rank)
        for index in sorted(i for name, i in events.vcpus.values() if name == vm):
            uuid += 2
            tracks["vcpu", vm, index], windows[vm, index] = uuid - 1, uuid
            writer.track(uuid - 1, f"vCPU {index}", parent, 2 * index)
            writer.counter_track(uuid, f"vCPU {index} halt_poll_ns", parent, 2 * index + 1)
    arriving: dict[tuple[str, int, int], list[int]] = {}
    for number, flow in enumerate(line.flows, 1):
        arriving.setdefault((flow.vm, flow.target, flow.handled_ns), []).append(number)
    for key, track in tracks.items():
        _write_slices(writer, track, by_track.get(key, []), arriving)
    _write_flows(writer, tracks, line.flows)
    for vm, vcpu, time_ns, _, new_ns in line.poll_windows:
        packet, event = writer.event(time_ns, windows[vm, vcpu], "TYPE_COUNTER")
        event.counter_value = new_ns
        writer.write(packet)
    return file.getvalue()


def _write_slices(
    writer: _Writer,
    track: int,
    slices: Iterable[Slice],
    arriving: dict[tuple[str, int, int], list[int]],
) -> None:
    for time_ns, one, begins in _marks(slices):
        kind = "TYPE_SLICE_BEGIN" if begins else "TYPE_SLICE_END"
        packet, event = writer.event(time_ns, track, kind)
        if begins:
            state = one.state
            event.categories.append(_CATEGORIES[state])
            event.name = _NAMES.get(state, one.name) if one.track == "vcpu" else state
            if one.track == "pcpu" and one.name:
                note = event.debug_annotations.add()
                note.name, note.string_value = "what", one.name
            elif state == "guest":
                numbers = arriving.pop((one.vm, one.index, time_ns), ())
                event.terminating_flow_ids.extend(numbers)
        writer.write(packet)


def _write_flows(
    writer: _Writer, tracks: dict[tuple[str, str, int], int], flows: Iterable[Flow]
) -> None:
    for number, flow in enumerate(flows, 1):
        track = tracks["vcpu", flow.vm, flow.sender]
        packet, event = writer.event(flow.sent_ns, track, "TYPE_INSTANT")
        event.name = f"IPI {flow.vector:#x}"
        event.categories.append("ipi")
        event.flow_ids.append(number)
        for name, value in (("vector", flow.vector), ("target vCPU", flow.target)):
            note = event.debug_annotations.add()
            note.name, note.uint_value = name, value
        writer.write(packet)


def write_perfetto(events: Events, path: Path) -> None:
    """Write `perfetto_bytes` to a file.

    Raises:
        UserError: it cannot be written.
    """
    write_bytes(path, perfetto_bytes(events))
