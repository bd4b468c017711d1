"""A run as a timeline for ui.perfetto.dev, made with the classes of the package perfetto."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
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
    "task": "task",
    "idle": "idle",
    "blocked": "wait",
    "runqueue": "wait",
}
_NAMES = {"poll": "poll", "blocked": "blocked", "runqueue": "run queue"}


class _Writer:
    """Writes packets one after the other, which together are a Trace.

    Packets that differ in their time alone are made once, since making one takes longer than all
    else that there is to do.
    """

    def __init__(self, file: io.BytesIO) -> None:
        # Slow to import, and needed for this alone.
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2

        self.proto: Any = perfetto_trace_pb2
        self._write = file.write
        self._made: dict[Any, tuple[Any, Callable[[], bytes]]] = {}
        self._first = True

    def track(self, uuid: int, name: str, parent: int, rank: int, *, counter: bool = False) -> None:
        """Describe a track; `rank` orders those of one parent."""
        trace, packet = self._packet()
        if self._first:
            packet.sequence_flags = self.proto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
            self._first = False
        track = packet.track_descriptor
        track.uuid, track.name, track.sibling_order_rank = uuid, name, rank
        if parent:
            track.parent_uuid = parent
        if counter:
            track.counter.unit = self.proto.CounterDescriptor.UNIT_TIME_NS
        else:
            track.child_ordering = self.proto.TrackDescriptor.EXPLICIT
        self._write(trace.SerializeToString())

    def event(self, time_ns: int, track: int, kind: str, fill: Callable[[Any], None]) -> None:
        """Write an event that `fill` completes."""
        trace, packet = self._packet()
        packet.timestamp = time_ns
        self._begin(packet.track_event, track, kind)
        fill(packet.track_event)
        self._write(trace.SerializeToString())

    def repeated(
        self, time_ns: int, track: int, kind: str, key: Any, fill: Callable[[Any], None]
    ) -> None:
        """Write an event that is the same whenever track, kind and `key` are."""
        made = self._made.get((track, kind, key))
        if made is None:
            trace, packet = self._packet()
            self._begin(packet.track_event, track, kind)
            fill(packet.track_event)
            made = self._made[track, kind, key] = packet, trace.SerializeToString
        packet, serialized = made
        packet.timestamp = time_ns
        self._write(serialized())

    def _packet(self) -> tuple[Any, Any]:
        trace = self.proto.Trace()
        packet = trace.packet.add()
        packet.trusted_packet_sequence_id = _SEQUENCE
        return trace, packet

    def _begin(self, event: Any, track: int, kind: str) -> None:
        event.type = getattr(self.proto.TrackEvent, kind)
        event.track_uuid = track


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

    A pCPU has slices guest, host, poll, task (another thread) and idle; a vCPU guest, the exits by
    reason, and within them poll, blocked and run queue. An arrow leads from an IPI to the entry
    that injects it. A counter below each vCPU is its halt_poll_ns.
    """
    line = events.timeline
    file = io.BytesIO()
    writer = _Writer(file)
    writer.track(_HOST_TRACK, "Physical CPUs", 0, 0)
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
        writer.track(parent, f"VM {vm}", 0, rank)
        for index in sorted(i for name, i in events.vcpus.values() if name == vm):
            uuid += 2
            tracks["vcpu", vm, index], windows[vm, index] = uuid - 1, uuid
            writer.track(uuid - 1, f"vCPU {index}", parent, 2 * index)
            name = f"vCPU {index} halt_poll_ns"
            writer.track(uuid, name, parent, 2 * index + 1, counter=True)
    arriving: dict[tuple[str, int, int], list[int]] = {}
    for number, flow in enumerate(line.flows, 1):
        arriving.setdefault((flow.vm, flow.target, flow.handled_ns), []).append(number)
    for key, track in tracks.items():
        _write_slices(writer, track, by_track.get(key, []), arriving)
    _write_flows(writer, tracks, line.flows)
    for vm, vcpu, time_ns, _, new_ns in line.poll_windows:
        track = windows[vm, vcpu]
        writer.event(time_ns, track, "TYPE_COUNTER", lambda e, v=new_ns: _set_counter(e, v))  # type: ignore[misc]
    return file.getvalue()


def _set_counter(event: Any, value: int) -> None:
    event.counter_value = value


def _note(event: Any, name: str, value: str | int) -> None:
    note = event.debug_annotations.add()
    note.name = name
    if isinstance(value, int):
        note.uint_value = value
    else:
        note.string_value = value


def _write_slices(
    writer: _Writer,
    track: int,
    slices: Iterable[Slice],
    arriving: dict[tuple[str, int, int], list[int]],
) -> None:
    for time_ns, one, begins in _marks(slices):
        if not begins:
            writer.repeated(time_ns, track, "TYPE_SLICE_END", None, _nothing)
            continue

        def fill(event: Any, one: Slice = one) -> None:
            event.categories.append(_CATEGORIES[one.state])
            of_vcpu = one.track == "vcpu"
            event.name = _NAMES.get(one.state, one.name) if of_vcpu else one.state
            if not of_vcpu and one.name:
                _note(event, "what", one.name)

        ending = arriving.pop((one.vm, one.index, time_ns), None) if one.state == "guest" else None
        if ending is not None and one.track == "vcpu":

            def fill_with_flows(
                event: Any, fill: Callable[[Any], None] = fill, ending: list[int] = ending
            ) -> None:
                fill(event)
                event.terminating_flow_ids.extend(ending)

            writer.event(time_ns, track, "TYPE_SLICE_BEGIN", fill_with_flows)
        else:
            writer.repeated(time_ns, track, "TYPE_SLICE_BEGIN", (one.state, one.name), fill)


def _nothing(_event: Any) -> None:
    """Leave an event as it is."""


def _write_flows(
    writer: _Writer, tracks: dict[tuple[str, str, int], int], flows: Iterable[Flow]
) -> None:
    for number, flow in enumerate(flows, 1):

        def fill(event: Any, number: int = number, flow: Flow = flow) -> None:
            event.name = f"IPI {flow.vector:#x}"
            event.categories.append("ipi")
            event.flow_ids.append(number)
            _note(event, "vector", flow.vector)
            _note(event, "target vCPU", flow.target)

        track = tracks["vcpu", flow.vm, flow.sender]
        writer.event(flow.sent_ns, track, "TYPE_INSTANT", fill)


def write_perfetto(events: Events, path: Path) -> None:
    """Write `perfetto_bytes` to a file.

    Raises:
        UserError: it cannot be written.
    """
    write_bytes(path, perfetto_bytes(events))
