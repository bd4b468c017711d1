"""Analyses of campaigns: pairs, intervals, what got worse, namespaces."""

from __future__ import annotations

import inspect
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import svmsim as sv
from conftest import SMALL, Cli
from svmsim.analysis.intervals import MANY, mean_intervals, ratio_intervals
from svmsim.analysis.requires import Analysis

PAIR = {"vcpus": 2, "pin": [0, 1], "workload": {"kind": "ping_pong", "rounds": 30}}
WORKLOADS = {
    "self": {"vm.workload": {"kind": "idle_hlt_test", "iterations": 30}},
    "pair": {"host.pcpus": 2, "vm": PAIR},
}


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a campaign with events."""
    path = tmp_path_factory.mktemp("analysis")
    (path / "small.toml").write_text(SMALL)
    campaign = sv.Campaign(
        sv.Scenario.load(path / "small.toml"),
        {"kvm.idle_hlt": [True, False], "kvm.halt_poll_ns": [0, 50_000], "workload": WORKLOADS},
        seeds=2,
        events=True,
    )
    campaign.run(path / "out", progress=False)
    return path / "out"


@pytest.fixture(scope="module")
def table(directory: Path) -> sv.ResultTable:
    return sv.ResultTable.load(directory)


def made_up(
    values: dict[tuple[Any, ...], list[float]], keys: tuple[str, ...] = ("key", "other")
) -> sv.ResultTable:
    """A table whose only content is busy_ns, by swept values, a value a seed."""
    rows: list[dict[str, Any]] = []
    for number, (swept, own) in enumerate(values.items()):
        for seed, value in enumerate(own):
            row = {"run": len(rows), "configuration": number, "seed": seed, "status": "ok"}
            rows.append(row | dict(zip(keys, swept, strict=True)) | {"busy_ns": value})
    frame = pl.DataFrame(rows).with_columns(pl.col("run").cast(pl.UInt32))
    about = {"schema": 1, "name": "made up", "sweep": list(keys)}
    return sv.ResultTable(about, frames={"runs": frame})


@pytest.mark.parametrize("count", [2, 4, 5, 20])
def test_intervals_cover_what_they_say(count: int) -> None:
    """Also for a few seeds; of 5, plain percentiles would cover 83 %."""
    random = np.random.default_rng(5)
    values = random.normal(10, 3, (1000, count))
    low, high = mean_intervals(values)
    covered = np.mean((low <= 10) & (high >= 10))
    assert 0.905 < covered < 0.98
    again = mean_intervals(values)
    assert np.array_equal(low, again[0])


def test_many_values_give_the_same_interval_without_resampling() -> None:
    random = np.random.default_rng(6)
    old = random.gamma(4, 2, (3, MANY + 1))
    new = old * 1.1 + random.normal(0, 1, old.shape)
    for intervals, few in (
        (mean_intervals(new), mean_intervals(new[:, : MANY - 1])),
        (ratio_intervals(old, new), ratio_intervals(old[:, : MANY - 1], new[:, : MANY - 1])),
    ):
        for one, other in zip(intervals, few, strict=True):
            assert one == pytest.approx(other, rel=0.01)


def test_pairs_cancel_what_the_seed_does() -> None:
    noise = [100.0, 900.0, 2000.0, 400.0, 7000.0, 30.0]
    table = made_up({("a", 1): noise, ("b", 1): [value + 5 for value in noise]})
    (change,) = table.compare("key", "busy_ns").overall
    assert (change.pairs, change.difference, change.low, change.high) == (6, 5.0, 5.0, 5.0)
    assert change.effect == math.inf
    assert change.worse_pairs == 6
    assert change.q == 0.0
    assert change.verdict == "same"  # 5 of 1738 is 0.3 %
    (change,) = (
        made_up({("a", 1): [10.0, 20.0], ("b", 1): [20.0, 40.0]}).compare("key", "busy_ns").overall
    )
    assert (change.pct, change.pct_low, change.pct_high) == (100.0, 100.0, 100.0)
    assert change.verdict == "worse"


def test_effect_sizes() -> None:
    old, new = [10.0, 20.0, 30.0, 40.0], [8.0, 19.0, 27.0, 38.0]
    (change,) = made_up({("a", 1): old, ("b", 1): new}).compare("key", "busy_ns").overall
    difference = np.array(new) - np.array(old)
    d = difference.mean() / difference.std(ddof=1) * (1 - 3 / (4 * 3 - 1))
    assert change.effect == pytest.approx(d)
    assert change.verdict == "better"


def test_what_got_worse_names_the_configuration() -> None:
    random = np.random.default_rng(1)
    values: dict[tuple[Any, ...], list[float]] = {}
    for other in range(4):
        base = random.normal(1000, 50, 6)
        values["off", other] = base.tolist()
        factor = 1.2 if other == 2 else 0.5
        values["on", other] = (base * factor + random.normal(0, 5, 6)).tolist()
    comparison = made_up(values).compare("key", "busy_ns")
    assert [c.verdict for c in comparison.overall] == ["better"]
    (worse,) = comparison.worse
    assert worse.where == "other=2"
    assert worse.pct == pytest.approx(20, abs=1)
    assert worse.pct_low is not None
    assert worse.pct_high is not None
    assert worse.pct is not None
    assert 15 < worse.pct_low < worse.pct < worse.pct_high < 25
    assert len(comparison.better) == 3
    data = json.loads(comparison.to_json())
    assert data["worse"][0]["where"] == "other=2"
    assert comparison.frame.height == 5
    console = Console(width=150)
    with console.capture() as capture:
        console.print(comparison)
    assert "What got worse (1)" in capture.get()
    assert "other=2" in comparison._repr_html_()


def test_an_unclear_change_is_called_so() -> None:
    table = made_up({("a", 1): [10.0, 20.0, 30.0], ("b", 1): [14.0, 15.0, 33.0]})
    assert table.compare("key", "busy_ns").overall[0].verdict == "unclear"
    single = made_up({("a", 1): [10.0], ("b", 1): [14.0]}).compare("key", "busy_ns").overall[0]
    assert (single.verdict, single.low, single.effect) == ("single", None, None)


def test_runs_without_a_partner_are_counted() -> None:
    table = made_up({("a", 1): [1.0, 2.0, 3.0], ("b", 1): [1.0, 2.0], ("b", 2): [7.0]})
    comparison = table.compare("key", "busy_ns")
    assert comparison.overall[0].pairs == 2
    assert comparison.unpaired == 2


def test_comparison_of_a_campaign(table: sv.ResultTable) -> None:
    comparison = table.compare("kvm.idle_hlt", "exits.hlt.count")
    (change,) = comparison.overall
    assert (change.old_value, change.new_value) == (
        "false",
        "true",
    )  # from False, whatever comes first
    assert change.new == 0
    assert change.old == table.metric("exits.hlt.count")["value"].sum() / 8
    assert len(comparison.changes) == 4
    every = table.compare("kvm.idle_hlt")
    assert {"exits", "busy_ns", "latency.ipi.p99_ns"} <= {c.metric for c in every.overall}
    backwards = table.compare("kvm.halt_poll_ns", "busy_ns", baseline=50_000)
    assert backwards.overall[0].old_value == "50,000"
    with pytest.raises(sv.UserError, match=r"kvm\.idle: is not swept .*did you mean kvm\.idle_hlt"):
        table.compare("kvm.idle")
    with pytest.raises(sv.UserError, match="no run has the value 7"):
        table.compare("kvm.halt_poll_ns", baseline=7)
    with pytest.raises(sv.UserError, match="did you mean busy_ns"):
        table.compare("kvm.idle_hlt", "busi_ns")


def test_comparison_of_two_campaigns(directory: Path, cli: Cli, tmp_path: Path) -> None:
    one = made_up({("x", 1): [10.0, 20.0], ("x", 2): [30.0, 10.0]})
    two = made_up({("x", 1): [20.0, 40.0], ("x", 2): [15.0, 5.0], ("y", 1): [1.0, 2.0]})
    comparison = sv.compare(one, two, ["busy_ns"])
    assert [c.where for c in comparison.worse] == ["key=x, other=1"]
    assert comparison.unpaired == 2
    with pytest.raises(sv.UserError, match="no run of one has a partner"):
        sv.compare(one, made_up({("z", 9): [1.0]}))
    with pytest.raises(sv.UserError, match="same seed and swept values"):
        sv.compare(one, made_up({("x",): [1.0], ("y",): [1.0]}, ("what",)))
    done = cli("compare", directory, directory, "--strict", "--json", "c.json", "-m", "busy_ns")
    assert done.returncode == 0, done.stderr
    assert "Nothing got worse" in done.stdout
    assert json.loads((tmp_path / "c.json").read_text())["overall"][0]["pct"] == 0.0
    done = cli("compare", directory, "--key", "kvm.idle_hlt", "--baseline", "true", "--strict")
    assert done.returncode == 1
    assert "true → false" in done.stdout


def test_namespaces_agree_with_the_results(table: sv.ResultTable) -> None:
    keys = ["kvm.idle_hlt", "kvm.halt_poll_ns", "workload"]
    counts = table.exits.df_counts()
    runs = {row["run"]: row for row in table.frame().iter_rows(named=True)}
    for number in (0, 3, 9, 14):
        result = table.result(number)
        row = runs[number]
        here = {key: row[key] for key in keys}
        own = counts.filter(**here)
        assert dict(own.filter(pl.col("mean") > 0).select("exit", "mean").iter_rows()) == {
            name: values["count"] for name, values in result.exit_totals.items()
        }
        story = table.halts.df_story().filter(**here).row(0, named=True)
        assert story["halt_wait_ns"] == result.vcpus["halt_wait_ns"].sum()
        pcpus = table.sched.df_pcpus().filter(**here).row(0, named=True)
        assert pcpus["idle_ns"] == result.pcpus["idle_ns"].sum()
        shares = [pcpus[f"{name}_pct"] for name in ("guest", "host", "poll", "idle")]
        assert sum(shares) == pytest.approx(100)
        times = table.exits.df_times().filter(**here, exit="msr").row(0, named=True)
        assert times["time_ns"] == sum(result.exits.filter(exit="msr")["time_ns"].to_list())
        latency = table.ipi.df_latency().filter(**here).row(0, named=True)
        assert latency["p99_ns"] == result.latency.filter(kind="ipi")["p99_ns"][0]
    lengths = table.halts.df_lengths([])
    hist = table.frame("halts")["halt_wait_hist"].list.sum().sum()
    assert lengths.filter(kind="wait")["count"].sum() == hist
    rates = table.exits.df_rates("workload").filter(workload="pair", exit="msr")["per_s"][0]
    chosen = table.frame().filter(workload="pair")
    total = table.metric("exits.msr.count").filter(workload="pair")["value"].to_numpy().sum()
    assert rates == pytest.approx(total / (chosen["sim_time_ns"].to_numpy().sum() / 1e9))


def test_a_single_run_is_a_whole_result(table: sv.ResultTable) -> None:
    runs = table.frame()
    result = table.result(5)
    row = runs.row(5, named=True)
    assert result.scenario["run"]["seed"] == row["seed"] == 2
    again = sv.Scenario.from_dict(result.scenario).run(events=True)
    one, other = result.to_dict(), again.to_dict()
    assert one.pop("wall_time_s") != other.pop("wall_time_s")
    assert one == other
    assert result.events is not None
    assert again.events is not None
    assert result.events.exits.equals(again.events.exits)
    assert result.events.halts.equals(again.events.halts)
    with pytest.raises(sv.UserError, match="there is no run 99"):
        table.result(99)


NAMESPACES = ("exits", "halts", "ipi", "sched", "latency")


@pytest.mark.parametrize("name", NAMESPACES)
def test_beneath_every_plot_stand_its_numbers(table: sv.ResultTable, name: str) -> None:
    space = getattr(table, name)
    methods = dict(inspect.getmembers(space, inspect.ismethod))
    plots = [method for method in methods if method.startswith("plot_")]
    assert plots
    for method in plots:
        assert method.replace("plot_", "df_") in methods or method in ("plot_counts", "plot_mix")
    for method, call in methods.items():
        if method.startswith("_"):
            continue
        assert "Needs: " in str(call.__doc__)
        if method.endswith("_cost"):
            call("vm.vcpus", "kvm.idle_hlt")
        elif method == "plot_growth":
            with pytest.raises(sv.UserError, match="no halt_poll_ns changed"):
                call("kvm.idle_hlt")
        else:
            call("kvm.idle_hlt")
    with pytest.raises(sv.UserError):
        space.df_times("kvm.idle") if name == "exits" else sv.ResultTable(
            {"sweep": []}
        ).exits.df_counts()


def test_missing_columns_are_named(table: sv.ResultTable) -> None:
    frames = {name: table.frame(name) for name in ("runs", "exits", "latencies")}
    frames["exits"] = frames["exits"].rename({"time_ns": "times_ns", "polling_ns": "x"})
    damaged = sv.ResultTable(table.about, frames=frames)
    with pytest.raises(sv.UserError) as caught:
        damaged.exits.df_times()
    text = str(caught.value)
    assert "exits.time_ns: df_times needs this column" in text
    assert "did you mean exits.times_ns?" in text
    assert "exits.polling_ns" in text
    assert damaged.exits.df_counts("kvm.idle_hlt").height > 0
    with pytest.raises(sv.UserError, match="events = true"):
        damaged.latency.df_wakeup_stages()
    assert isinstance(damaged.exits, Analysis)


def test_summary(table: sv.ResultTable) -> None:
    frame = table.summary("exits.hlt.count", "kvm.idle_hlt")
    assert frame["runs"].to_list() == [8, 8]
    assert frame.filter(pl.col("kvm.idle_hlt"))["mean"].to_list() == [0.0]
    assert (frame["low"] <= frame["mean"]).all()
    assert table.summary("exits", []).height == 1
    one = made_up({("a", 1): [1.0]}).summary("busy_ns")
    assert one["low"].to_list() == [None]
