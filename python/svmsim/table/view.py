"""What a table of results looks like on a terminal and in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Group, RenderableType
from rich.text import Text

from svmsim._html import html_table
from svmsim._render import table as text_table
from svmsim._render import titled, value_text
from svmsim.errors import printable

if TYPE_CHECKING:
    from svmsim.table.table import ResultTable

__all__ = ["overview", "table_html", "table_view"]

_MOST_ROWS = 40
_MOST_ERRORS = 10
OVERVIEW = {
    "runs": "runs",
    "exits": "exits",
    "exit_time_ns": "exit time (ms)",
    "busy_ns": "busy (ms)",
    "idle_ns": "idle (ms)",
    "wakeup_p99_ns": "wake-up p99 (us)",
}


def overview(results: ResultTable) -> pl.DataFrame:
    """Return the means over the seeds of each configuration."""
    wakeup = results.scan("latencies").filter((pl.col("kind") == "wakeup") & (pl.col("count") > 0))
    p99 = wakeup.select("run", pl.col("p99_ns").alias("wakeup_p99_ns"))
    means = ("exits", "exit_time_ns", "busy_ns", "idle_ns", "wakeup_p99_ns")
    return (
        results.runs.join(p99, on="run", how="left")
        .group_by("configuration", *results.sweep, maintain_order=True)
        .agg(
            (pl.col("status") == "ok").sum().alias("runs"),
            *(pl.col(name).mean() for name in means),
        )
        .sort("configuration")
        .collect()
    )


def _rows(results: ResultTable) -> tuple[list[str], list[list[str]], int]:
    """Return headings, rows as texts, and how many rows are left out."""
    frame = overview(results)
    scales = {"exit_time_ns": 1e6, "busy_ns": 1e6, "idle_ns": 1e6, "wakeup_p99_ns": 1e3}
    names = [*results.sweep, *OVERVIEW]
    rows = []
    for row in frame.head(_MOST_ROWS).iter_rows(named=True):
        cells = [value_text(row[name]) for name in results.sweep]
        for name in OVERVIEW:
            value = row[name]
            if value is None:
                cells.append("-")
            elif name in scales:
                cells.append(f"{value / scales[name]:,.3f}")
            else:
                cells.append(f"{value:,.0f}")
        rows.append(cells)
    return [OVERVIEW.get(name, name) for name in names], rows, frame.height - len(rows)


def _status(results: ResultTable) -> str:
    counts = results.runs.group_by("status").agg(pl.len()).collect()
    parts = dict(counts.iter_rows())
    return ", ".join(f"{count:,} {status}" for status, count in sorted(parts.items()))


def table_view(results: ResultTable) -> RenderableType:
    """Return the means of each configuration, and what failed, for a terminal."""
    headings, rows, left_out = _rows(results)
    body = text_table(headings, left=len(results.sweep))
    for cells in rows:
        body.add_row(*(printable(cell) for cell in cells))
    title = f"{results.name}: {_status(results)} (means over seeds)"
    parts: list[RenderableType] = [titled(printable(title), body)]
    if left_out:
        parts.append(Text(f"... and {left_out:,} more configurations", "dim"))
    failures = results.failures
    for row in failures.head(_MOST_ERRORS).iter_rows(named=True):
        what = row["error"] or f"the workload failed: {row['failure']}"
        where = ", ".join(f"{name}={value_text(row[name])}" for name in results.sweep)
        line = f"run {row['run']} ({where}, seed={row['seed']}): {row['status']}: {what}"
        parts.append(Text(printable(line), "red"))
    if failures.height > _MOST_ERRORS:
        parts.append(Text(f"... and {failures.height - _MOST_ERRORS} more failures", "red"))
    return Group(*parts)


def table_html(results: ResultTable) -> str:
    """Return the means of each configuration, and what failed, as HTML."""
    headings, rows, left_out = _rows(results)
    caption = f"{results.name}: {_status(results)} (means over seeds)"
    text = html_table(headings, rows, left=len(results.sweep), caption=caption)
    if left_out:
        text += f"<p>... and {left_out:,} more configurations</p>"
    failures = results.failures
    if not failures.is_empty():
        names = ["run", "seed", "status", "error", "failure"]
        cells: list[list[Any]] = [
            [value_text(value) for value in row]
            for row in failures.select(names).head(_MOST_ERRORS).iter_rows()
        ]
        caption = f"{failures.height} failures"
        text += html_table(names, cells, left=len(names), caption=caption)
    return text
