"""What a comparison looks like on a terminal and in a notebook."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from svmsim._html import html_table
from svmsim._render import table, titled
from svmsim.analysis.comparison import Change, Comparison
from svmsim.errors import printable

__all__ = ["comparison_html", "comparison_view"]

_COLOURS = {"better": "green", "worse": "bold red", "same": "dim", "unclear": "", "single": ""}
_HEADINGS = ["metric", "from → to", "old", "new", "change", "95 % interval", "effect", "worse in"]
_MOST_WORSE = 20


def number_text(value: float, unit: str) -> str:
    """Return a value with its unit, times in what suits their size."""
    if unit == "ns":
        for scale, name in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
            if abs(value) >= scale:
                return f"{value / scale:,.3f} {name}"
    text = f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:,.4g}"
    return f"{text} {unit}".rstrip()


def _pct(value: float | None) -> str:
    return "-" if value is None else f"{value:+.1f} %"


def interval_text(change: Change) -> str:
    """Return the interval of a change, in per cent where that can be."""
    if change.pct_low is not None and change.pct_high is not None:
        return f"{change.pct_low:+.1f} .. {change.pct_high:+.1f} %"
    if change.low is None or change.high is None:
        return "-"
    low, high = (number_text(value, change.unit) for value in (change.low, change.high))
    return f"{low} .. {high}"


def _cells(change: Change) -> list[str]:
    if change.effect is None:
        effect = "-"
    else:
        effect = "∞" if math.isinf(change.effect) else f"{abs(change.effect):.1f}"
    return [
        change.metric,
        f"{change.old_value} → {change.new_value}",
        number_text(change.old, change.unit),
        number_text(change.new, change.unit),
        _pct(change.pct) if change.pct is not None else "from 0",
        interval_text(change),
        effect,
        f"{change.worse_pairs} of {change.pairs}",
    ]


def _table(changes: Sequence[Change], title: str, *, where: bool) -> RenderableType:
    last = "where" if where else "verdict"
    body = table([*_HEADINGS, last], left=2)
    body.columns[-1].justify = "left"
    body.columns[-1].no_wrap = not where
    for change in changes:
        cells = [printable(cell) for cell in _cells(change)]
        verdict = Text(change.verdict, _COLOURS[change.verdict])
        body.add_row(*cells, printable(change.where) if where else verdict)
    return titled(printable(title), body)


def _titles(comparison: Comparison) -> tuple[str, str]:
    first = next(iter(comparison.overall), None)
    what = comparison.key or (f"{first.old_value} → {first.new_value}" if first else "comparison")
    pairs = max((change.pairs for change in comparison.overall), default=0)
    alone = f", {comparison.unpaired} runs without a partner" if comparison.unpaired else ""
    return f"{what}: all runs, {pairs} pairs{alone}", f"What got worse ({len(comparison.worse)})"


def comparison_view(comparison: Comparison) -> RenderableType:
    """Return the changes over all runs, and what got worse, for a terminal."""
    overall, worse = _titles(comparison)
    parts: list[RenderableType] = [_table(comparison.overall, overall, where=False), Text()]
    if comparison.worse:
        shown = comparison.worse[:_MOST_WORSE]
        parts.append(_table(shown, worse, where=bool(comparison.changes)))
        if len(comparison.worse) > len(shown):
            parts.append(Text(f"... and {len(comparison.worse) - len(shown)} more", "dim"))
    else:
        parts.append(Text("Nothing got worse.", "bold green"))
    return Group(*parts)


def comparison_html(comparison: Comparison) -> str:
    """Return the changes over all runs, and what got worse, as HTML."""
    overall, worse = _titles(comparison)
    rows = [[*_cells(change), change.verdict] for change in comparison.overall]
    text = html_table([*_HEADINGS, "verdict"], rows, left=2, caption=overall)
    if not comparison.worse:
        return text + "<p>Nothing got worse.</p>"
    rows = [[*_cells(change), change.where] for change in comparison.worse[:_MOST_WORSE]]
    return text + html_table([*_HEADINGS, "where"], rows, left=2, caption=worse)
