from __future__ import annotations

import json
from pathlib import Path

from conftest import Cli

REPORT_KEYS = {
    "format",
    "isa",
    "lines",
    "events",
    "exits",
    "vcpus",
    "unknown",
    "causes",
    "refused",
}


def _recorded(cli: Cli, small_file: Path, tmp_path: Path, *options: str) -> Path:
    trace = tmp_path / "recorded.trace"
    done = cli("run", small_file, "--set", "host.hz=0", *options, "--trace", trace)
    assert done.returncode == 0, done.stderr
    return trace


def test_import_report(cli: Cli, small_file: Path, tmp_path: Path) -> None:
    trace = _recorded(cli, small_file, tmp_path, "--set", "kvm.idle_hlt=false")
    workload = tmp_path / "made" / "x.workload"
    done = cli("import", trace, "-o", workload, "--json", "-")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report) >= REPORT_KEYS
    assert report["exits"]["hlt"] == 100
    assert report["refused"] is None
    assert workload.stat().st_size > 0
    assert "hlt" in cli("import", trace).stdout


def test_replay_reproduces_what_was_recorded(cli: Cli, small_file: Path, tmp_path: Path) -> None:
    trace = _recorded(cli, small_file, tmp_path, "--set", "kvm.idle_hlt=false")
    done = cli("replay", trace, "--set", "kvm.idle_hlt=true", "--json", "-")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert set(report) >= {"recorded", "as_recorded", "changed", "fidelity", "undecidable"}
    recorded = report["recorded"]["exits"]
    replayed = {n: e["count"] for n, e in report["as_recorded"]["exits"].items()}
    assert replayed == recorded
    assert "hlt" not in report["changed"]["exits"]
    assert report["changed"]["exits"]["vintr"]["count"] == recorded["vintr"]


def test_replay_prints_counts_side_by_side(cli: Cli, small_file: Path, tmp_path: Path) -> None:
    trace = _recorded(cli, small_file, tmp_path, "--set", "kvm.idle_hlt=false")
    text = cli("replay", trace, "--set", "kvm.idle_hlt=true").stdout
    for word in ("recorded", "as recorded", "changed", "change", "hlt"):
        assert word in text
