from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli

DATA = Path(__file__).parents[1] / "data" / "trace"
CAPTURES = DATA / "captures"


def _report(cli: Cli, *arguments: str | Path, status: int = 0) -> dict[str, Any]:
    done = cli("import", *arguments, "--json", "-")
    assert done.returncode == status, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_text_and_trace_dat_say_the_same(cli: Cli) -> None:
    text = _report(cli, DATA / "kvm-6.12-d1.txt.gz")
    binary = _report(cli, DATA / "kvm-6.12-d1.dat.gz")
    assert binary["format"] == "trace.dat"
    for key in ("isa", "events", "exits", "vcpus", "causes", "wakeups", "polling", "durations"):
        assert binary[key] == text[key], key
    # The pages of the two CPUs do not cover the same time: four interrupts have lost their senders.
    assert text["causes"] == {"ipi": 26, "unknown": 4}


def test_window_cuts_each_vcpu_and_the_workload_with_it(cli: Cli, tmp_path: Path) -> None:
    trace = DATA / "kvm-6.12-d1.txt.gz"
    window = ("--window", "kvm_apic_ipi:vec 65", "kvm_eoi:vector 65")
    whole = _report(cli, trace)
    inside = _report(cli, trace, *window)
    assert 0 < sum(inside["exits"].values()) < sum(whole["exits"].values())
    workload = tmp_path / "a.workload"
    assert _report(cli, trace, *window, "-o", workload)["exits"] == inside["exits"]
    assert workload.read_text().startswith("svmsim-workload 1")
    done = cli("import", trace, "--window", "kvm_pio:at 0x11", "kvm_pio:at 0x12")
    assert done.returncode == 2
    assert "no vCPU has an event kvm_pio:at 0x11" in done.stderr
    assert cli("import", trace, "--window", "kvm_pio", "x").returncode == 2


def test_cut_by_line_and_time(cli: Cli) -> None:
    trace = CAPTURES / "01-idle-hlt-ipi-trace.txt"
    cut = _report(cli, trace, "--from", "line:3", "--to", "line:8")
    assert sum(cut["events"].values()) == 5
    assert cli("import", trace, "--from", "soon").returncode == 2


def test_what_cannot_be_replayed_still_reports(cli: Cli, tmp_path: Path) -> None:
    trace = CAPTURES / "06-gvisor-ept-loop.txt"
    report = _report(cli, trace)
    assert report["refused"] is None
    assert "VMX" in report["no_workload"]
    done = cli("import", trace, "-o", tmp_path / "x")
    assert done.returncode == 2
    assert "VMX" in done.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("12-arm64-perf-kvm.txt", "arm64"),
        ("37-perf-report-new-columns.txt", "riscv"),
        ("36-pv-ipi-vs-avic.txt", "no line is a trace event"),
    ],
)
def test_refused_with_its_reason(cli: Cli, name: str, word: str) -> None:
    report = _report(cli, CAPTURES / name, status=2)
    assert word in report["refused"]
    done = cli("import", CAPTURES / name)
    assert done.returncode == 2
    assert word in done.stderr


def test_several_files_and_bare_numbers(cli: Cli, tmp_path: Path) -> None:
    one = DATA / "kvm-6.12-d1.dat.gz"
    merged = _report(cli, one, one)
    assert len(merged["captures"]) == 1
    assert merged["lines"] == 2 * _report(cli, one)["lines"]
    table = CAPTURES / "14-systemtap-service-time.txt"
    assert _report(cli, table)["exits"]["12"] == 182
    assert _report(cli, table, "--isa", "vmx")["exits"]["HLT"] == 182
    assert cli("import", table, "--isa", "z80").returncode == 2
    damaged = tmp_path / "half.gz"
    packed = gzip.compress((CAPTURES / "01-idle-hlt-ipi-trace.txt").read_bytes())
    damaged.write_bytes(packed[: len(packed) // 2])
    assert cli("import", damaged).returncode == 2
