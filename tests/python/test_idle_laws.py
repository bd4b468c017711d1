"""Laws of halting and polling that hold whatever the parameters are, and the split of a halt."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

import svmsim as sv

PARTS = ("handling_ns", "polling_ns", "blocked_ns", "runqueue_ns", "cstate_ns")


def waits(directory: Path, gap_us: float, **sections: Any) -> sv.Result:
    """Run a guest that computes 5 us and then waits for a device, over and over."""
    tasks = {
        "devices": {"d": {"latency": gap_us}},
        "tasks": {"waiter": {"phases": {"p": {"run": 5, "io": "d"}}}},
    }
    (directory / "waits.json").write_text(json.dumps(tasks))
    guest = {"pin": [0], "workload": {"tasks": "waits.json"}, "watchdog_thresh": 0}
    return sv.Scenario.from_dict(
        {
            "host": {"pcpus": 1, "hz": 0, **sections.get("host", {})},
            "kvm": {"avic": False, **sections.get("kvm", {})},
            "vm": [guest | sections.get("vm", {})],
            "run": {"duration": "60ms"},
        },
        directory,
    ).run()


def share(result: sv.Result, kind: str) -> float:
    return float(result.pcpus[f"{kind}_ns"].sum()) / result.sim_time_ns


def rounds(result: sv.Result) -> int:
    return int(result.metrics["waiter_rounds"])


@pytest.mark.parametrize("cost", ["t_world", "h_hlt", "t_loop", "t_irq_deliver", "t_sched_in"])
def test_exit_counts_do_not_depend_on_costs(cost: str) -> None:
    scenario = sv.Scenario.from_dict(
        {
            "host": {"hz": 0},
            "kvm": {"avic": False, "idle_hlt": False},
            "vm": [{"pin": [0], "workload": {"kind": "idle_hlt_test", "iterations": 50}}],
        }
    )

    def counts(changed: sv.Scenario) -> dict[str, int]:
        return {name: row["count"] for name, row in changed.run().exit_totals.items()}

    assert counts(scenario.set(f"host.cost.{cost}", 20_000)) == counts(scenario)


@pytest.mark.parametrize("gap_us", [30, 120, 400, 1500])
def test_polling_costs_the_wake_rate_times_the_shorter_of_window_and_gap(
    tmp_path: Path, gap_us: int
) -> None:
    window_us = 200
    quiet = waits(tmp_path, gap_us, kvm={"halt_poll_ns": 0})
    polls = {"idle": "cpuidle_kvm", "guest_halt_poll_ns": window_us * 1000}
    polling = waits(tmp_path, gap_us, kvm={"halt_poll_ns": 0}, vm=polls)
    seconds = polling.sim_time_ns / 1e9
    rate = rounds(polling) / seconds
    # What the guest does besides, at the rate of the guest that does not poll.
    besides = share(quiet, "guest") * rate / (rounds(quiet) / seconds)
    expected = rate * min(window_us, gap_us) / 1e6
    assert share(polling, "guest") - besides == pytest.approx(expected, abs=0.06)


@pytest.mark.parametrize("gap_us", [30, 120])
def test_host_polling_costs_the_wake_rate_times_the_gap(tmp_path: Path, gap_us: int) -> None:
    result = waits(tmp_path, gap_us)
    rate = rounds(result) / (result.sim_time_ns / 1e9)
    assert share(result, "poll") == pytest.approx(rate * gap_us / 1e6, abs=0.03)


def test_the_cliff_where_the_window_meets_the_gap(tmp_path: Path) -> None:
    def busy(gap_us: float) -> float:
        result = waits(tmp_path, gap_us)
        return sum(share(result, kind) for kind in ("guest", "host", "poll"))

    # halt_poll_ns = 200 us; a halt is a few us longer than the gap when it blocks.
    assert busy(185) > 0.98
    assert busy(205) < 0.12


def test_without_hlt_exits_a_polling_guest_saves_no_halt(tmp_path: Path) -> None:
    polls = {"idle": "cpuidle_kvm", "guest_halt_poll_ns": 200_000}
    results = {}
    for exits in ([], ["hlt"]):
        for name, vm in (("halts", {}), ("polls", polls)):
            vm = vm | {"disable_exits": exits}
            results[name, bool(exits)] = waits(tmp_path, 60, kvm={"halt_poll_ns": 0}, vm=vm)

    def per_round(result: sv.Result, *names: str) -> float:
        found = [row["count"] for name, row in result.exit_totals.items() if name in names]
        return float(sum(found)) / rounds(result)

    halting = ("hlt", "idle-halt")
    assert per_round(results["halts", False], *halting) == pytest.approx(1, abs=0.03)
    for name in ("halts", "polls"):
        assert per_round(results[name, True], *halting) == 0
        # The completion ends guest mode, whether the guest halts in it or polls.
        assert per_round(results[name, True], "interrupt") == pytest.approx(1, abs=0.03)
    cost = results["halts", True].scenario["host"]["cost"]
    hz = 2_700_000_000  # of the profile turin
    gain_ns = (
        results["halts", True].metrics["waiter_round_mean_ns"]
        - results["polls", True].metrics["waiter_round_mean_ns"]
    )
    # What is left: leaving C1, the two timer writes around the halt, and the idle code.
    left = cost["t_halt_wake"] + 2 * 1500 + 2 * cost["g_idle"] + cost["g_idle_exit"]
    assert 0 < gain_ns < 1e9 * left / hz


def test_disabled_hlt_exits_help_the_guest_and_hurt_host_threads(tmp_path: Path) -> None:
    task = {"name": "other", "phases": [{"run": "2ms", "sleep": "1ms"}]}
    guest, host = [], []
    for exits in ([], ["hlt"]):
        sections: dict[str, Any] = {"kvm": {"halt_poll_ns": 0}, "vm": {"disable_exits": exits}}
        guest.append(waits(tmp_path, 60, **sections).metrics["waiter_round_mean_ns"])
        busy = waits(tmp_path, 60, host={"task": [task], "hz": 250}, **sections)
        host.append(busy.tasks["wakeup_mean_ns"].item())
    assert guest[1] <= guest[0]
    assert host[1] >= host[0]


@pytest.fixture(scope="module")
def crowded() -> sv.Result:
    """Four vCPUs on two pCPUs beside a host task: halts with every part."""
    return sv.Scenario.from_dict(
        {
            "host": {"pcpus": 2, "task": [{"phases": [{"run": "90us", "sleep": "200us"}]}]},
            "kvm": {"avic": False},
            "vm": [{"vcpus": 4, "workload": {"tasks": "transactions"}}],
            "run": {"duration": "50ms"},
        }
    ).run()


def test_the_parts_of_halts_add_up_by_vcpu_and_in_all(crowded: sv.Result) -> None:
    halts = crowded.halts
    assert halts.height == 4
    # A halt that the end of the run cuts short has no time of its own.
    open_halts = crowded.vcpus["halt_exits"] - halts["count"]
    assert open_halts.is_between(0, 1).all()
    assert all(halts[part].sum() > 0 for part in PARTS)
    assert (
        halts.select(pl.sum_horizontal(PARTS)).to_series().to_list() == halts["time_ns"].to_list()
    )
    total = crowded.to_dict()["halt"]
    assert sum(total[part] for part in PARTS) == total["time_ns"]
    # Each is rounded to ns by itself.
    for name in ("time_ns", *PARTS):
        assert total[name] == pytest.approx(halts[name].sum(), abs=5)
    hlt = crowded.exits.filter(pl.col("exit").is_in(["hlt", "idle-halt"]))
    assert hlt["time_ns"].sum() == pytest.approx(total["time_ns"], abs=5)


def test_the_terminal_shows_halts_and_why_the_host_is_busy(
    crowded: sv.Result, tmp_path: Path
) -> None:
    def text(result: sv.Result) -> str:
        console = Console(width=130, force_terminal=False)
        with console.capture() as capture:
            console.print(result)
        return capture.get()

    shown = text(crowded)
    assert "Halts, by where their time went" in shown
    assert "vm0 vCPU 3" in shown
    assert "vm0 vCPU 3</td>" in crowded._repr_html_()
    assert crowded.busy_reason == ""
    polling = waits(tmp_path, 60)
    assert polling.busy_reason.startswith("polling saturation")
    assert f"busy host: {polling.busy_reason}"[:60] in text(polling)
    assert f"Busy host: {html.escape(polling.busy_reason)}" in polling._repr_html_()
    storm = waits(tmp_path, 40, kvm={"halt_poll_ns": 0})
    assert storm.busy_reason.startswith("halt storm")


def test_host_threads_of_a_result(crowded: sv.Result) -> None:
    tasks = crowded.tasks
    assert tasks.columns[:4] == ["name", "tid", "run_ns", "loops"]
    assert tasks["run_ns"].item() == pytest.approx(90_000 * tasks["loops"].item(), rel=0.02)
    assert tasks["wakeup_mean_ns"].item() <= tasks["wakeup_max_ns"].item()
