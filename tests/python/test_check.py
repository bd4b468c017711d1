"""`svmsim check`: the suite, files of the user, and the tutorial of docs/conformance.md."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import svmsim as sv
from conftest import Cli

ROOT = Path(__file__).resolve().parents[2]
CASE = """[[case]]
name = "mine/hlt"
source = "APM vol. 2, 15.9"
rule = "HLT exits"
vmcb = { intercepts = ["HLT"] }
program = ["hlt"]
expect = { exit = "HLT", rip = "at", nrip = "after" }
"""


def test_the_built_in_suite_passes_and_every_case_has_a_name_of_its_own() -> None:
    result = sv.check()
    assert result
    assert result.failures == []
    assert result.cases == result.passed >= 400
    names = {case.name for case in result.results}
    assert len(names) == result.cases
    assert all(case.source and case.rule for case in result.results)
    assert {"kut/null/vmmcall", "kut/vgif/sequence", "hlt/decision/both"} <= names


def test_list_names_the_cases_and_runs_none(cli: Cli) -> None:
    run = cli("check", "--list", "--filter", "hlt/decision/*")
    assert run.returncode == 0
    lines = run.stdout.splitlines()
    assert "hlt/decision/both  [APM vol. 2, table 15-7]" in lines
    assert all(line.startswith("hlt/decision/") for line in lines)
    assert [item["name"] for item in sv.list_cases(filter="kut/null/*")] == ["kut/null/vmmcall"]


def test_json_has_counts_and_results(cli: Cli, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    run = cli("check", "--filter", "pause/*", "--json", target)
    assert run.returncode == 0
    data = json.loads(target.read_text())
    assert data["cases"] == data["passed"] == len(data["results"]) > 0
    assert data["failed"] == 0
    assert all(item["passed"] is True and item["source"] for item in data["results"])
    assert "expected" not in data["results"][0]


def test_a_failure_shows_expected_against_seen_and_the_rule(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(CASE.replace('exit = "HLT", rip = "at"', 'exit = "IDLE_HLT", rip = "after"'))
    run = cli("check", file)
    assert run.returncode == 1
    assert "FAILED mine/hlt" in run.stdout
    assert "rule:   HLT exits" in run.stdout
    assert "exit  expected IDLE_HLT (a6h), seen HLT (78h)" in run.stdout
    assert "1 case: 0 passed, 1 failed" in run.stdout
    run = cli("check", file, "--json", "-")
    assert run.returncode == 1
    (item,) = json.loads(run.stdout)["results"]
    assert item["passed"] is False
    assert item["expected"] == {"exit": "IDLE_HLT (a6h)", "rip": "0x100001"}
    assert item["seen"] == {"exit": "HLT (78h)", "rip": "0x100000"}


def test_files_of_the_user_and_their_mistakes(tmp_path: Path) -> None:
    good = tmp_path / "good.toml"
    good.write_text(CASE)
    assert sv.check(good).passed == 1
    assert sv.check([str(good)], filter="mine/*").passed == 1
    bad = tmp_path / "bad.toml"
    bad.write_text(CASE.replace('"HLT"]', '"HALT"]').replace('["hlt"]', '["hltt"]'))
    with pytest.raises(sv.CaseError) as caught:
        sv.check([bad, tmp_path / "none.toml"])
    problems = caught.value.problems
    assert [(p["line"], p["nearest"]) for p in problems] == [(5, "HLT"), (6, "hlt"), (0, "")]
    assert str(caught.value).startswith(f"{bad}:5: case[0].vmcb.intercepts[0]: ")
    with pytest.raises(sv.CaseError, match="matches the name of no case"):
        sv.check(good, filter="yours/*")


def test_cases_of_apic_and_avic_in_one_dict() -> None:
    eoi = {
        "name": "mine/eoi",
        "source": "APM vol. 2, 16.6.5",
        "rule": "the highest vector is retired",
        "do": ["write SVR=0x1ff", "accept vector=0x41", "acknowledge", "eoi"],
        "expect": {"effect": "eoi", "retired": 0x41, "isr": []},
    }
    ipi = {
        "name": "mine/ipi",
        "source": "APM vol. 2, 15.29.6.1",
        "rule": "a running target is rung",
        "mode": "xavic",
        "vcpus": 2,
        "do": ["ipi vector=0x41 to=1"],
        "expect": {"requested": [1], "doorbells": [0x100]},
    }
    result = sv.check({"lapic": [eoi], "avic": [ipi]})
    assert [(case.name, case.passed) for case in result.results] == [
        ("mine/eoi", True),
        ("mine/ipi", False),
    ]
    (failure,) = result.failures
    assert failure.expected == {"doorbells": "[0x100]"}
    assert failure.seen == {"doorbells": "[0x101]"}
    with pytest.raises(sv.CaseError, match=r"avic\[0\]\.vcpuss: is not a known key"):
        sv.check({"avic": [{**ipi, "vcpuss": 3}]})


def test_cases_as_a_dict() -> None:
    case = {
        "name": "mine/cpuid",
        "source": "APM vol. 2, 15.9",
        "rule": "CPUID exits at any CPL",
        "vmcb": {"intercepts": ["CPUID"], "cpl": 3},
        "program": ["cpuid"],
        "expect": {"exit": 0x72, "cpl": 3},
    }
    assert sv.check({"case": [case]})
    with pytest.raises(sv.CaseError, match=r"case\[0\]\.program: must be an array"):
        sv.check({"case": [{**case, "program": 5}]})
    with pytest.raises(sv.CaseError, match="must be a dict, list, str, int or bool, not float"):
        sv.check({"case": [{**case, "program": 5.0}]})


def _blocks(language: str) -> list[str]:
    text = (ROOT / "docs" / "conformance.md").read_text()
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def test_the_tutorial_says_what_happens(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first, corrected, table, window, level, broadcast, wakes = _blocks("toml")
    file = tmp_path / "first.toml"
    file.write_text(first)
    shown = next(block for block in _blocks("console") if "FAILED first/sti-hlt" in block)
    run = cli("check", "first.toml")
    assert run.returncode == 1
    assert shown == "$ svmsim check first.toml\n" + run.stdout
    file.write_text("\n".join(first.splitlines()[:-1]) + "\n" + corrected)
    assert sv.check("first.toml").passed == 1
    file.write_text(table)
    assert sv.check("first.toml").passed == 3
    for text in (window, level, broadcast, wakes):
        file.write_text(text)
        assert sv.check("first.toml").passed == 1
    wrong = first.replace("v_irq ", "v_irqq ").replace('"hlt"', '"hlf"').replace('"sti", ', "")
    Path("wrong.toml").write_text(wrong)
    run = cli("check", "wrong.toml")
    assert run.returncode == 2
    shown = next(block for block in _blocks("console") if "wrong.toml" in block)
    assert shown == f"$ svmsim check wrong.toml\n{run.stderr}"


def test_the_python_of_the_tutorial_runs(capsys: pytest.CaptureFixture[str]) -> None:
    (code,) = _blocks("python")
    exec(compile(code, "conformance.md", "exec"), {})
    lines = capsys.readouterr().out.splitlines()
    said = re.findall(r"# (<Step .*|\[.*)$", code, re.MULTILINE)
    assert lines[:3] == said[:3]
    assert lines[4] == said[3]
    assert lines[3] == "IDLE_HLT (a6h) 0x100002 1 False"
    assert lines[5].endswith(" 0 failed")
