from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from conftest import Cli
from svmsim.studies import hlt_exits


@pytest.fixture(scope="module")
def outcome() -> hlt_exits.Outcome:
    return hlt_exits.study(quick=True, seeds=2)


def test_every_verdict_holds(outcome: hlt_exits.Outcome) -> None:
    assert [row for row in outcome.rows if not row.holds] == []
    judged = [row for row in outcome.rows if row.tolerance != "-"]
    assert {row.quantity for row in judged} >= {"gain, half : all", "all vCPUs"}


def test_what_is_disabled_exits_no_more(outcome: hlt_exits.Outcome) -> None:
    halts = outcome.results["quiet-half"][0].halts
    counts = dict(halts.select("vcpu", "count").iter_rows())
    assert all(counts[vcpu] == 0 for vcpu in range(hlt_exits.PARKED_FROM))
    assert all(counts[vcpu] > 0 for vcpu in range(hlt_exits.PARKED_FROM, hlt_exits.VCPUS))
    assert outcome.results["quiet-all"][0].halts["count"].sum() == 0


def test_host_threads_starve_with_all_and_not_with_half(outcome: hlt_exits.Outcome) -> None:
    frame = outcome.frame.filter(host="stress").group_by("host", "disabled").mean()
    ran = dict(frame.select("disabled", "host_run_ms").iter_rows())
    forced = dict(frame.select("disabled", "forced_preemptions").iter_rows())
    assert ran["half"] > 0.98 * ran["none"]
    assert ran["all"] < 0.8 * ran["none"]
    assert forced["all"] > 2 * forced["none"]


def test_saving_writes_tables_and_a_picture(outcome: hlt_exits.Outcome, tmp_path: Path) -> None:
    files = {file.name for file in outcome.save(tmp_path)}
    assert {"table.md", "table.json", "measurements.csv", "hlt-exits.png"} <= files
    assert pl.read_parquet(tmp_path / "measurements.parquet").height == 2 * len(outcome.runs)
    assert "forced preemptions" in (tmp_path / "table.md").read_text(encoding="utf-8")


def test_only_the_idle_studies_have_a_short_form(cli: Cli) -> None:
    done = cli("study", "ipi", "--out", "out", "--quick")
    assert done.returncode == 2
    assert "short form" in done.stderr
