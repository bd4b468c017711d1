from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conftest import Cli

TRACE = Path(__file__).parents[1] / "data" / "trace" / "kvm-6.12-d1.txt.gz"


@pytest.fixture
def workload(cli: Cli, tmp_path: Path) -> Path:
    path = tmp_path / "d1.workload"
    done = cli("import", TRACE, "-o", path)
    assert done.returncode == 0, done.stderr
    return path


def _json(cli: Cli, *arguments: str | Path) -> Any:
    done = cli("workload", *arguments, "--json", "-")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_show_repeat_scale_slice_merge(cli: Cli, tmp_path: Path, workload: Path) -> None:
    shown = _json(cli, "show", workload)
    work = [vcpu["guest_work_ns"] for vcpu in shown["vcpus"]]
    assert len(work) == 2
    thrice = _json(cli, "repeat", workload, "3", "-o", tmp_path / "r.gz")
    assert [vcpu["guest_work_ns"] for vcpu in thrice["vcpus"]] == [3 * w for w in work]
    half = _json(cli, "scale", workload, "0.5", "-o", tmp_path / "s.zst")
    assert half["vcpus"][0]["guest_work_ns"] == pytest.approx(work[0] / 2, rel=0.01)
    part = _json(cli, "slice", workload, "--from", "1us", "--vcpu", "1", "-o", tmp_path / "c")
    assert len(part["vcpus"]) == 1
    assert part["vcpus"][0]["guest_work_ns"] < work[1]
    merged = _json(
        cli, "merge", workload, tmp_path / "r.gz", tmp_path / "s.zst", "-o", tmp_path / "m"
    )
    assert [vcpu["vm"] for vcpu in merged["vcpus"]] == [0, 0, 1, 1, 2, 2]
    done = cli("workload", "show", tmp_path / "m")
    assert done.returncode == 0
    assert "vm2/1" in done.stdout
    for file in ("r.gz", "c"):
        assert cli("replay", tmp_path / file).returncode in (0, 1)


def test_mistakes(cli: Cli, tmp_path: Path, workload: Path) -> None:
    assert cli("workload", "repeat", workload, "2", "-o", workload).returncode == 2
    assert cli("workload", "repeat", workload, "0", "-o", tmp_path / "x").returncode == 2
    done = cli("workload", "slice", workload, "--from", "soon", "-o", tmp_path / "x")
    assert done.returncode == 2
    assert "10ms" in done.stderr
    assert cli("workload", "show", TRACE).returncode == 2
    assert cli("workload", "show", tmp_path / "none").returncode == 2
    assert not (tmp_path / "x").exists()
