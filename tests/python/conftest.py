from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import svmsim as sv

ROOT = Path(__file__).resolve().parents[2]

SMALL = """\
[host]
profile = "turin"
kernel = "6.12"
pcpus = 1

[kvm]
avic = false
idle_hlt = true

[[vm]]
name = "vm0"
vcpus = 1
pin = [0]
apic = "x2apic"

[vm.workload]
kind = "idle_hlt_test"
iterations = 100
"""

Cli = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    """Runs `svmsim ARGUMENTS` in an empty directory and returns the finished process."""

    def run(*arguments: object) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "svmsim", *map(str, arguments)]
        environment = {**os.environ, "COLUMNS": "160", "NO_COLOR": "1"}
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )

    return run


@pytest.fixture
def small_file(tmp_path: Path) -> Path:
    """A scenario file of 100 iterations of idle_hlt_test."""
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


@pytest.fixture
def small(small_file: Path) -> sv.Scenario:
    """That scenario."""
    return sv.Scenario.load(small_file)


@pytest.fixture(scope="session")
def wake_back() -> sv.Scenario:
    """Two pinned vCPUs that wake each other by IPIs: halts, polling, idle pCPUs."""
    return sv.Scenario.from_dict(
        {
            "host": {"pcpus": 2},
            "kvm": {"avic": False, "idle_hlt": False, "halt_poll_ns": 200_000},
            "vm": [
                {
                    "vcpus": 2,
                    "pin": [0, 1],
                    "workload": {"kind": str(ROOT / "examples/programs/wake_back.toml")},
                }
            ],
        }
    )
