from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from rich.console import Console

import svmsim as sv
from svmsim.result import EXIT_COLUMNS


@pytest.fixture(scope="module")
def result() -> sv.Result:
    scenario = sv.Scenario.from_dict(
        {
            "kvm": {"idle_hlt": False, "avic": False},
            "vm": [{"pin": [0], "workload": {"kind": "idle_hlt_test", "iterations": 100}}],
        }
    )
    return scenario.run()


def test_exits_frame(result: sv.Result) -> None:
    frame = result.exits
    assert frame.columns == ["vm", "vcpu", "exit", *EXIT_COLUMNS]
    assert frame.schema["count"] == pl.Int64
    assert frame.schema["mean_ns"] == pl.Float64
    counts = dict(frame.select("exit", "count").iter_rows())
    assert (counts["msr"], counts["hlt"], counts["vintr"]) == (253, 100, 100)
    for row in frame.iter_rows(named=True):
        assert row["min_ns"] - 1 < row["mean_ns"] < row["max_ns"] + 1  # rounded to ns
        assert row["mean_ns"] == pytest.approx(row["time_ns"] / row["count"], abs=1)


def test_vcpus_frame_has_kvm_statistics(result: sv.Result) -> None:
    frame = result.vcpus
    assert frame.columns[:2] == ["vm", "vcpu"]
    assert frame["halt_exits"].to_list() == [100]
    assert frame["exits"].to_list() == [result.exits["count"].sum()]
    assert isinstance(frame.schema["halt_wait_hist"], pl.List)


def test_pcpus_frame_adds_up(result: sv.Result) -> None:
    frame = result.pcpus
    assert frame.columns[:5] == ["pcpu", "guest_ns", "host_ns", "poll_ns", "idle_ns"]
    busy = frame.select(pl.sum_horizontal("guest_ns", "host_ns", "poll_ns", "idle_ns")).item()
    assert busy == pytest.approx(result.sim_time_ns, abs=10)
    assert frame["guest_ns"].item() > 0


def test_latency_frame(result: sv.Result) -> None:
    assert result.latency.columns == ["kind", "count", "mean_ns", "p50_ns", "p99_ns", "max_ns"]


def test_save_and_load(result: sv.Result, tmp_path: Path) -> None:
    path = tmp_path / "a" / "result.json"
    result.save(path)
    again = sv.Result.load(path)
    assert again.to_json() == result.to_json()
    assert again.exits.equals(result.exits)
    assert list(path.parent.iterdir()) == [path]  # no temporary file is left


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"schema": 9}', "schema 1"),
        ("{}", "schema"),
    ],
)
def test_load_what_is_no_result(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(sv.UserError, match=message) as caught:
        sv.Result.load(path)
    assert caught.value.problems[0]["source"] == str(path)
    with pytest.raises(sv.UserError, match="no such file"):
        sv.Result.load(tmp_path / "none.json")


def test_rich_and_repr(result: sv.Result) -> None:
    console = Console(width=120, record=True, file=None, quiet=False, force_terminal=False)
    with console.capture() as capture:
        console.print(result)
    text = capture.get()
    assert "VM-EXIT" in text
    assert "handling" in text
    assert repr(result).startswith("Result(idle_hlt_test: ")
    assert "hlt 100" in repr(result)


def _damaged(result: sv.Result) -> Iterator[str]:
    """The text of a result with each of its values in turn taken away or made another one."""
    values: list[Any] = [None, "x", [], {}, -(2**70), 1e999]
    for value in values:
        for key in result.to_dict():
            data = result.to_dict()
            data[key] = value
            yield json.dumps(data)
        for table, key in (("exits", "msr"), ("latency", "ipi"), ("workload", "metrics")):
            data = result.to_dict()
            data[table][key] = value
            yield json.dumps(data)
        for table, key in (("vcpus", "stats"), ("vcpus", "vm"), ("pcpus", "idle_ns")):
            data = result.to_dict()
            data[table][0][key] = value
            yield json.dumps(data)
        data = result.to_dict()
        data["exits"]["msr"]["time_ns"] = value
        yield json.dumps(data)
    for key in result.to_dict():
        data = result.to_dict()
        del data[key]
        yield json.dumps(data)
    text = result.to_json()
    yield "[" * 100_000
    yield text.replace("{", '{"x": ' + "[" * 500 + "]" * 500 + ",", 1)
    yield text.replace("{", '{"x": ' + "9" * 5000 + ",", 1)
    yield text.replace("{", '{"x": "\\ud800",', 1)
    yield text.replace("{", '{"x": NaN,', 1)


def test_damaged_results_are_user_errors_or_usable(result: sv.Result, tmp_path: Path) -> None:
    refused = 0
    console = Console(width=120)
    for text in _damaged(result):
        path = tmp_path / "x.json"
        path.write_text(text)
        try:
            loaded = sv.Result.load(path)
        except sv.UserError as error:
            refused += error.problems[0]["source"] == str(path)
            continue
        assert repr(loaded)
        for name in ("exits", "vcpus", "pcpus", "latency", "failure", "metrics", "advice"):
            getattr(loaded, name)
        loaded.save(path)
        with console.capture():
            console.print(loaded)
    assert refused > 60
    with pytest.raises(sv.UserError):
        sv.Result([])  # type: ignore[arg-type]
