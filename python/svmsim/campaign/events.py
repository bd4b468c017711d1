"""Events of a run as a table."""

from __future__ import annotations

from pathlib import Path

import polars as pl

__all__ = ["events_frame"]

_LINE = (
    r"^\s*(?P<task>.*)-(?P<pid>\d+)\s+\[(?P<pcpu>\d+)\] \S+ +(?P<seconds>\d+)\.(?P<ns>\d{9}): "
    r"(?P<event>\w+): ?(?P<details>.*)$"
)


def events_frame(trace: Path) -> pl.DataFrame:
    """Return the events of a trace in ftrace's text format, as `Scenario.run(trace=...)` writes."""
    lines = [line for line in trace.read_text().splitlines() if not line.startswith("#")]
    parts = pl.DataFrame({"line": lines}, schema={"line": pl.String}).select(
        pl.col("line").str.extract_groups(_LINE).struct.unnest()
    )
    time = pl.col("seconds").cast(pl.Int64) * 1_000_000_000 + pl.col("ns").cast(pl.Int64)
    return parts.select(
        time.alias("time_ns"),
        pl.col("pcpu").cast(pl.Int64),
        "task",
        pl.col("pid").cast(pl.Int64),
        "event",
        "details",
    )
