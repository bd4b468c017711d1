from __future__ import annotations

import math
from pathlib import Path

import polars as pl
import pytest

from svmsim.studies import _halt_polling_rows, _halt_polling_sweep, halt_polling
from svmsim.studies._seeds import SeedRow, Sheet, above, below


@pytest.fixture(scope="module")
def outcome() -> halt_polling.Outcome:
    return halt_polling.study(quick=True, seeds=1)


def test_every_set_up_is_a_valid_scenario() -> None:
    names = [run.name for run in halt_polling.published_runs()]
    assert len(names) == len(set(names))
    for tasks in _halt_polling_rows.TRANSACTIONS:
        assert {f"{tasks}-{setting}" for setting in halt_polling.HOST_WINDOWS} <= set(names)


def test_no_cost_differs_between_the_set_ups() -> None:
    runs = halt_polling.published_runs()
    costs = [run.scenario.resolved["host"]["cost"] for run in runs]
    assert all(cost == costs[0] for cost in costs)


@pytest.mark.parametrize("name", ["ping-pong-guest-poll", "update_1-base", "insert_100-host-poll"])
def test_running_ahead_changes_nothing(name: str) -> None:
    (run,) = (run for run in halt_polling.published_runs(quick=True) if run.name == name)
    results = []
    for ahead in (True, False):
        scenario = run.scenario.with_(run={"duration": "6ms", "run_ahead": ahead})
        data = scenario.run().to_dict()
        results.append({k: v for k, v in data.items() if k not in ("wall_time_s", "scenario")})
    assert results[0] == results[1]


def test_what_does_not_depend_on_long_runs_holds(outcome: halt_polling.Outcome) -> None:
    wrong = [row for row in outcome.rows if not row.holds and "100 threads" not in row.setup]
    assert wrong == []
    judged = {row.quantity for row in outcome.rows if row.tolerance != "-"}
    assert {"overhead, guest-poll : host-poll", "saving of a halt", "pCPU busy"} <= judged


def test_guest_spin_wins_in_the_transactions_of_many_threads(
    outcome: halt_polling.Outcome,
) -> None:
    rows = [row for row in outcome.rows if "100 threads" in row.setup]
    assert len(rows) == 4
    assert all(row.simulated < 0 for row in rows if row.quantity.startswith("guest spin"))


def test_the_sweep_shows_the_cliff_and_who_stops_for_others(outcome: halt_polling.Outcome) -> None:
    frame = outcome.sweep.frame

    def point(gap: int, tasks: int, host: int, guest: int) -> dict[str, float]:
        (row,) = frame.filter(
            gap_us=gap, host_tasks=tasks, host_window_us=host, guest_window_us=guest
        ).iter_rows(named=True)
        return row

    # A window longer than the gap burns the pCPU, one shorter than it collapses to nothing.
    assert point(20, 0, 200, 0)["cpu_pct"] > 99
    assert point(400, 0, 200, 0)["cpu_pct"] == pytest.approx(point(400, 0, 0, 0)["cpu_pct"], 0.05)
    # The host stops polling for another thread, the guest cannot see it.
    assert point(20, 1, 200, 0)["cpu_pct"] < 60
    assert point(400, 1, 0, 200)["cpu_pct"] > 3 * point(400, 1, 0, 0)["cpu_pct"]
    assert frame.filter("on_frontier").height > 0


def test_the_full_sweep() -> None:
    assert len(_halt_polling_sweep.campaign()) == 4 * 4 * 4 * 3


def test_the_growth_trace_has_the_golden_windows(outcome: halt_polling.Outcome) -> None:
    windows = {}
    for name, result in outcome.growth.items():
        assert result.events is not None
        windows[name] = result.events.poll_windows["new_ns"].to_list()[:12]
    us = [10, 20, 40, 80]
    assert windows["Linux 6.12"][:8] == [1000 * one for one in [*us, 40, 20, 10, 0]]
    assert windows["Linux 6.1"][:6] == [1000 * one for one in [*us, 0, 10]]


def test_saving_writes_tables_frames_and_pictures(
    outcome: halt_polling.Outcome, tmp_path: Path
) -> None:
    files = {file.name for file in outcome.save(tmp_path)}
    assert {"table.md", "table.json", "frontier.png", "transactions.png", "growth.png"} <= files
    assert pl.read_parquet(tmp_path / "sweep.parquet").height == outcome.sweep.frame.height
    assert pl.read_csv(tmp_path / "rows.csv").height == len(outcome.rows)
    text = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert "DeleteC06T03" in text
    assert (tmp_path / "runs" / "nanosleep-seed1.json").is_file()
    assert "Infinity" not in (tmp_path / "table.json").read_text(encoding="utf-8")


def _row(values: list[float], band: tuple[str, float, float]) -> SeedRow:
    sheet = Sheet("set-up", "source")
    sheet.add("quantity", values, 1.0, band)  # type: ignore[arg-type]
    return sheet.rows[0]


def test_a_verdict_needs_every_seed() -> None:
    assert _row([0.1, 0.2], above(0)).verdict == "holds"
    assert _row([-0.1, 5.0], above(0)).verdict == "fails"
    assert _row([0.0], above(0)).verdict == "fails"
    assert _row([-1.0, -2.0], below(0)).verdict == "holds"
    # The sign agrees, but the seeds differ by more than the effect.
    assert _row([0.1, 9.0], above(0)).verdict == "holds"
    assert _row([0.01, 0.0101, 9.0], above(0)).verdict == "fails"
    assert _row([3.0], ("-", 0.0, 0.0)).verdict == "-"
    assert _row([3.0], above(0)).to_dict()["high"] is None
    assert math.isinf(above(0)[2])
