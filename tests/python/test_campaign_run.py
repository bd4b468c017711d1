"""What a campaign does: results, resuming, failures, repeats. Its disasters are in
test_campaign_disasters.py."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import svmsim as sv
from conftest import Cli
from svmsim import _core
from svmsim.campaign import execute
from svmsim.campaign.journal import scan

SWEEP = {"kvm.idle_hlt": [False, True], "vm.workload.iterations": [5, 10, 20]}


def tables(directory: Path) -> dict[str, bytes]:
    """The tables that are the same for equal campaigns, and campaign.json."""
    files = [*(directory / "tables").iterdir(), directory / "campaign.json"]
    return {file.name: file.read_bytes() for file in files if file.stem != "timing"}


def records(directory: Path) -> list[str]:
    """The names of the runs in the journal, one for each record."""
    return [record.run_id for record in scan(directory / "journal")]


class Shim:
    """Stands in for the extension module in workers, which are forked from this process."""

    def __init__(self, core: Any, before: Callable[[list[str]], None]) -> None:
        self._core = core
        self._before = before

    def run(
        self, source: str, is_file: bool, base_dir: str, overrides: list[str], **options: Any
    ) -> str:
        self._before(overrides)
        options["progress"](0.0)
        return str(self._core.run(source, is_file, base_dir, overrides, **options))


@pytest.fixture
def before_run(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[list[str]], None]], None]:
    """Sets what happens in a worker before each simulation."""

    def set_(before: Callable[[list[str]], None]) -> None:
        monkeypatch.setattr(execute, "_core", Shim(_core, before))

    return set_


def test_same_bytes_however_many_processes(small: sv.Scenario, tmp_path: Path) -> None:
    campaign = sv.Campaign(small, SWEEP, seeds=2)
    one = campaign.run(tmp_path / "one", processes=1, progress=False)
    two = campaign.run(tmp_path / "two", processes=3, progress=False)
    assert tables(tmp_path / "one") == tables(tmp_path / "two")
    memory = campaign.run(progress=False)
    assert memory.path is None
    for name in ("runs", "configurations", "exits", "halts", "latencies", "metrics"):
        assert one.frame(name).equals(two.frame(name))
        assert one.frame(name).equals(memory.frame(name))
    runs = one.frame()
    assert runs["seed"].to_list() == [1, 2] * 6
    assert runs["vm.workload.iterations"].to_list() == [5, 5, 10, 10, 20, 20] * 2
    for row in runs.iter_rows(named=True):
        scenario = small.with_(**{k: row[k] for k in SWEEP}, run={"seed": row["seed"]})
        assert row["exits"] == scenario.run().exits["count"].sum()


def test_finished_runs_are_never_repeated(small: sv.Scenario, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sv.Campaign(small, SWEEP, seeds=[1]).run(out, progress=False)
    before, first = records(out), tables(out)
    table = out / "tables" / "runs.parquet"
    written = table.stat().st_mtime_ns
    sv.Campaign(small, SWEEP, seeds=[1]).run(out, progress=False)
    assert records(out) == before
    assert table.stat().st_mtime_ns == written
    grown = sv.Campaign(small, SWEEP, seeds=[1, 2]).run(out, progress=False)
    after = records(out)
    assert len(after) == len(set(after)) == 12
    assert set(before) < set(after)
    assert len(grown) == 12
    sv.Campaign(small, SWEEP, seeds=[1]).run(out, progress=False)
    assert records(out) == after
    assert tables(out) == first


def test_equal_configurations_are_simulated_once(small: sv.Scenario, tmp_path: Path) -> None:
    variants = {"a": {"kvm": {"idle_hlt": True}}, "b": {"kvm": {"idle_hlt": True}}}
    table = sv.Campaign(small, {"what": variants}).run(tmp_path, progress=False)
    assert table.frame()["what"].to_list() == ["a", "b"]
    assert table.frame()["run_id"].n_unique() == 1
    assert len(records(tmp_path)) == 1


def test_a_failed_run_is_a_row(
    small: sv.Scenario, tmp_path: Path, before_run: Callable[[Any], None]
) -> None:
    def fail(overrides: list[str]) -> None:
        if "run.seed=2" in overrides:
            raise sv.InternalError("broken \x1b[31m invariant")

    before_run(fail)
    campaign = sv.Campaign(small, {"kvm.idle_hlt": [False, True]}, seeds=3)
    table = campaign.run(tmp_path, progress=False)
    failures = table.failures
    assert failures["seed"].to_list() == [2, 2]
    assert set(failures["status"]) == {"failed"}
    assert failures["error"][0] == r"InternalError: broken \x1b[31m invariant"
    assert table.metric("exits.msr.count")["value"].is_null().to_list() == [False, True, False] * 2
    assert "2 failed" in table._repr_html_()
    campaign.run(tmp_path, progress=False)
    assert len(records(tmp_path)) == 6  # a failure is a result


def test_a_run_beyond_its_time_limit_is_a_row(
    small: sv.Scenario, tmp_path: Path, before_run: Callable[[Any], None]
) -> None:
    def slow(overrides: list[str]) -> None:
        if "run.seed=2" in overrides and not (tmp_path / "fast").exists():
            time.sleep(0.1)

    before_run(slow)
    campaign = sv.Campaign(small, seeds=3, time_limit_s=0.05)
    table = campaign.run(tmp_path / "out", progress=False)
    assert table.frame()["status"].to_list() == ["ok", "time_limit", "ok"]
    assert table.failures["error"].to_list() == ["took longer than the limit of 0.05 s"]
    (tmp_path / "fast").touch()
    assert campaign.run(tmp_path / "out", progress=False).failures.height == 1
    assert campaign.run(tmp_path / "out", resume=True, progress=False).failures.is_empty()


def test_a_workload_that_fails_is_no_success(tmp_path: Path, cli: Cli, small_file: Path) -> None:
    program = (
        'name = "p"\ndoc = "d"\nbody = [{ do = "cpuid" }]\n[[check]]\nvector = 0x41\n'
        '[[handler]]\nvector = 0x41\nactions = [{ do = "iret" }]\n[repeat]\ncount = 1\n'
    )
    (tmp_path / "p.toml").write_text(program)
    text = f'scenario = "{small_file.name}"\n[sweep]\nvm.workload = [{{ kind = "./p.toml" }}]\n'
    (tmp_path / "c.toml").write_text(text)
    done = cli("sweep", "c.toml", "--out", "out", "--json", "s.json")
    assert done.returncode == 1, done.stderr
    summary = json.loads((tmp_path / "s.json").read_text())
    assert summary["runs"]["ok"] == 1
    assert summary["failures"][0]["failure"]
    assert "the workload failed" in done.stdout


def test_seeds_are_added_until_the_interval_is_narrow(
    small: sv.Scenario, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Iterations stand in for chance: the seed decides them in the shim."""

    class Chance:
        def __init__(self, core: Any) -> None:
            self._core = core

        def run(self, source: str, is_file: bool, base: str, texts: list[str], **o: Any) -> str:
            seed = int(next(t for t in texts if t.startswith("run.seed")).split("=")[1])
            if "kvm.idle_hlt=false" in texts:
                texts = [*texts, f"vm.workload.iterations={(100, 160)[seed % 2]}"]
            return str(self._core.run(source, is_file, base, texts, **o))

    monkeypatch.setattr(execute, "_core", Chance(_core))
    repeat = sv.Repeat("exits.vintr.count", width=0.1, at_least=3, at_most=40)
    campaign = sv.Campaign(small, {"kvm.idle_hlt": [False, True]}, seeds=[7], repeat=repeat)
    table = campaign.run(tmp_path, progress=False)
    values = table.metric("exits.vintr.count")
    counts = dict(values.group_by("kvm.idle_hlt").len().iter_rows())
    assert counts[True] == 3  # always the same: narrow at once
    assert 10 < counts[False] < 40
    wide = values.filter(pl.col("kvm.idle_hlt").not_())["value"].to_numpy()
    from scipy.stats import t

    half = t.ppf(0.975, len(wide) - 1) * wide.std(ddof=1) / len(wide) ** 0.5
    assert half <= 0.1 * wide.mean()
    assert values["seed"].to_list()[:4] == [7, 8, 9, 10]
    again = campaign.run(tmp_path, progress=False)
    assert len(again) == len(table) == len(records(tmp_path))


def test_events_are_kept_when_asked(small: sv.Scenario, tmp_path: Path) -> None:
    quiet = sv.Campaign(small, {"kvm.idle_hlt": [False, True]})
    with pytest.raises(sv.UserError, match="events = true"):
        quiet.run(tmp_path, progress=False).scan("events")
    loud = sv.Campaign(small, {"kvm.idle_hlt": [False, True]}, events=True)
    table = loud.run(tmp_path, progress=False)
    events = table.frame("events")
    exits = events.filter(event="kvm_exit").group_by("run").len().sort("run")["len"].to_list()
    assert exits == table.frame()["exits"].to_list()
    direct = small.with_(kvm={"idle_hlt": False}, run={"seed": 1}).run(events=True).events
    kept = table.result(0).events
    assert direct is not None
    assert kept is not None
    common = [name for name in direct.frame.columns if name != "event"]
    assert kept.frame.select(common).equals(direct.frame.select(common))
    assert kept.frame["event"].to_list() == direct.frame["event"].to_list()
    assert kept.slices.equals(direct.slices)
    assert sorted(file.suffix for file in (tmp_path / "events").iterdir()) == [".parquet"] * 2


def test_a_directory_belongs_to_one_campaign(small: sv.Scenario, tmp_path: Path) -> None:
    sv.Campaign(small, name="one").run(tmp_path, progress=False)
    with pytest.raises(sv.UserError, match="holds the results of another campaign, one"):
        sv.Campaign(small, name="two").run(tmp_path, progress=False)


def test_progress_for_machines(tmp_path: Path, small_file: Path, cli: Cli) -> None:
    text = f'scenario = "{small_file.name}"\nseeds = 4\n'
    (tmp_path / "c.toml").write_text(text)
    done = cli("sweep", "c.toml", "--out", "out", "--progress", "json")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert lines[-1]["done"] == lines[-1]["total"] == 4
    assert lines[-1]["failed"] == 0
    assert {"rate_per_s", "eta_s", "elapsed_s"} <= set(lines[-1])
    assert cli("sweep", "c.toml", "--out", "out").stderr == ""  # no terminal
    assert list((tmp_path / "out" / "journal").iterdir())
