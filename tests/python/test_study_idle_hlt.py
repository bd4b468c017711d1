from __future__ import annotations

import json
import tomllib
from pathlib import Path

import polars as pl
import pytest

import svmsim as sv
from conftest import Cli
from svmsim._pool import SimulationPool
from svmsim.studies import _idle_hlt_rows, idle_hlt
from svmsim.studies._table import Row, exact, within


@pytest.fixture(scope="module")
def outcome() -> idle_hlt.Outcome:
    return idle_hlt.study()


def _rows(outcome: idle_hlt.Outcome, quantity: str, kernel: str = "6.1") -> dict[str, Row]:
    rows = [row for row in outcome.rows if row.quantity == quantity and row.kernel == kernel]
    assert rows
    return {row.idle_hlt: row for row in rows}


def test_every_verdict_holds(outcome: idle_hlt.Outcome) -> None:
    failed = [row for row in outcome.rows if row.kernel == idle_hlt.JUDGED and not row.holds]
    assert failed == []
    assert outcome.holds


@pytest.mark.parametrize("kernel", idle_hlt.KERNELS)
def test_published_counts_come_out(outcome: idle_hlt.Outcome, kernel: str) -> None:
    for name, off, on in (("msr", 524213, 524213), ("hlt", 262080, 0), ("vintr", 262080, 262080)):
        rows = _rows(outcome, f"{name} exits", kernel)
        assert (rows["off"].simulated, rows["on"].simulated) == (off, on)
    early = _rows(outcome, "hlt exits at 1300 cycles a record", kernel)["off"]
    assert early.simulated == 131008
    whole = _rows(outcome, "iterations of the harness", kernel)
    assert {row.simulated for row in whole.values()} == {524224}


def test_host_time_and_cycles(outcome: idle_hlt.Outcome) -> None:
    change = _rows(outcome, "host time of these exits, change")["on / off"]
    assert change.published == pytest.approx(-17.0, abs=0.05)
    assert -20 <= change.simulated <= -14
    for mode, cycles in (("off", 4806.1), ("on", 5048.4)):
        (row,) = (
            row
            for row in outcome.rows
            if (row.quantity, row.idle_hlt, row.recorded, row.kernel)
            == ("iteration", mode, False, "6.1")
        )
        assert row.published == cycles
        assert row.simulated == pytest.approx(cycles, rel=0.1)
    free = _rows(outcome, "iteration with t_halt_abort = 0")["on"]
    assert free.simulated < 4806.1  # without the aborted halt's cost the exit's saving shows


def test_verdicts_can_fail() -> None:
    def row(simulated: float, tolerance: tuple[object, float, float]) -> Row:
        return Row("q", True, "on", "6.1", simulated, 10.0, *tolerance)  # type: ignore[arg-type]

    assert row(10, exact(10)).verdict == "holds"
    assert row(11, exact(10)).verdict == "fails"
    assert row(9, within("R", 10, 0.1)).verdict == "holds"
    assert row(8.9, within("R", 10, 0.1)).verdict == "fails"
    assert row(-11, within("R", -10, 0.1)).verdict == "holds"
    assert row(99, ("-", 0, 0)).verdict == "-"
    assert row(5, exact(10)).ratio == 0.5


def test_one_wrong_exit_fails_the_study(outcome: idle_hlt.Outcome) -> None:
    results = dict(outcome.results)
    data = results["6.1-on-recorded"].to_dict()
    data["exits"]["msr"]["count"] += 1
    results["6.1-on-recorded"] = sv.Result(data)
    failed = [row for row in idle_hlt.table_rows(results) if row.kernel == "6.1" and not row.holds]
    assert [(row.quantity, row.idle_hlt) for row in failed] == [("msr exits", "on")]


@pytest.mark.parametrize(
    ("cycles", "total"),
    [(4806.1, 524224), (5048.4, 524224), (8192, 262080), (16383, 262080), (16384, 131008)],
)
def test_doubling_rule(cycles: float, total: int) -> None:
    assert _idle_hlt_rows.harness_iterations(cycles, 2**30, 64) == total


def test_publication_is_recomputed_from_its_own_numbers() -> None:
    found = {what: (printed, text) for what, printed, text in _idle_hlt_rows.oddities()}
    printed, text = found["vintr Time%, idle HLT off"]
    assert printed == "16 %"
    assert "17.98 %" in text
    assert "17.7..18.0 %" in text
    assert found["full cycles, on against off"] == ("+5.40 %", "+5.04 % of off, +4.80 % of on")
    assert found["ipi cycles, on against off"][1].startswith("-2.23 %")
    assert found["eoi cycles, on against off"][1].startswith("-2.16 %")
    printed, text = found["host time of these exits"]
    assert printed == "-28.7 %"
    assert text.startswith("-17.0 %")


def test_published_data_has_sources(root: Path) -> None:
    path = root / "python" / "svmsim" / "studies" / "idle_hlt_published.toml"
    data = tomllib.loads(path.read_text())
    assert all("source" in data[part] for part in ("perf", "cycles", "harness"))


def test_pool_gives_what_serial_runs_give(small: sv.Scenario) -> None:
    scenarios = [small.set("kvm.idle_hlt", on) for on in (True, False, True, False)]
    shares: list[float] = []
    with SimulationPool(scenarios, [1, 2, 3, 4]) as pool:
        pooled = [result.to_dict() for result in pool.results(shares.append)]
    serial = [scenario.run().to_dict() for scenario in scenarios]
    for result in (*pooled, *serial):
        result.pop("wall_time_s")
    assert pooled == serial
    assert shares[-1] == 1


def test_pool_stops_when_left_early(small: sv.Scenario) -> None:
    endless = small.set("vm.workload.iterations", 2_000_000_000)
    with SimulationPool([endless] * 3, [1] * 3):
        pass  # returns, though nothing could end by itself


def test_saved_files(outcome: idle_hlt.Outcome, tmp_path: Path) -> None:
    files = outcome.save(tmp_path / "out")
    assert [file.name for file in files] == [
        "table.md",
        "table.json",
        "exits.parquet",
        "exit-counts.png",
        "host-time.png",
    ]
    assert all(file.stat().st_size > 0 for file in files)
    table = json.loads((tmp_path / "out" / "table.json").read_text())
    assert len(table["rows"]) == len(outcome.rows)
    assert table["holds"] is True
    frame = pl.read_parquet(tmp_path / "out" / "exits.parquet")
    assert frame.columns[:4] == ["run", "kernel", "idle_hlt", "recorded"]
    assert sum(1 for _ in (tmp_path / "out" / "runs").iterdir()) == len(outcome.runs)
    text = (tmp_path / "out" / "table.md").read_text()
    assert "## Kernel 6.12, beside" in text
    assert "typo for 17" in text


def test_command(cli: Cli, tmp_path: Path) -> None:
    done = cli("study", "idle-hlt", "--out", tmp_path / "x" / "y", "--json", tmp_path / "t.json")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for word in ("published", "ratio", "verdict", "Not recorded", "every verdict holds"):
        assert word in done.stdout
    assert json.loads((tmp_path / "t.json").read_text())["study"] == "idle-hlt"
