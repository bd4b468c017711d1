from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from conftest import Cli
from svmsim.studies import _ipi_rows, ipi
from svmsim.studies._table import exact, within


def test_the_grid_has_every_driver_path_method_and_target() -> None:
    cells = list(ipi.cells())
    assert len({cell.name for cell in cells}) == len(cells)
    for field, values in (
        ("path", ipi.PATHS),
        ("method", ipi.METHODS),
        ("driver", ipi.DRIVERS),
        ("target", ipi.TARGETS),
    ):
        assert {getattr(cell, field) for cell in cells} == set(values)
    assert max(cell.fan_out for cell in cells if cell.driver == "xAPIC flat") == 7
    full = list(ipi.cells(full=True))
    assert max(cell.fan_out for cell in full) == 255
    assert set(cells) - set(full) == set()


def test_every_cell_is_a_valid_scenario() -> None:
    assert len(ipi.runs()) > 200


def _cell(path: str, method: str, driver: str, target: str, fan_out: int) -> ipi.Run:
    wanted = ipi.Cell(path, method, driver, target, fan_out)
    (run,) = (run for run in ipi.runs() if run.cell == wanted)
    return run


@pytest.mark.parametrize(
    ("driver", "method", "fan_out", "exits"),
    [
        ("x2APIC physical", "ICR", 1, 1),
        ("x2APIC physical", "PV_SEND_IPI", 1, 1),
        ("x2APIC physical", "ICR", 7, 7),
        ("x2APIC physical", "PV_SEND_IPI", 7, 1),
        ("x2APIC cluster", "ICR", 7, 1),
        ("xAPIC flat", "ICR", 1, 3),
        ("xAPIC flat", "PV_SEND_IPI", 1, 1),
        ("xAPIC physical", "ICR", 7, 21),
        ("xAPIC physical", "PV_SEND_IPI", 7, 1),
    ],
)
def test_exits_of_the_sender_without_avic(
    driver: str, method: str, fan_out: int, exits: int
) -> None:
    run = _cell("no AVIC", method, driver, "running", fan_out)
    result = run.scenario.run()
    assert not result.failure
    row = ipi.grid_frame((run,), {run.name: result}).row(0, named=True)
    # A tick of the host, and what a CPU writes while it boots, are few.
    assert row["sender_exits"] == pytest.approx(exits, abs=0.03)
    assert row["latency_min_ns"] <= row["latency_p50_ns"] <= row["latency_max_ns"]
    assert row["total_ns"] > row["latency_min_ns"]


def test_a_preempted_target_waits_for_its_turn() -> None:
    times = {}
    for target in ("running", "preempted"):
        run = _cell("no AVIC", "ICR", "x2APIC physical", target, 1)
        result = run.scenario.run()
        times[target] = ipi.grid_frame((run,), {run.name: result})["total_ns"].item()
    assert times["preempted"] > 100 * times["running"]


def test_every_verdict_holds() -> None:
    runs = ipi.published_runs()
    results = {run.name: run.scenario.run() for run in runs}
    assert not [name for name, result in results.items() if result.failure]
    rows = _ipi_rows.judged_rows(results)
    assert [row for row in rows if not row.holds] == []
    judged = {row.quantity for row in rows if row.tolerance != "-"}
    assert {"round trip, AVIC : PV", "send, AVIC : PV", "broadcast, ICR : PV"} <= judged


def test_a_verdict_can_fail() -> None:
    row = _ipi_rows.IpiRow("s", "q", 1.0, 2.0, *within("R", 2.0, 0.1), "", 0, "source")
    assert row.verdict == "fails"
    assert row.to_dict()["ratio"] == 0.5
    assert _ipi_rows.IpiRow("s", "q", 1.0, 1.0, *exact(1), "", 0, "source").holds


def test_saving_writes_tables_and_pictures(tmp_path: Path) -> None:
    runs = [
        _cell("no AVIC", method, "x2APIC physical", target, fan_out)
        for method in ipi.METHODS
        for target in ("running", "halted")
        for fan_out in (1, 3)
    ]
    results = {run.name: run.scenario.run() for run in runs}
    outcome = ipi.Outcome(tuple(runs), results, ())
    files = outcome.save(tmp_path)
    assert {file.name for file in files} == {
        "table.md",
        "table.json",
        "grid.parquet",
        "cost.png",
        "sender-exits.png",
        "receiver-exits.png",
        "latency.png",
    }
    grid = pl.read_parquet(tmp_path / "grid.parquet")
    assert grid.height == len(runs)
    assert "x2APIC physical" in (tmp_path / "table.md").read_text(encoding="utf-8")


def test_only_the_ipi_study_has_a_full_grid(cli: Cli) -> None:
    done = cli("study", "idle-hlt", "--out", "out", "--full")
    assert done.returncode == 2
    assert "full" in done.stderr
