"""Where the validation's own guest programs and task sets lie, and what results say in cycles."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

from svmsim import _core
from svmsim.result import Result

_HERE = Path(__file__).parent


def program(name: str) -> str:
    """Return the path of a guest program of the validation."""
    return str(_HERE / "programs" / f"{name}.toml")


def tasks(name: str) -> str:
    """Return the path of a task set of the validation."""
    return str(_HERE / "tasks" / f"{name}.json")


@cache
def tsc_hz(profile: str) -> float:
    """Return the TSC frequency of a profile."""
    profiles = json.loads(_core.describe())["profiles"]
    return float(next(item["tsc_hz"] for item in profiles if item["name"] == profile))


def cycles(result: Result, ns: float) -> float:
    """Return a time in TSC cycles of the run's host."""
    return ns * tsc_hz(result.scenario["host"]["profile"]) / 1e9
