from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import svmsim as sv
from conftest import Cli

DATA = Path(__file__).parents[1] / "data" / "trace"
CAPTURES = DATA / "captures"
LAB = Path(__file__).parents[3] / "shared" / "lab"


def _one(name: str) -> Any:
    (path,) = CAPTURES.glob(f"{name}-*")
    outcome = sv.diagnose(path)
    assert len(outcome.captures) == 1
    return outcome.captures[0]


def _texts(capture: Any, subject: str) -> str:
    return "\n".join(finding.text for finding in capture.about(subject))


def test_polling_windows_of_a_recording_of_nothing_else() -> None:
    capture = _one("05")
    (window,) = capture.summary["windows"]["vcpus"]
    us = [ns // 1000 for ns in window["windows_ns"]]
    assert us == [0, 10, 20, 40, 20, 40, 20, 40, 20, 10, 20, 10, 0]
    assert (window["vcpu"], window["grows"], window["shrinks"]) == (0, 6, 6)
    assert (window["max_ns"], window["last_ns"]) == (40_000, 0)
    (finding,) = capture.about("windows")
    assert finding.level == "warning"
    assert "swings" in finding.text


def test_poll_ratios_of_counters() -> None:
    domstats = _one("09").summary["polling"]["statistics"]
    assert domstats["succeeded"] == 457_799
    assert domstats["attempted"] is None
    assert domstats["success_ratio"] is None  # never guessed
    assert domstats["fail_ns"] == 34_398_762_096
    text = _texts(_one("09"), "polling")
    assert "39 % of 1,173,865 HLT exits ended while polling" in text
    assert "36 %" in text  # of the polling time was in vain
    debugfs = _one("30").summary["polling"]["statistics"]
    assert debugfs["success_ratio"] == pytest.approx(69359 / 116527)
    assert "60 %" in _texts(_one("30"), "polling")


def test_interrupts_paired_with_their_line() -> None:
    capture = _one("24")
    rows = capture.summary["interrupts"]["injections"]
    assert [(row["vector"], row["cause"]) for row in rows] == [(52, "device_line")] * 2
    first = rows[0]
    # kvm_pic_set_irq at 108229.924118, kvm_inj_virq at 108229.924216.
    assert first["latency"] == 98_000
    lines = next(CAPTURES.glob("24-*")).read_text().splitlines()
    assert "kvm_pic_set_irq: chip 0 pin 4" in lines[first["source_line"] - 1]
    assert "kvm_inj_virq: irq 52" in lines[first["line"] - 1]


def test_livelock_at_one_rip() -> None:
    capture = _one("23")
    (run,) = capture.summary["livelock"]["runs"]
    assert run["exit"] == "EPT_VIOLATION"
    assert run["rip"] == "0xfffff802057fee67"
    assert run["address"] == "0x54200f80"
    assert (run["count"], run["reinjections"], run["vector"]) == (2, 2, 0xD1)
    (finding,) = capture.about("livelock")
    assert finding.level == "warning"
    assert "vector 0xd1" in finding.text
    # Twice at the same place, but without re-injection, and where it went on is not printed.
    perhaps = _one("18").about("livelock")
    assert all(one.level == "info" for one in perhaps)


def test_apicv_is_active_and_why_not() -> None:
    active = _one("39").summary["apicv"]
    assert active["state"] == "active"
    assert (active["accepted_by_hardware"], active["accepted"]) == (168_559, 168_566)
    outcome = sv.diagnose(next(CAPTURES.glob("01-*")))
    for capture in outcome.captures:
        assert capture.summary["apicv"]["state"] == "inactive"
        assert "X2APIC" in capture.summary["apicv"]["likely_inhibit"]
        assert any(f.replay and "kvm.avic=true" in f.replay for f in capture.findings)
        assert all("--capture" in f.replay for f in capture.findings if f.replay)


@pytest.mark.parametrize(
    ("name", "subject", "words"),
    [
        ("02", "dominates", "by count: msr 50 %"),
        ("06", "userspace", "EFAULT"),
        ("08", "dominates", "IO_INSTRUCTION 80 %"),
        ("10", "dominates", "of the time of all other exits MSR_WRITE takes"),
        ("12", "isa", "arm64"),
        ("13", "dominates", "MSR_WRITE 100 %"),
        ("15", "samples", "too few samples"),
        ("17", "userspace", "no in-kernel irqchip"),
        ("19", "dominates", "MSR_WRITE 37.7 %"),
        ("21", "dominates", "INVLPG 72 %"),
        ("32", "userspace", "triple fault"),
        ("33", "halt", "2 wake-ups"),
        ("37", "isa", "riscv"),
    ],
)
def test_other_captures(name: str, subject: str, words: str) -> None:
    outcome = sv.diagnose(next(CAPTURES.glob(f"{name}-*")))
    text = "\n".join(_texts(capture, subject) for capture in outcome.captures)
    assert words in text, [f.text for c in outcome.captures for f in c.findings]


def test_every_capture_is_judged_or_refused() -> None:
    for path in sorted(CAPTURES.glob("*.txt")):
        outcome = sv.diagnose(path)
        assert outcome.refused or any(capture.findings for capture in outcome.captures), path
        json.loads(outcome.to_json())


def test_command(cli: Cli, tmp_path: Path) -> None:
    path = next(CAPTURES.glob("23-*"))
    done = cli("diagnose", path)
    assert done.returncode == 0, done.stderr
    assert "livelock" in done.stdout
    report = json.loads(cli("diagnose", path, "--json", "-").stdout)
    assert report["schema"] == 1
    assert report["captures"][0]["summary"]["livelock"]["runs"][0]["vector"] == 0xD1
    refused = cli("diagnose", next(CAPTURES.glob("36-*")))
    assert refused.returncode == 2
    assert "no line is a trace event" in refused.stderr
    assert cli("diagnose", path, "--capture", "3").returncode == 2
    assert cli("diagnose", tmp_path / "none").returncode == 2
    bare = next(CAPTURES.glob("14-*"))
    numbers = json.loads(cli("diagnose", bare, "--isa", "vmx", "--json", "-").stdout)
    by_count = numbers["captures"][0]["summary"]["dominates"]["by_count"]
    assert by_count[0]["exit"] == "TPR_BELOW_THRESHOLD" or by_count[0]["value"] == 4_966_918


def test_a_recording_with_halts_and_ipis() -> None:
    for name in ("kvm-6.12-d1.txt.gz", "kvm-6.12-d1.dat.gz"):
        (capture,) = sv.diagnose(DATA / name).captures
        assert capture.isa == "svm"
        assert capture.summary["apicv"]["state"] == "inactive"
        halt = capture.summary["halt"]
        assert halt["exits"] > 10
        assert 0 < halt["handling_ns"] < halt["time_ns"]
        assert halt["idle_ns"] + halt["handling_ns"] == pytest.approx(halt["time_ns"])
        shares = capture.summary["busy"]
        assert 0.9 < sum(shares.values()) < 1.1
        assert any(finding.replay for finding in capture.findings)


@pytest.mark.skipif(not LAB.exists(), reason="shared/lab is not here")
@pytest.mark.parametrize(
    ("folder", "subject", "words"),
    [
        ("6.12/c-tscdl-100us-hp200k", "polling", "polls succeed"),
        ("6.12/c-tscdl-100us-hp0", "polling", "no poll succeeds"),
        ("6.12/c-mixed-50us-1of8-1000us-hp200k", "windows", "polling window"),
        ("6.12/g2-pause-spin-same-pcpu", "storm", "spinning"),
        ("6.12/a1-selfipi-x2apic", "apicv", "AVIC is not active"),
        ("6.12/d4-pingpong-halt-same-pcpu", "scheduling", "They share their CPUs"),
    ],
)
def test_lab(folder: str, subject: str, words: str) -> None:
    (capture,) = sv.diagnose(LAB / folder / "trace.txt.gz").captures
    assert words in _texts(capture, subject), [f.text for f in capture.findings]
    assert not [f for f in capture.about("livelock") if f.level == "warning"]
