"""The figures of one capture, brought together from its events and its tables."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

HALTS = ("hlt", "idle-halt", "HLT", "WFx")
"""Exits in which a vCPU waits."""


@dataclass(frozen=True)
class Facts:
    """Counts and times of a capture; times in ns. What is not known is absent, never 0."""

    report: Mapping[str, Any]
    """The import report."""
    raw: Mapping[str, Any]
    """What `_core.diagnosis` found beside it."""
    counts: dict[str, int]
    """Exits by reason."""
    times: dict[str, float]
    """Time from exit to entry by reason; empty when it is not known."""
    statistics: dict[str, int]
    """KVM's counters by their kernel names, summed over the vCPUs that are shown."""
    timed: bool
    """The stamps of the events are of a known unit."""
    command: str
    """The beginning of a replay's command line; empty where the capture cannot be replayed."""

    @classmethod
    def of(cls, one: Mapping[str, Any], path: str, *, several: bool) -> Facts:
        """Build them from a capture of `_core.diagnosis`."""
        report = one["report"]
        counts = dict(report["exits"])
        times = {
            name: float(value["total_ns"]) for name, value in (report["durations"] or {}).items()
        }
        statistics: Counter[str] = Counter()
        for table in report["tables"]:
            if table["content"] == "statistics":
                _add_statistics(statistics, table["rows"])
            elif table["content"] == "exits":
                if not counts:
                    counts |= _row_counts(table["rows"])
                times |= _row_times(table["rows"])
        command = ""
        if report["no_workload"] is None and report["refused"] is None:
            command = f"svmsim replay {shlex.quote(path)}"
            if several:
                command += f" --capture {one['number']}"
        return cls(
            report=report,
            raw=one["facts"],
            counts=counts,
            times=times,
            statistics=dict(statistics),
            timed=report["time_base"] in ("microseconds", "nanoseconds"),
            command=command,
        )

    @property
    def vcpus(self) -> list[dict[str, Any]]:
        """Facts of each vCPU."""
        return list(self.raw["vcpus"])

    def sum(self, *path: str) -> int:
        """Add up one number over the vCPUs."""
        total = 0
        for vcpu in self.vcpus:
            value: Any = vcpu
            for key in path:
                value = value[key]
            total += value
        return total

    @property
    def seconds(self) -> float:
        """Of recorded time, summed over the vCPUs; 0 where it is not known."""
        if not self.timed:
            return 0.0
        return float(sum(vcpu["time"] for vcpu in self.vcpus if vcpu["entries"])) / 1e9

    def replay(self, *settings: str) -> str | None:
        """Return the command that replays the capture with settings changed, or None."""
        if not self.command:
            return None
        return " ".join([self.command, *(f"--set {setting}" for setting in settings)])


def _add_statistics(statistics: Counter[str], rows: list[Mapping[str, Any]]) -> None:
    for row in rows:
        if row.get("count") is not None:
            statistics[row["name"].removesuffix(".sum").removesuffix(".cur")] += row["count"]


def _row_counts(rows: list[Mapping[str, Any]]) -> dict[str, int]:
    """Counts of a table whose names stayed opaque."""
    counts: Counter[str] = Counter()
    for row in rows:
        if row.get("count"):
            counts[row["name"]] += row["count"]
    return dict(counts)


def _row_times(rows: list[Mapping[str, Any]]) -> dict[str, float]:
    times: Counter[str] = Counter()
    for row in rows:
        if row.get("time_ns") is not None:
            times[row["name"]] += row["time_ns"]
        elif row.get("mean_ns") is not None and row.get("count"):
            times[row["name"]] += row["mean_ns"] * row["count"]
    return {name: float(time) for name, time in times.items()}
