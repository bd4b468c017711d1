from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import SMALL, Cli

WRONG = """\
[host]
profile = "turin"
pcpus = 2
kernel = "6.11"
hz = "fast"

[kvm]
avic = 3
idle_hltt = true
halt_poll_ns = -5

[[vm]]
name = "vm0"
vcpus = 2
pin = [0, 7]

[vm.workload]
kind = "idle_hlt_tset"

[run]
duration = "5 parsecs"
"""


def _check_user_error(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    assert lines
    return lines


def test_every_problem_of_a_scenario_at_once(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text(WRONG)
    lines = _check_user_error(cli("run", "wrong.toml"))
    for line, path in (
        (4, "host.kernel"),
        (5, "host.hz"),
        (8, "kvm.avic"),
        (9, "kvm.idle_hltt"),
        (10, "kvm.halt_poll_ns"),
        (15, "pin"),
        (18, "kind"),
        (21, "run.duration"),
    ):
        found = [text for text in lines if text.startswith(f"wrong.toml:{line}: ")]
        assert len(found) == 1, (line, path, lines)
        assert path in found[0]
    assert len(lines) == 8
    (unknown,) = (text for text in lines if "idle_hltt" in text)
    assert unknown.endswith("(did you mean kvm.idle_hlt?)")
    (kind,) = (text for text in lines if "idle_hlt_tset" in text)
    assert "did you mean idle_hlt_test?" in kind


def test_overrides_and_file_are_wrong_together(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "wrong.toml").write_text("[kvm]\nidle_htl = true\n")
    lines = _check_user_error(
        cli("run", "wrong.toml", "--set", "kvm.avik=true", "--set", "host.hz=-1")
    )
    assert any(line.startswith("wrong.toml:2: ") for line in lines)
    assert any("avik" in line and "--set" in line for line in lines)
    assert any("host.hz" in line for line in lines)


@pytest.mark.parametrize(
    "override", ["kvm.idle_hlt", "=true", "kvm.idle_hlt=maybe", "kvm=1", "vm.vm9.vcpus=1", "a..b=1"]
)
def test_broken_override(cli: Cli, small_file: Path, override: str) -> None:
    lines = _check_user_error(cli("run", small_file, "--set", override))
    assert "--set" in lines[0]


def test_toml_syntax_error_has_a_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "broken.toml").write_text("[kvm]\nidle_hlt = \n")
    lines = _check_user_error(cli("run", "broken.toml"))
    assert lines[0].startswith("broken.toml:2")


def test_missing_scenario_names_the_nearest_file(cli: Cli, small_file: Path) -> None:
    (line,) = _check_user_error(cli("run", small_file.with_name("smal.toml")))
    assert "no such file" in line
    assert f"did you mean {small_file}?" in line


def test_scenario_that_is_a_directory_or_no_text(cli: Cli, tmp_path: Path) -> None:
    (line,) = _check_user_error(cli("run", tmp_path))
    assert "is a directory" in line
    (tmp_path / "binary.toml").write_bytes(b"[kvm]\n\xff\xfe\n")
    (line,) = _check_user_error(cli("run", "binary.toml"))
    assert line.startswith("binary.toml:2: ")


def test_missing_profile(cli: Cli, tmp_path: Path) -> None:
    text = SMALL.replace('"turin"', '"my/profile.toml"')
    (tmp_path / "profile.toml").write_text(text)
    lines = _check_user_error(cli("run", "profile.toml"))
    assert any(line.startswith("profile.toml:2: ") and "profile" in line for line in lines)


@pytest.mark.parametrize(
    "arguments",
    [
        ("nonsense",),
        ("run",),
        ("run", "a.toml", "--sett", "x=1"),
        ("run", "small.toml", "--seed", "x"),
        ("study", "idle-halt", "--out", "o"),
        ("study", "idle-hlt"),
        ("import", "x", "--capture", "-1"),
    ],
)
@pytest.mark.usefixtures("small_file")
def test_usage_errors(cli: Cli, arguments: tuple[str, ...]) -> None:
    _check_user_error(cli(*arguments))


@pytest.mark.parametrize("option", ["--json", "--trace"])
def test_output_that_cannot_be_written(
    cli: Cli, small_file: Path, tmp_path: Path, option: str
) -> None:
    (line,) = _check_user_error(cli("run", small_file, option, tmp_path))
    assert "is a directory" in line
    (line,) = _check_user_error(cli("run", small_file, option, small_file / "below" / "a"))
    assert "cannot write" in line


def test_unreadable_trace_line(cli: Cli, tmp_path: Path) -> None:
    trace = tmp_path / "bad.trace"
    trace.write_text(
        " vm-1 [000] 1.000001: kvm_entry: vcpu 0, rip 0x406a89\n"
        " vm-1 [000] 1.000002: kvm_exit: vcpu zero reason hlt rip nowhere\n"
        " vm-1 [000] 1.000003: kvm_entry: vcpu 0, rip ???\n"
    )
    done = cli("import", trace, "-o", tmp_path / "bad.workload")
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert any(line.startswith(f"{trace}:2") for line in lines)
    assert any(line.startswith(f"{trace}:3") for line in lines)
    assert cli("replay", trace).returncode == 2


def test_no_trace_at_all(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("Dear list,\nhere is my patch.\n")
    done = cli("import", "letter.txt")  # the report of what it holds, and why that is no trace
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("letter.txt: no line is a trace event")


@pytest.mark.parametrize("command", ["import", "replay"])
def test_missing_trace(cli: Cli, command: str) -> None:
    (line,) = _check_user_error(cli(command, "no.trace"))
    assert line.startswith("no.trace: ")
    assert "no such file" in line


def test_unknown_name_to_describe(cli: Cli) -> None:
    (line,) = _check_user_error(cli("describe", "idle_htl"))
    assert "did you mean" in line


def _main_with(statement: str) -> subprocess.CompletedProcess[str]:
    """Runs the command line with `describe` replaced by a statement."""
    code = f"""
import sys
from svmsim import _commands, _core, cli, errors
def broken():
    {statement}
class Core:
    describe = staticmethod(broken)
_commands._core = Core
sys.argv = ["svmsim", "describe"]
cli.main()
"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "error", ["errors.InternalError('IRR empty')", "RuntimeError('IRR empty')"]
)
def test_our_bug_is_status_3_without_traceback(error: str) -> None:
    done = _main_with(f"raise {error}")
    assert done.returncode == 3
    assert "internal error" in done.stderr
    assert "IRR empty" in done.stderr
    assert "Traceback" not in done.stderr


def test_interrupt_is_status_130(tmp_path: Path) -> None:
    path = tmp_path / "long.toml"
    path.write_text(SMALL.replace("iterations = 100", "iterations = 2_000_000_000"))
    command = [sys.executable, "-m", "svmsim", "run", str(path)]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ}
    )
    time.sleep(2)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in stderr
