"""Kills, interrupts, full disks, damaged files: nothing is lost, nothing is counted twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import svmsim as sv
from conftest import SMALL
from svmsim.campaign import local
from svmsim.campaign.journal import scan
from test_campaign_run import SWEEP, before_run, records, tables

__all__ = ["before_run"]

SLOW = """\
name = "slow"
scenario = "small.toml"
seeds = 20
[set]
vm.workload.iterations = 25_000
[sweep]
kvm.idle_hlt = [false, true]
"""
RUNS = 40


@pytest.fixture
def slow_dir(tmp_path: Path) -> Path:
    """A directory with slow.toml: 40 runs of some 20 ms."""
    (tmp_path / "small.toml").write_text(SMALL)
    (tmp_path / "slow.toml").write_text(SLOW)
    return tmp_path


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The tables of slow.toml when nothing happens."""
    directory = tmp_path_factory.mktemp("undisturbed")
    (directory / "small.toml").write_text(SMALL)
    (directory / "slow.toml").write_text(SLOW)
    sv.Campaign.load(directory / "slow.toml").run(directory / "out", progress=False)
    return tables(directory / "out")


def _start(directory: Path, *prefix: str) -> subprocess.Popen[str]:
    command = [*prefix, sys.executable, "-m", "svmsim", "sweep", "slow.toml", "--out", "out"]
    return subprocess.Popen(
        command, cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def _finish(directory: Path, before: list[str], expected: dict[str, bytes]) -> None:
    """Run the campaign to its end and compare it with an undisturbed one."""
    assert 0 < len(before) < RUNS
    sv.Campaign.load(directory / "slow.toml").run(directory / "out", progress=False)
    after = records(directory / "out")
    assert set(before) <= set(after)
    assert all(count == 1 for count in Counter(after).values())
    assert len(after) == RUNS
    assert tables(directory / "out") == expected
    names = {path.name for path in (directory / "out").iterdir()}
    assert names == {".lock", "campaign.json", "journal", "tables"}


def _workers(directory: Path) -> Iterator[int]:
    for file in (directory / "out" / "journal").glob("*.jsonl"):
        pid = int(file.name.rsplit("-", 2)[1])
        if Path(f"/proc/{pid}").exists():
            yield pid


def test_kill_of_the_driver(slow_dir: Path, undisturbed: dict[str, bytes]) -> None:
    driver = _start(slow_dir)
    _wait_for(lambda: len(records(slow_dir / "out")) >= 5, "no run finished")
    driver.kill()
    driver.communicate()
    _wait_for(lambda: not list(_workers(slow_dir)), "workers outlive the driver")
    assert not (slow_dir / "out" / "tables").exists()
    with pytest.raises(sv.UserError, match="unfinished"):
        sv.ResultTable.load(slow_dir / "out")
    _finish(slow_dir, records(slow_dir / "out"), undisturbed)


def test_interrupt(slow_dir: Path, undisturbed: dict[str, bytes]) -> None:
    driver = _start(slow_dir)
    _wait_for(lambda: len(records(slow_dir / "out")) >= 3, "no run finished")
    driver.send_signal(signal.SIGINT)
    _, errors = driver.communicate(timeout=20)
    assert driver.returncode == 130
    assert "Traceback" not in errors
    assert "the same command goes on" in errors
    assert not list(_workers(slow_dir))
    _finish(slow_dir, records(slow_dir / "out"), undisturbed)


def test_kill_of_a_worker(slow_dir: Path, undisturbed: dict[str, bytes]) -> None:
    driver = _start(slow_dir)
    _wait_for(lambda: len(records(slow_dir / "out")) >= 3, "no run finished")
    os.kill(next(_workers(slow_dir)), signal.SIGKILL)
    _, errors = driver.communicate(timeout=60)
    assert driver.returncode == 0, errors
    counts = Counter(records(slow_dir / "out"))
    assert len(counts) == RUNS
    assert set(counts.values()) == {1}
    assert tables(slow_dir / "out") == undisturbed


def test_a_run_that_takes_its_worker_down(
    small: sv.Scenario, tmp_path: Path, before_run: Callable[[Any], None]
) -> None:
    def kill(overrides: list[str]) -> None:
        if "run.seed=3" in overrides:
            os.kill(os.getpid(), signal.SIGKILL)

    before_run(kill)
    campaign = sv.Campaign(small, seeds=8)
    table = campaign.run(tmp_path, processes=2, progress=False)
    assert table.frame()["status"].to_list() == ["ok", "ok", "killed", *["ok"] * 5]
    assert set(Counter(records(tmp_path)).values()) == {1}
    before_run(lambda _: None)
    assert campaign.run(tmp_path, resume=True, progress=False).failures.is_empty()


def test_what_a_killed_worker_had_finished_is_not_repeated(
    small: sv.Scenario, tmp_path: Path, before_run: Callable[[Any], None]
) -> None:
    """It has several runs at once, the first of which are in the journal already."""
    marks = tmp_path / "marks"
    marks.mkdir()

    def kill(overrides: list[str]) -> None:
        seed = int(overrides[-1].removeprefix("run.seed="))
        before = len(list(marks.glob(f"{seed}.*")))
        (marks / f"{seed}.{before}").touch()
        if seed % 9 == 0 and before == 0:
            time.sleep(0.2)  # so long that what is before it is written
            os.kill(os.getpid(), signal.SIGKILL)

    before_run(kill)
    table = sv.Campaign(small, seeds=60).run(tmp_path / "out", processes=2, progress=False)
    assert table.failures.is_empty()
    simulated = Counter(int(mark.stem) for mark in marks.iterdir())
    others = [seed for seed in range(1, 61) if seed % 9]
    again = [seed for seed in others if simulated[seed] > 1]
    assert len(again) <= 6  # what the other worker had when the pool broke
    assert all(simulated[seed] == 2 for seed in range(9, 61, 9))
    assert Counter(Counter(records(tmp_path / "out")).values()) == {1: 60}


def test_a_run_that_hangs_is_killed(
    small: sv.Scenario,
    tmp_path: Path,
    before_run: Callable[[Any], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One that never asks whether its time is over."""

    def hang(overrides: list[str]) -> None:
        if "run.seed=2" in overrides:
            time.sleep(60)

    monkeypatch.setattr(local, "_GRACE_S", 0.1)
    before_run(hang)
    table = sv.Campaign(small, seeds=4, time_limit_s=0.2).run(tmp_path, progress=False)
    assert table.frame()["status"].to_list() == ["ok", "time_limit", "ok", "ok"]
    assert "killed" in table.failures["error"][0]


def test_full_disk(slow_dir: Path, undisturbed: dict[str, bytes]) -> None:
    """A limit of the size of files stands in: a journal can take a few records."""
    driver = _start(slow_dir, "prlimit", "--fsize=25000")
    _, errors = driver.communicate(timeout=60)
    assert driver.returncode == 2, errors
    assert "cannot be written" in errors
    assert "Traceback" not in errors
    for file in (slow_dir / "out" / "journal").iterdir():
        content = file.read_bytes()
        assert content.endswith(b"\n")  # no half of a record is left
        assert len(list(scan(file.parent))) > 0
    _finish(slow_dir, records(slow_dir / "out"), undisturbed)


def test_two_campaigns_in_one_directory(slow_dir: Path, undisturbed: dict[str, bytes]) -> None:
    first = _start(slow_dir)
    _wait_for(lambda: len(records(slow_dir / "out")) >= 1, "no run finished")
    with pytest.raises(sv.UserError, match=f"another campaign works .*process {first.pid}"):
        sv.Campaign.load(slow_dir / "slow.toml").run(slow_dir / "out", progress=False)
    first.communicate(timeout=60)
    assert first.returncode == 0
    assert tables(slow_dir / "out") == undisturbed
    assert set(Counter(records(slow_dir / "out")).values()) == {1}


def test_files_cut_short(small: sv.Scenario, tmp_path: Path) -> None:
    campaign = sv.Campaign(small, SWEEP, seeds=2)
    campaign.run(tmp_path, processes=1, progress=False)
    whole = tables(tmp_path)
    (journal,) = (tmp_path / "journal").iterdir()
    content = journal.read_bytes()
    lines = content.splitlines(keepends=True)
    damages = {
        "the last record": content[:-100],
        "the middle of a record": content.replace(lines[3][40:60], b"x" * 20, 1),
        "a record without its end": b"".join([*lines[:5], lines[5][:300], *lines[6:]]),
        "zeros at the end": content[:-200] + b"\0" * 200,
        "all": b"",
    }
    for what, damaged in damages.items():
        for extra in (tmp_path / "journal").iterdir():
            extra.unlink()
        journal.write_bytes(damaged)
        missing = 12 - len(set(records(tmp_path)))
        assert missing == {"all": 12, "a record without its end": 2}.get(what, 1), what
        campaign.run(tmp_path, processes=1, progress=False)
        assert len(set(records(tmp_path))) == len(records(tmp_path)) == 12, what
        assert tables(tmp_path) == whole, what
    for name in ("exits.parquet", "campaign.json"):
        file = tmp_path / name if name.endswith("json") else tmp_path / "tables" / name
        file.write_bytes(file.read_bytes()[:-50])
        with pytest.raises(sv.UserError, match="damaged"):
            sv.ResultTable.load(tmp_path)
        campaign.run(tmp_path, progress=False)
        assert tables(tmp_path) == whole, name


def test_kill_between_old_and_new_tables(small: sv.Scenario, tmp_path: Path) -> None:
    campaign = sv.Campaign(small, {"kvm.idle_hlt": [False, True]})
    campaign.run(tmp_path, progress=False)
    whole = tables(tmp_path)
    (tmp_path / "tables").rename(tmp_path / ".tables.new")
    assert len(sv.ResultTable.load(tmp_path)) == 2  # what is whole can be read
    (tmp_path / ".tables.part").mkdir()
    campaign.run(tmp_path, progress=False)
    assert tables(tmp_path) == whole
    assert not list(tmp_path.glob(".tables*"))
