from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

import svmsim as sv
from conftest import Cli

Trace: Any = perfetto_trace_pb2.Trace
TrackEvent: Any = perfetto_trace_pb2.TrackEvent


@pytest.fixture(scope="module")
def traced(wake_back: sv.Scenario, tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Any]:
    file = tmp_path_factory.mktemp("perfetto") / "run.pftrace"
    result = wake_back.run(perfetto=file)
    return Trace.FromString(file.read_bytes()), result


def names_of(trace: Any) -> dict[int, str]:
    tracks = [p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")]
    names = {track.uuid: track.name for track in tracks}
    parents = {t.uuid: names[t.parent_uuid] for t in tracks if t.HasField("parent_uuid")}
    assert len(names) == len(tracks)  # every track has its own id
    return {uuid: f"{parents.get(uuid, '')}/{name}" for uuid, name in names.items()}


def slices_of(trace: Any) -> list[tuple[str, str, int, int, int]]:
    """(track, name, depth, begin, end) of every slice; asserts that they nest."""
    names = names_of(trace)
    open_: dict[str, list[tuple[str, int]]] = {}
    last: dict[str, int] = {}
    slices = []
    for packet in trace.packet:
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        track = names[event.track_uuid]
        if event.type not in (TrackEvent.TYPE_SLICE_BEGIN, TrackEvent.TYPE_SLICE_END):
            continue
        assert packet.timestamp >= last.get(track, 0)
        last[track] = packet.timestamp
        stack = open_.setdefault(track, [])
        if event.type == TrackEvent.TYPE_SLICE_BEGIN:
            stack.append((event.name, packet.timestamp))
        else:
            name, begin = stack.pop()
            slices.append((track, name, len(stack), begin, packet.timestamp))
    assert not any(open_.values())
    return slices


def test_a_track_for_each_cpu(traced: tuple[Any, sv.Result]) -> None:
    names = list(names_of(traced[0]).values())
    assert [n for n in names if "Physical" in n] == [
        "/Physical CPUs",
        "Physical CPUs/pCPU 0",
        "Physical CPUs/pCPU 1",
    ]
    assert {"/VM vm0", "VM vm0/vCPU 0", "VM vm0/vCPU 1"} <= set(names)


def test_slices_nest_and_add_up(traced: tuple[Any, sv.Result]) -> None:
    trace, result = traced
    slices = slices_of(trace)
    for cpu in (0, 1):
        own = [s for s in slices if s[0] == f"Physical CPUs/pCPU {cpu}"]
        assert {name for _, name, *_ in own} == {"guest", "host", "poll", "idle"}
        assert {depth for _, _, depth, *_ in own} == {0}
        idle = sum(end - begin for _, name, _, begin, end in own if name == "idle")
        assert idle == pytest.approx(result.pcpus["idle_ns"][cpu], abs=len(own))
    vcpu = [s for s in slices if s[0] == "VM vm0/vCPU 1"]
    depths = {name: {depth for _, n, depth, *_ in vcpu if n == name} for _, name, *_ in vcpu}
    assert depths["guest"] == depths["hlt"] == depths["msr"] == {0}
    assert depths["poll"] == depths["blocked"] == {1}  # within their exit
    exits = Counter(name for _, name, depth, *_ in vcpu if depth == 0)
    assert exits["hlt"] == 20


def test_flows_lead_from_the_ipi_to_its_handler(traced: tuple[Any, sv.Result]) -> None:
    trace, _ = traced
    names = names_of(trace)
    starts, ends = {}, {}
    for packet in trace.packet:
        event = packet.track_event
        for flow in event.flow_ids:
            starts[flow] = (names[event.track_uuid], event.name, packet.timestamp)
        for flow in event.terminating_flow_ids:
            ends[flow] = (names[event.track_uuid], event.name, packet.timestamp)
    assert len(starts) == 40
    assert starts.keys() == ends.keys()
    for flow, (track, name, time) in starts.items():
        to, what, arrived = ends[flow]
        assert {track, to} == {"VM vm0/vCPU 0", "VM vm0/vCPU 1"}
        assert (name, what) == ("IPI 0x41", "guest")
        assert arrived > time


def test_the_poll_window_is_a_counter(traced: tuple[Any, sv.Result]) -> None:
    trace, result = traced
    assert result.events is not None
    counts = [p for p in trace.packet if p.track_event.type == TrackEvent.TYPE_COUNTER]
    windows = result.events.poll_windows
    assert [p.track_event.counter_value for p in counts] == windows["new_ns"].to_list()


def test_the_same_run_gives_the_same_bytes(cli: Cli, small_file: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        done = cli("run", small_file, "--perfetto", name)
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert len(slices_of(Trace.FromString((tmp_path / "a").read_bytes()))) > 1000


def test_outputs_may_not_be_one_file_or_an_input(cli: Cli, small_file: Path) -> None:
    done = cli("run", small_file, "--perfetto", "x", "--vcd", "x")
    assert done.returncode == 2
    assert "another output goes into the same file" in done.stderr
    done = cli("run", small_file, "--vcd", small_file)
    assert done.returncode == 2
    assert "is an input" in done.stderr
