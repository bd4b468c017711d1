from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import svmsim as sv
from conftest import Cli

DATA = Path(__file__).parents[1] / "data" / "trace"
BASE: dict[str, Any] = {
    "host": {"profile": "turin", "kernel": "6.12", "pcpus": 1, "hz": 0},
    "vm": [{"vcpus": 1, "pin": [0], "workload": {"kind": "idle_hlt_test", "iterations": 50}}],
}


def _import(cli: Cli, path: Path) -> dict[str, Any]:
    done = cli("import", path, "--json", "-")
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize("kernel", ["6.1", "6.12", "6.18"])
def test_the_three_formats_hold_the_same(cli: Cli, tmp_path: Path, kernel: str) -> None:
    scenario = sv.Scenario.from_dict(BASE).with_(host={"kernel": kernel})
    reports = {}
    for suffix, format_ in ((".txt", "tracefs"), (".perf", "perf script"), (".dat", "trace.dat")):
        path = tmp_path / f"a{suffix}"
        result = scenario.run(trace=path)
        reports[suffix] = _import(cli, path)
        assert reports[suffix]["format"] == format_
        counts = {name: one["count"] for name, one in result.exit_totals.items()}
        recorded = {name: n for name, n in reports[suffix]["exits"].items() if n}
        # perf's statistics drop the last exit, which no entry follows.
        assert all(abs(recorded[name] - count) <= 1 for name, count in counts.items())
    for key in ("events", "exits", "causes", "durations", "kernel"):
        assert reports[".perf"][key] == reports[".txt"][key] == reports[".dat"][key], key


def test_names_of_formats(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    sv.Scenario.from_dict(BASE).run(trace=path, trace_format="dat")
    assert path.read_bytes().startswith(b"\x17\x08\x44tracing6\0")
    with pytest.raises(sv.ScenarioError, match="must be ftrace, perf or dat"):
        sv.Scenario.from_dict(BASE).run(trace=path, trace_format="dta")


def test_markers_keep_what_leaves_no_exit(cli: Cli, tmp_path: Path) -> None:
    scenario = sv.Scenario.from_dict(BASE)
    plain, marked = tmp_path / "plain.txt", tmp_path / "marked.txt"
    without = scenario.run(trace=plain)
    with_markers = scenario.run(trace=marked, markers=True)
    assert without.exit_totals == with_markers.exit_totals
    lines = [one for one in marked.read_text().splitlines() if "svmsim_guest" not in one]
    assert lines == plain.read_text().splitlines()
    assert " sti" in marked.read_text()
    assert _import(cli, marked)["events"]["svmsim_guest"] > 100


@pytest.mark.skipif(shutil.which("trace-cmd") is None, reason="trace-cmd is not installed")
def test_trace_cmd_reports_what_was_simulated(tmp_path: Path) -> None:
    text, binary = tmp_path / "a.txt", tmp_path / "a.dat"
    scenario = sv.Scenario.from_dict(BASE)
    scenario.run(trace=text, markers=True)
    scenario.run(trace=binary, markers=True)
    command = ["trace-cmd", "report", "-N", "-t", "-i", str(binary)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    reported = [one.partition(": ")[2].split() for one in done.stdout.splitlines()[1:]]
    lines = [one for one in text.read_text().splitlines() if not one.startswith("#")]
    written = [one.partition(": ")[2].split() for one in lines]
    assert len(reported) == len(written)
    for ours, theirs in zip(written, reported, strict=True):
        assert ours == (theirs[1:] if theirs[0] == "print:" else theirs)


def test_conversion(cli: Cli, tmp_path: Path) -> None:
    source = DATA / "kvm-6.12-d1.dat.gz"
    original = _import(cli, source)
    for name in ("a.txt", "a.perf", "a.dat"):
        done = cli("import", source, "--convert", tmp_path / name)
        assert done.returncode == 0, done.stderr
        again = _import(cli, tmp_path / name)
        for key in ("events", "exits", "causes", "vcpus", "durations"):
            assert again[key] == original[key], (name, key)
    text = DATA / "captures" / "23-windows-ept-reinject-livelock.txt"
    assert cli("import", text, "--convert", tmp_path / "v.dat").returncode == 0
    assert _import(cli, tmp_path / "v.dat")["exits"] == {"EPT_VIOLATION": 2}
    two = DATA / "captures" / "01-idle-hlt-ipi-trace.txt"
    assert cli("import", two, "--convert", tmp_path / "x.txt").returncode == 2
    done = cli("import", two, "--capture", "2", "--convert", tmp_path / "x.txt")
    assert done.returncode == 0, done.stderr
    assert _import(cli, tmp_path / "x.txt")["exits"] == {"hlt": 1, "msr": 1, "vintr": 1}


@pytest.mark.parametrize("layout", ["wide", "classic", "columns"])
def test_perf_tables_are_read_back(cli: Cli, tmp_path: Path, layout: str) -> None:
    scenario = tmp_path / "s.toml"
    scenario.write_text(
        '[host]\nprofile = "turin"\nhz = 0\n[[vm]]\npin = [0]\n'
        '[vm.workload]\nkind = "idle_hlt_test"\niterations = 50\n'
    )
    done = cli("run", scenario, "--perf-table", layout, "--json", tmp_path / "r.json")
    assert done.returncode == 0, done.stderr
    table = done.stdout.partition("\nExit to entry")[0]
    (tmp_path / "t.txt").write_text(table)
    report = _import(cli, tmp_path / "t.txt")
    result = json.loads((tmp_path / "r.json").read_text())
    assert report["exits"] == {name: one["count"] for name, one in result["exits"].items()}
    (read,) = report["tables"]
    assert "nanoseconds" in read["layout"] if layout == "columns" else "micro" in read["layout"]
    for row in read["rows"]:
        exit_ = result["exits"][row["name"]]
        assert row["max_ns"] == pytest.approx(exit_["max_ns"], abs=10)
    assert cli("run", scenario, "--perf-table", "wdie").returncode == 2
