"""What the nested study prints, draws and writes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import polars as pl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from svmsim._files import write_bytes, write_text
from svmsim._render import table, titled
from svmsim.plot._style import COLUMN_INCHES, PALETTE, STYLE
from svmsim.studies import nested
from svmsim.studies._table import markdown

if TYPE_CHECKING:
    from svmsim.studies.nested import Outcome

_LEVELS = {
    "reflected": "from L2, given to L1",
    "handled": "from L2, handled by L0",
    "l1": "of L1 (VMRUN and its own)",
}
_UNITS = {"idle_hlt_test": "iteration", "transactions": "transaction"}
_COLUMNS = ("L1", "idle HLT", "AVIC", *_LEVELS.values(), "all exits", "L0 (ns)", "derived")


def _summary(frame: pl.DataFrame, workload: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for cell in nested.cells():
        if cell.workload != workload:
            continue
        mine = frame.filter(
            (pl.col("workload") == workload)
            & (pl.col("l1") == cell.style)
            & (pl.col("nested_idle_hlt") == cell.mode)
            & (pl.col("avic") == cell.avic)
        )
        levels = {
            level: float(mine.filter(pl.col("level") == level)["count"].sum()) for level in _LEVELS
        }
        judged = mine.drop_nulls("derived")
        equal = bool((judged["count"] == judged["derived"]).all())
        rows.append(
            {
                "style": cell.style,
                "mode": cell.mode,
                "avic": "on" if cell.avic else "off",
                "levels": levels,
                "host_ns": float(mine["host_ns"][0]) if len(mine) else 0.0,
                "verdict": "-" if judged.is_empty() else "equal" if equal else "differs",
            }
        )
    return rows


def _cells(row: dict[str, object]) -> list[str]:
    levels = row["levels"]
    assert isinstance(levels, dict)
    counts = [float(levels[level]) for level in _LEVELS]
    return [
        str(row["style"]),
        str(row["mode"]),
        str(row["avic"]),
        *(f"{count:.2f}" for count in counts),
        f"{sum(counts):.2f}",
        f"{row['host_ns']:,.0f}",
        str(row["verdict"]),
    ]


def view(outcome: Outcome) -> RenderableType:
    """Return the tables for a terminal."""
    parts: list[RenderableType] = []
    for workload, unit in _UNITS.items():
        body = table(list(_COLUMNS), left=3)
        for row in _summary(outcome.table, workload):
            body.add_row(*_cells(row))
        parts += [titled(f"{workload} in L2: exits for each {unit}", body), Text()]
    holds = outcome.holds
    text = "every count is the derived one" if holds else "some counts are not the derived ones"
    parts.append(Text(text, "bold green" if holds else "bold red"))
    return Group(*parts)


def _markdown(outcome: Outcome) -> str:
    text = "# Idle HLT for guests of guests\n\n"
    text += (
        "Exits follow from the rules in docs/nested.md, times from the exits and the costs of the "
    )
    text += "profile turin. No cycle counts of nested guests on AMD are published.\n"
    for workload, unit in _UNITS.items():
        lines = [_cells(row) for row in _summary(outcome.table, workload)]
        text += f"\n## {workload} in L2, for each {unit}\n\n" + markdown(
            list(_COLUMNS), lines, left=3
        )
    return text


def picture(frame: pl.DataFrame) -> Figure:
    """Draw exits by level for each L1 and mode: does the feature pay, and for whom?"""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2 * COLUMN_INCHES, 2.8), dpi=300, layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(1, len(_UNITS))
        for axes, (workload, unit) in zip(panels, _UNITS.items(), strict=True):
            rows = [row for row in _summary(frame, workload) if row["avic"] == "off"]
            labels = [f"{row['style']}\n{row['mode']}" for row in rows]
            base = [0.0] * len(rows)
            for index, (level, label) in enumerate(_LEVELS.items()):
                heights = [float(row["levels"][level]) for row in rows]  # type: ignore[index]
                axes.bar(labels, heights, bottom=base, label=label, color=PALETTE[index])
                base = [low + height for low, height in zip(base, heights, strict=True)]
            for place, (row, top) in enumerate(zip(rows, base, strict=True)):
                note = f"{row['host_ns'] / 1000:.1f} µs"  # type: ignore[operator]
                axes.annotate(note, (place, top), ha="center", va="bottom", fontsize=5)
            axes.set_title(f"{workload} in L2")
            axes.set_ylabel(f"exits to L0 for each {unit}")
            axes.margins(y=0.12)
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(_LEVELS))
    return figure


def save(outcome: Outcome, directory: Path) -> list[Path]:
    """Write everything below `directory`; return the files worth opening."""
    from svmsim import plot

    table_md, table_json = directory / "table.md", directory / "table.json"
    write_text(table_md, _markdown(outcome))
    write_text(table_json, outcome.to_json())
    for name, result in outcome.results.items():
        result.save(directory / "runs" / f"{name}.json")
    buffer = io.BytesIO()
    outcome.table.write_parquet(buffer)
    parquet = directory / "exits.parquet"
    write_bytes(parquet, buffer.getvalue())
    pictures = plot.save(picture(outcome.table), directory / "exits")
    return [table_md, table_json, parquet, *(file for file in pictures if file.suffix == ".png")]
