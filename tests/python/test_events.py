from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest

import svmsim as sv
from svmsim._pictures import pictures
from svmsim._timeline import exit_name, timeline

WORLD_SWITCH_NS = 400
"""More than VMRUN and #VMEXIT take together."""


@pytest.fixture(scope="module")
def result(wake_back: sv.Scenario) -> sv.Result:
    return wake_back.run(events=True)


def events(result: sv.Result) -> sv.Events:
    assert result.events is not None
    return result.events


def test_events_are_kept_only_when_asked_for(wake_back: sv.Scenario, result: sv.Result) -> None:
    plain = wake_back.run()
    assert plain.events is None
    assert plain.exit_totals == result.exit_totals  # and keeping them changes nothing
    assert len(events(result)) == len(events(result).frame) > 500


def test_frame_has_the_threads_and_fields(result: sv.Result) -> None:
    frame = events(result).frame
    assert frame["time_ns"].is_sorted()
    sent = frame.filter(event="kvm_apic_ipi")
    assert sent["vm"].unique().to_list() == ["vm0"]
    assert set(sent["field_0"] & 0xFF) == {0x41}  # icr_low
    assert frame.filter(event="cpu_idle")["vm"].null_count() == len(frame.filter(event="cpu_idle"))


def test_exits_are_those_of_the_statistics(result: sv.Result) -> None:
    found = events(result).exits
    for name, values in result.exit_totals.items():
        times = found.filter(exit=name)["time_ns"]
        assert len(times) == values["count"], name
        # Each event is rounded to a nanosecond by itself.
        assert sum(times) == pytest.approx(values["time_ns"], abs=len(times))


def test_slices_of_a_pcpu_neither_overlap_nor_leave_gaps(result: sv.Result) -> None:
    for cpu in (0, 1):
        frame = events(result).slices.filter(track="pcpu", index=cpu).sort("begin_ns")
        assert frame["begin_ns"][1:].to_list() == frame["end_ns"][:-1].to_list()
        assert set(frame["state"]) == {"guest", "host", "poll", "idle"}


def test_times_of_a_pcpu_are_those_of_the_statistics(result: sv.Result) -> None:
    slices = (
        events(result)
        .slices.filter(track="pcpu")
        .with_columns(time_ns=pl.col("end_ns") - pl.col("begin_ns"))
    )
    for row in result.pcpus.iter_rows(named=True):
        own = slices.filter(index=row["pcpu"])
        sums = {state: sum(own.filter(state=state)["time_ns"]) for state in set(own["state"])}
        assert sums["idle"] == pytest.approx(row["idle_ns"], abs=len(own))
        assert sums["poll"] == pytest.approx(row["poll_ns"], rel=0.01)
        # VMRUN and #VMEXIT lie between the trace points, and are the host's time.
        entries = len(own.filter(state="guest"))
        assert 0 < sums["guest"] - row["guest_ns"] < entries * WORLD_SWITCH_NS


def test_halts_end_in_the_order_of_their_stages(result: sv.Result) -> None:
    halts = events(result).halts
    stats = result.vcpus
    waits = sum(stats["halt_exits"].to_list()) - sum(stats["halt_successful_poll"].to_list())
    assert halts["waited"].sum() == waits
    for row in halts.iter_rows(named=True):
        moments = [row[f"{name}_ns"] for name in ("cause", "woken", "awake", "running", "entry")]
        assert None not in moments
        assert moments == sorted(moments)
        assert row["begin_ns"] <= row["woken_ns"]


def test_every_ipi_is_followed_to_its_handler(result: sv.Result) -> None:
    ipis = events(result).ipis
    assert len(ipis) == 40
    assert set(ipis.select("sender", "target").iter_rows()) == {(0, 1), (1, 0)}
    assert (ipis["handled_ns"] > ipis["sent_ns"]).all()
    assert set(ipis["vector"]) == {0x41}
    mean = float((ipis["handled_ns"] - ipis["sent_ns"]).to_numpy().mean())
    # The statistic begins with the guest's write, and ends when the guest takes the vector.
    (whole,) = result.latency.filter(kind="ipi")["mean_ns"]
    assert 0 < whole - mean < WORLD_SWITCH_NS


def test_poll_windows_grow_as_the_statistics_say(result: sv.Result) -> None:
    windows = events(result).poll_windows
    first = windows.filter(vcpu=1)
    assert first["old_ns"][0] == 0
    assert first["new_ns"][0] == result.scenario["kvm"]["halt_poll_ns_grow_start"]
    assert first["old_ns"][1:].to_list() == first["new_ns"][:-1].to_list()


def test_too_many_events_are_an_error(wake_back: sv.Scenario) -> None:
    from svmsim import _core

    with pytest.raises(sv.UserError, match="more than 100 events"):
        _core.run(
            wake_back._source,
            False,
            wake_back._base_dir,
            [],
            events={},
            most_events=100,
        )


def test_no_events_are_an_empty_timeline(result: sv.Result) -> None:
    columns = {name: values[:0] for name, values in events(result)._columns.items()}
    columns["kinds"] = events(result)._columns["kinds"]
    empty = timeline(columns, {})
    assert not empty.pcpus
    assert not empty.halts


def test_a_campaign_keeps_the_same_events(wake_back: sv.Scenario, tmp_path: Path) -> None:
    campaign = sv.Campaign(wake_back, sweep={"kvm.idle_hlt": [False, True]}, events=True)
    table = campaign.run(tmp_path / "out")
    for run, on in enumerate((False, True)):
        direct = events(wake_back.set("kvm.idle_hlt", on).run(events=True))
        kept = events(table.result(run))
        assert kept.timeline == direct.timeline
        assert kept.vcpus == direct.vcpus
    names = {picture.name for picture in pictures(table)}
    assert {"handling-times", "wake-up-stages", "timeline-1", "timeline-2"} <= names


def test_a_vcpu_that_ended_does_nothing(wake_back: sv.Scenario) -> None:
    alone = {"vcpus": 2, "pin": [0, 1], "workload": {"kind": "idle_hlt_test", "iterations": 100}}
    result = wake_back.from_dict({"host": {"pcpus": 2}, "vm": [alone]}).run(events=True)
    slices = events(result).slices.filter(track="vcpu", index=1)
    assert max(slices["end_ns"]) < result.sim_time_ns / 10


def test_other_threads_have_slices_of_their_own() -> None:
    kinds = ["sched_switch"]
    switches = [(0, 7), (7, 0)]
    fields = np.zeros((2, 8), dtype=np.uint64)
    for row, (previous, following) in enumerate(switches):
        fields[row, [0, 2, 3]] = previous, ord("S"), following
    columns = {
        "time_ns": np.array([10, 30], dtype=np.uint64),
        "kind": np.zeros(2, dtype=np.uint8),
        "cpu": np.zeros(2, dtype=np.int32),
        "tid": np.zeros(2, dtype=np.int32),
        "fields": fields,
        "kinds": kinds,
        "threads": [(7, "backup")],
    }
    (one,) = timeline(columns, {}).pcpus
    assert (one.begin_ns, one.end_ns, one.state, one.name) == (10, 30, "task", "backup")


def test_exit_names() -> None:
    assert exit_name(0x78) == "hlt"
    assert exit_name(0x5555) == "0x5555"
