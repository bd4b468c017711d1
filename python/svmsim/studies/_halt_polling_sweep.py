"""The halt-polling study's sweep: host window x guest window x wake gap x runnable host tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from svmsim.campaign import Campaign
from svmsim.errors import InternalError
from svmsim.scenario import Scenario
from svmsim.table import ResultTable

if TYPE_CHECKING:
    import polars as pl

WINDOWS_US = (0, 50, 200, 800)
GAPS_US = (20, 100, 400, 1500)
HOST_TASKS = (0, 1, 2)
COMPUTED_US = 5.0
"""What the task of the wake_* sets computes between two waits."""


@dataclass(frozen=True)
class Sweep:
    """The sweep's results."""

    table: ResultTable
    frame: pl.DataFrame
    """A row for each configuration: host_window_us, guest_window_us, gap_us, host_tasks, wakes,
    latency_us (from the device's answer to the task running, with what the guest does in between),
    cpu_pct (of one pCPU, burnt by the vCPU: guest, host, polling), on_frontier (among those of its
    gap and number of host tasks, none is better in one and no worse in the other)."""


def campaign(quick: bool = False) -> Campaign:
    """Return the sweep as a campaign: one pinned vCPU, host tasks that never sleep beside it."""
    windows: tuple[int, ...] = (0, 200) if quick else WINDOWS_US
    gaps: tuple[int, ...] = (20, 400) if quick else GAPS_US
    tasks: tuple[int, ...] = (0, 1) if quick else HOST_TASKS
    base = Scenario.from_dict(
        {
            "host": {"profile": "turin", "pcpus": 1},
            "kvm": {"avic": False},
            "vm": [{"vcpus": 1, "pin": [0], "workload": {"tasks": f"wake_{gaps[0]}us"}}],
            "run": {"duration": "30ms" if quick else "300ms"},
        }
    )

    def polls(window_us: int) -> dict[str, Any]:
        if window_us == 0:
            return {"vm.idle": "hlt"}
        return {"vm.idle": "cpuidle_kvm", "vm.guest_halt_poll_ns": window_us * 1000}

    def hogs(count: int) -> list[dict[str, Any]]:
        return [{"name": "hog", "count": count, "phases": [{"run": "10ms"}]}] if count else []

    return Campaign(
        base,
        sweep={
            "kvm.halt_poll_ns": [window * 1000 for window in windows],
            "guest_window_us": {str(window): polls(window) for window in windows},
            "gap_us": {str(gap): {"vm.workload": {"tasks": f"wake_{gap}us"}} for gap in gaps},
            "host_tasks": {str(count): {"host.task": hogs(count)} for count in tasks},
        },
        name="halt-polling",
        question="What do longer polling windows gain in latency, and what do they burn?",
        metrics=["workload.waiter_round_mean_ns", "busy_ns"],
    )


def run_sweep(quick: bool = False) -> Sweep:
    """Simulate the sweep.

    Raises:
        InternalError: a simulation failed.
    """
    import polars as pl

    table = campaign(quick).run(progress=False)
    if not table.failures.is_empty():
        raise InternalError(f"the sweep failed: {table.failures['error'][0]}")
    rounds = table.metric("workload.waiter_round_mean_ns").select("run", round_ns="value")
    wakes = table.metric("workload.waiter_rounds").select("run", wakes="value")
    gap = pl.col("gap_us").cast(pl.Int64)
    frame = (
        table.runs.lazy()
        .collect()
        .join(rounds, on="run")
        .join(wakes, on="run")
        .select(
            (pl.col("kvm.halt_poll_ns") // 1000).alias("host_window_us"),
            pl.col("guest_window_us").cast(pl.Int64),
            gap.alias("gap_us"),
            pl.col("host_tasks").cast(pl.Int64),
            pl.col("wakes").cast(pl.Int64),
            # The device's jitter is uniform from 0 to a tenth of its latency.
            (pl.col("round_ns") / 1e3 - COMPUTED_US - 1.05 * gap).alias("latency_us"),
            (100 * pl.col("busy_ns") / pl.col("sim_time_ns")).alias("cpu_pct"),
        )
        .sort("host_tasks", "gap_us", "guest_window_us", "host_window_us")
    )
    best = [
        not any(
            _dominates(other, row)
            for other in frame.filter(gap_us=row["gap_us"], host_tasks=row["host_tasks"]).iter_rows(
                named=True
            )
        )
        for row in frame.iter_rows(named=True)
    ]
    return Sweep(table, frame.with_columns(pl.Series("on_frontier", best)))


def _dominates(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether `one` is better in one figure and no worse in the other, by more than a per cent."""
    figures = [(one[name], other[name]) for name in ("cpu_pct", "latency_us")]
    return all(a <= 1.01 * b for a, b in figures) and any(1.01 * a < b for a, b in figures)
