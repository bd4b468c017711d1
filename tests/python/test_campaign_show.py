"""The campaign that the documentation shows, as one command and as one Python file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import svmsim as sv
from conftest import Cli


def test_command_and_script_are_one_campaign(root: Path, tmp_path: Path, cli: Cli) -> None:
    examples = root / "examples" / "campaigns"
    done = cli("sweep", examples / "idle_hlt.toml", "--out", "toml")
    assert done.returncode == 0, done.stderr
    script = examples / "idle_hlt.py"
    assert len(script.read_text().splitlines()) <= 30
    ran = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr
    one = sv.ResultTable.load(tmp_path / "toml")
    other = sv.ResultTable.load(tmp_path / "out" / "idle-hlt")
    assert one.frame().equals(other.frame())
    assert len(one) == 5 * 2 * 2 * 4 * 3
    hlt = one.compare("kvm.idle_hlt", "exits.hlt.count").overall[0]
    assert (hlt.pct, hlt.verdict) == (-100.0, "better")
