"""The table that says when HLT exits: `svmsim describe hlt`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from svmsim import _core

if TYPE_CHECKING:
    from rich.console import RenderableType

READINGS = ("raw", "priority", "deliverable")


def hlt_table() -> dict[str, Any]:
    """Run HLT in every setting and under every reading; a fraction of a second."""
    table: dict[str, Any] = json.loads(_core.hlt_table())
    return table


def _cell(values: Sequence[str], all_values: Sequence[str]) -> str:
    return "any" if list(values) == list(all_values) else " or ".join(values)


def _rows(table: Mapping[str, Any]) -> list[list[str]]:
    """The rows as text: an input each, then the readings and a mark where they differ."""
    rows = []
    for row in table["rows"]:
        cells = [_cell(row["when"][one["name"]], one["values"]) for one in table["inputs"]]
        cells += [row[reading] for reading in READINGS]
        rows.append([*cells, "differ" if row["differ"] else ""])
    return rows


def _columns(table: Mapping[str, Any]) -> list[str]:
    return [*(one["name"] for one in table["inputs"]), *READINGS, ""]


def hlt_markdown(table: Mapping[str, Any]) -> str:
    """Return the table as Markdown, with a legend."""
    lines = [
        "<!-- Made by: svmsim describe hlt -o docs/hlt-table.md -->",
        "",
        "# When HLT exits",
        "",
        "| " + " | ".join(_columns(table)) + " |",
        "|" + "---|" * len(_columns(table)),
    ]
    lines += ["| " + " | ".join(cells) + " |" for cells in _rows(table)]
    lines += ["", f"{len(table['rows'])} rows stand for {table['settings']:,} settings.", ""]
    lines += [f"* {one['name']}: {one['meaning']}." for one in table["inputs"]]
    return "\n".join(lines) + "\n"


def hlt_view(table: Mapping[str, Any]) -> RenderableType:
    """Return the table for a terminal; what does not matter is a dot."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    from svmsim._render import facts_view, titled

    rows = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in _columns(table):
        rows.add_column(name, overflow="fold")
    for cells in _rows(table):
        short = ("." if cell == "any" else cell.replace(" or ", "/") for cell in cells)
        rows.add_row(*short, style="bold" if cells[-1] else None)
    legend = facts_view({one["name"]: one["meaning"] for one in table["inputs"]})
    title = "When HLT exits, under each reading of a pending virtual interrupt"
    return Group(titled(title, rows), Text(), legend)
