"""Outputs that cannot be written, names that are no names, inputs that are no files."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import svmsim as sv
from conftest import SMALL, Cli

SVMSIM = f"{sys.executable} -m svmsim"


def _shell(command: str, directory: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "SVMSIM": SVMSIM, "COLUMNS": "160", "NO_COLOR": "1"}
    return subprocess.run(
        ["bash", "-c", command],
        cwd=directory,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize("target", ["/dev/full", "&-"])
@pytest.mark.parametrize(
    "arguments", ["run small.toml", "run small.toml --json -", "describe", "describe --schema"]
)
@pytest.mark.usefixtures("small_file")
def test_standard_output_that_cannot_be_written(
    tmp_path: Path, arguments: str, target: str
) -> None:
    done = _shell(f"$SVMSIM {arguments} >{target}", tmp_path)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("standard output: cannot be written: ")


def test_help_and_version_into_a_full_device(tmp_path: Path) -> None:
    for arguments in ("--help", "--version"):
        done = _shell(f"$SVMSIM {arguments} >/dev/full", tmp_path)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) == 1
        assert "no space left" in done.stderr


@pytest.mark.usefixtures("small_file")
def test_closed_standard_error_and_a_reader_that_leaves_are_quiet(tmp_path: Path) -> None:
    done = _shell("$SVMSIM run none.toml 2>&-", tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert _shell("$SVMSIM run small.toml 2>&-", tmp_path).returncode == 0
    done = _shell("$SVMSIM describe --schema | true", tmp_path)
    assert done.stderr == ""


@pytest.mark.parametrize("command", ["import", "replay"])
def test_capture_has_an_upper_bound(cli: Cli, small_file: Path, command: str) -> None:
    done = cli(command, small_file, "--capture", 2147483648)
    assert done.returncode == 2
    assert "--capture" in done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        r"run $'sm\xff.toml'",
        r"run small.toml --set $'kvm.avic=\xff'",
        r"run small.toml --json $'\xff'",
    ],
)
@pytest.mark.usefixtures("small_file")
def test_argument_that_is_not_utf8(tmp_path: Path, arguments: str) -> None:
    done = _shell(f"LC_ALL=C.UTF-8 $SVMSIM {arguments}", tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "is not UTF-8" in line
    assert r"\udcff" in line


def test_control_characters_are_escaped(cli: Cli, small_file: Path) -> None:
    for arguments in (("run", "\x1b[31mred.toml"), ("run", small_file, "--set", "\x1b[31mred=1")):
        done = cli(*arguments)
        assert done.returncode == 2
        assert "\x1b" not in done.stderr
        assert r"\x1b[31mred" in done.stderr


def test_scenario_with_a_byte_order_mark(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "bom.toml").write_text(SMALL, encoding="utf-8-sig")
    done = cli("run", "bom.toml")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("source", ["/dev/stdin", "<(cat small.toml)", "fifo"])
@pytest.mark.usefixtures("small_file")
def test_scenario_from_a_pipe(tmp_path: Path, source: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    first = "cat small.toml >fifo &" if source == "fifo" else "cat small.toml |"
    done = _shell(f"{first} $SVMSIM run {source} --json -", tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"idle_hlt_test"' in done.stdout


def test_what_is_wrong_in_a_pipe_has_its_key(tmp_path: Path) -> None:
    done = _shell("printf '[kvm]\\navic = 3\\n' | $SVMSIM run /dev/stdin", tmp_path)
    assert done.returncode == 2
    assert "/dev/stdin: kvm.avic: " in done.stderr
    done = _shell("printf '[kvm\\n' | $SVMSIM run /dev/stdin", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("/dev/stdin: is not TOML: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("command", ["import", "replay"])
def test_trace_from_a_pipe_is_refused(tmp_path: Path, command: str) -> None:
    done = _shell(f"echo x | $SVMSIM {command} /dev/stdin", tmp_path)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "no regular file" in line


@pytest.mark.parametrize(
    "arguments",
    [
        "run small.toml --json small.toml",
        "run small.toml --trace ./link.toml",
        "run small.toml --json hard.toml",
        "run small.toml --json new --trace ./new",
        "import small.toml -o small.toml",
        "import small.toml --json link.toml",
        "import small.toml --json new -o new",
        "replay small.toml --trace hard.toml",
    ],
)
def test_output_that_is_an_input_or_another_output(
    cli: Cli, small_file: Path, tmp_path: Path, arguments: str
) -> None:
    (tmp_path / "link.toml").symlink_to(small_file)
    (tmp_path / "hard.toml").hardlink_to(small_file)
    done = cli(*arguments.split())
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert "cannot be written: " in line
    assert "input" in line or "same file" in line
    assert small_file.read_text() == SMALL
    assert not (tmp_path / "new").exists()


def test_output_that_is_a_file_which_the_scenario_names(
    cli: Cli, small_file: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "a.trace"
    assert cli("run", small_file, "--trace", trace).returncode == 0
    workload = tmp_path / "a.workload"
    assert cli("import", trace, "-o", workload).returncode == 0
    (tmp_path / "b.toml").write_text('[[vm]]\npin = [0]\n[vm.workload]\ntrace = "a.workload"\n')
    before = workload.read_bytes()
    done = cli("run", "b.toml", "--json", workload)
    assert (done.returncode, done.stderr) == (2, f"{workload}: cannot be written: it is an input\n")
    with pytest.raises(sv.UserError, match="it is an input"):
        sv.Scenario.load(tmp_path / "b.toml").run(trace=workload)
    assert workload.read_bytes() == before
    assert cli("run", "b.toml", "--json", "new").returncode == 0


def test_devices_may_take_several_outputs(cli: Cli, small_file: Path) -> None:
    done = cli("run", small_file, "--json", "/dev/null", "--trace", "/dev/null")
    assert done.returncode == 0, done.stderr


def test_import_says_that_the_workload_is_incomplete(
    cli: Cli, small_file: Path, tmp_path: Path
) -> None:
    trace = tmp_path / "a.trace"
    assert cli("run", small_file, "--trace", trace).returncode == 0
    with trace.open("a") as file:
        file.write(" vm-1 [000] 1.000002: kvm_exit: vcpu zero reason hlt rip nowhere\n" * 2)
    done = cli("import", trace, "-o", "a.workload")
    assert done.returncode == 2
    assert "a.workload: the workload is incomplete: 2 lines" in done.stderr


def test_interrupt_while_starting(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "svmsim", "--version"],
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
