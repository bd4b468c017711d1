from __future__ import annotations

import json
from pathlib import Path

import duckdb
import polars as pl
import pytest

import svmsim as sv
from conftest import Cli
from svmsim.table import TABLES, table_schemas
from svmsim.table.document import results_markdown
from svmsim.table.rows import undeclared


@pytest.fixture(scope="module")
def results() -> dict[str, sv.Result]:
    base = sv.Scenario.from_dict(
        {"vm": [{"pin": [0], "workload": {"kind": "idle_hlt_test", "iterations": 50}}]}
    )
    two = sv.Scenario.from_dict(
        {
            "host": {"pcpus": 2},
            "vm": [{"vcpus": 2, "pin": [0, 1], "workload": {"kind": "ping_pong", "rounds": 30}}],
        }
    )
    return {
        "off": base.set("kvm.idle_hlt", False).run(),
        "on": base.set("kvm.idle_hlt", True).run(),
        "pair": two.run(),
    }


def test_every_value_of_a_result_is_in_a_declared_column(results: dict[str, sv.Result]) -> None:
    for result in results.values():
        assert list(undeclared(result.to_dict())) == []


def test_every_column_has_unit_and_meaning() -> None:
    assert tuple(table_schemas()) == TABLES
    for table in table_schemas().values():
        assert len(set(table.names)) == len(table.names)
        for column in table.columns:
            assert column.doc.endswith("."), column
            assert column.unit or column.type in ("text", "integer"), column


def test_page_is_current(root: Path) -> None:
    page = (root / "docs" / "results.md").read_text()
    assert page == results_markdown(), "run svmsim describe results -o docs/results.md"


def test_tables_hold_the_results(results: dict[str, sv.Result]) -> None:
    table = sv.ResultTable.of(results)
    runs = table.frame()
    assert runs["label"].to_list() == ["off", "on", "pair"]
    for number, result in enumerate(results.values()):
        exits = table.scan("exits").filter(run=number).collect()
        assert exits.select(pl.exclude("run")).equals(result.exits)
        row = runs.row(number, named=True)
        assert row["exits"] == sum(v["count"] for v in result.exit_totals.values())
        assert row["busy_ns"] == sum(
            result.pcpus[name].sum() for name in ("guest_ns", "host_ns", "poll_ns")
        )
    halts, vcpus = table.frame("halts"), table.frame("vcpus")
    assert halts["halt_exits"].to_list()[:2] == [50, 0]
    assert vcpus.height == 4
    assert isinstance(halts.schema["halt_wait_hist"], pl.List)
    assert set(table.frame("metrics").filter(run=0)["metric"]) == set(results["off"].metrics)


def test_metrics(results: dict[str, sv.Result]) -> None:
    table = sv.ResultTable.of(results)
    assert table.metric("exits.hlt.count")["value"].to_list()[:2] == [50.0, 0.0]
    pair = results["pair"].exits.filter(exit="msr")
    mean = table.metric("exits.msr.mean_ns")["value"][2]
    assert pair.height == 2
    assert mean == pytest.approx(sum(pair["time_ns"].to_list()) / sum(pair["count"].to_list()))
    assert table.metric("exits.hlt.mean_ns")["value"][1] is None  # no exit, no mean
    assert table.metric("latency.wakeup.count")["value"].to_list()[1] == 0
    assert table.metric("latency.wakeup.p99_ns")["value"].to_list()[1] is None
    cycles = table.metric("workload.cycles_per_iteration")["value"].to_list()
    assert cycles[0] == results["off"].metrics["cycles_per_iteration"]
    for name in table.metrics():
        assert table.metric(name).height == 3


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("exits.htl.count", "exits.hlt.count"),
        ("exits.hlt.coutn", "exits.hlt.count"),
        ("halts.halt_wait", "halts.halt_wait_ns"),
        ("latency.wake.p99_ns", "latency.wakeup.p99_ns"),
        ("workload.iteration", "workload.iterations"),
        ("busy", "busy_ns"),
    ],
)
def test_unknown_metric(results: dict[str, sv.Result], name: str, nearest: str) -> None:
    with pytest.raises(sv.UserError) as caught:
        sv.ResultTable.of(results).metric(name)
    assert caught.value.problems[0]["nearest"] == nearest


def test_unknown_table_and_directory(results: dict[str, sv.Result], tmp_path: Path) -> None:
    with pytest.raises(sv.UserError, match="did you mean exits"):
        sv.ResultTable.of(results).scan("exit")
    with pytest.raises(sv.UserError, match="holds no results"):
        sv.ResultTable.load(tmp_path)
    with pytest.raises(sv.UserError, match="give at least one"):
        sv.ResultTable.of([])


def test_what_differs_is_what_was_swept(results: dict[str, sv.Result]) -> None:
    table = sv.ResultTable.of([results["off"], results["on"], results["off"]])
    assert table.sweep == ("kvm.idle_hlt",)
    assert table.frame()["configuration"].to_list() == [0, 1, 0]
    assert table.configurations["label"].to_list() == ["idle_hlt=false", "idle_hlt=true"]


def test_pandas(results: dict[str, sv.Result]) -> None:
    frame = sv.ResultTable.of(results).to_pandas("exits")
    assert list(frame["exit"]) == sv.ResultTable.of(results).frame("exits")["exit"].to_list()


def test_describe_results(cli: Cli) -> None:
    tables = json.loads(cli("describe", "results", "--json", "-").stdout)
    assert tuple(tables) == TABLES
    assert "halt_wait_ns" in cli("describe", "results").stdout


def test_sql_of_the_page(
    results: dict[str, sv.Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = sv.ResultTable.of([results["off"], results["on"]])
    (tmp_path / "out" / "tables").mkdir(parents=True)
    for name in ("exits", "runs"):
        table.scan(name).collect().write_parquet(tmp_path / "out" / "tables" / f"{name}.parquet")
    monkeypatch.chdir(tmp_path)
    (query,) = [part.split("```")[0] for part in results_markdown().split("```sql\n")[1:]]
    relation = duckdb.sql(query)
    assert relation is not None
    rows = relation.fetchall()
    assert (False, "hlt", 50) in [row[:3] for row in rows]
