"""Pictures of results. Beneath each picture stands a `df_` function with the numbers in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import polars as pl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from svmsim._files import make_directory
from svmsim._render import value_text
from svmsim.errors import UserError, problem
from svmsim.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

__all__ = ["df_exit_counts", "exit_counts", "save", "stacked_times"]

# Okabe and Ito's palette, told apart with every kind of colour vision.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")

STYLE: Any = {
    "font.size": 7.0,
    "axes.titlesize": 7.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.linewidth": 0.4,
    "grid.color": "#dddddd",
    "xtick.major.size": 0.0,
    "ytick.major.width": 0.6,
    "legend.frameon": False,
    "svg.hashsalt": "svmsim",
    "svg.fonttype": "path",
}
COLUMN_INCHES = 3.5
"""Width of a column of a two-column page; pictures are legible at this width."""

Results = Mapping[str, Result] | Sequence[Result] | Result


def _value_at(scenario: Mapping[str, Any], path: str) -> Any:
    """Find a parameter of a resolved scenario; `vm.x` is that of the first VM."""
    value: Any = scenario
    for part in path.split("."):
        if isinstance(value, Sequence) and not isinstance(value, str):
            named = [item for item in value if item.get("name") == part]
            value = named[0] if named else value[0].get(part) if value else None
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            raise UserError([problem("no such parameter in the results", path=path)])
    return value


def _labelled(results: Results, by: str | None) -> list[tuple[str, Result]]:
    if isinstance(results, Result):
        results = [results]
    if not results:
        raise ValueError("no results to count exits of: give at least one")
    if isinstance(results, Mapping):
        if by is None:
            return list(results.items())
        results = list(results.values())
    if by is None:
        return [(f"run {index}", result) for index, result in enumerate(results, 1)]
    name = by.rpartition(".")[2]
    return [(f"{name} = {value_text(_value_at(r.scenario, by))}", r) for r in results]


def df_exit_counts(results: Results, by: str | None = None) -> pl.DataFrame:
    """Count exits by configuration.

    Args:
        results: results by label, a sequence of them, or a single one.
        by: parameter that tells configurations apart (`kvm.idle_hlt`); several results with one
            value are averaged. Without it every result is a configuration.

    Returns:
        Frame of configuration, exit, count (mean over the configuration's results); one row for
        each pair, 0 included; exits in falling order of their total.

    Raises:
        ValueError: there are no results.
        UserError: the results have no parameter `by`.
    """
    counts: dict[str, list[dict[str, int]]] = {}
    for label, result in _labelled(results, by):
        exits = {name: int(values["count"]) for name, values in result.exit_totals.items()}
        counts.setdefault(label, []).append(exits)
    totals: dict[str, int] = {}
    for exits in (one for many in counts.values() for one in many):
        for name, count in exits.items():
            totals[name] = totals.get(name, 0) + count
    names = sorted(totals, key=lambda name: (-totals[name], name))
    rows = [
        (label, name, sum(exits.get(name, 0) for exits in many) / len(many))
        for label, many in counts.items()
        for name in names
    ]
    schema = {"configuration": pl.String, "exit": pl.String, "count": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _axes(ax: Axes | None, height: float) -> Axes:
    if ax is not None:
        return ax
    figure = Figure(figsize=(COLUMN_INCHES, height), dpi=300, layout="constrained")
    FigureCanvasAgg(figure)
    return figure.add_subplot()


def _thousands(value: float, _position: object = None) -> str:
    for scale, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= scale:
            return f"{value / scale:g}{letter}"
    return f"{value:g}"


def exit_counts(
    results: Results,
    by: str | None = None,
    *,
    ax: Axes | None = None,
    title: str | None = None,
    minimum_share: float = 0.001,
) -> Axes:
    """Draw exit counts as bars, grouped by exit reason, a colour for each configuration.

    Args:
        results: as for `df_exit_counts`.
        by: as for `df_exit_counts`.
        ax: where to draw; by default a new figure of column width.
        title: the picture's message; by default what it shows.
        minimum_share: exits rarer than this share of all exits are left out.

    Raises:
        ValueError: there are no results.
        UserError: the results have no parameter `by`.
    """
    frame = df_exit_counts(results, by)
    totals: dict[str, float] = {}
    for _, name, count in frame.iter_rows():
        totals[name] = totals.get(name, 0.0) + count
    limit = minimum_share * sum(totals.values())
    shown = [name for name, count in totals.items() if count >= limit]
    labels = frame["configuration"].unique(maintain_order=True).to_list()
    values = {(c, e): count for c, e, count in frame.iter_rows()}
    with mpl.rc_context(STYLE):
        axes = _axes(ax, 2.4)
        width = 0.8 / max(1, len(labels))
        upright = len(labels) * len(shown) <= 8
        for index, label in enumerate(labels):
            heights = [values[label, name] for name in shown]
            middles = [i - 0.4 + (index + 0.5) * width for i in range(len(shown))]
            bars = axes.bar(
                middles, heights, width * 0.92, label=label, color=PALETTE[index % len(PALETTE)]
            )
            axes.bar_label(
                bars,
                [f"{height:,.0f}" for height in heights],
                fontsize=5.5 if upright else 5.0,
                rotation=0 if upright else 90,
                padding=1.5,
            )
        axes.set_xticks(range(len(shown)), shown)
        axes.set_xlabel("exit reason")
        axes.set_ylabel("VM exits (count)")
        axes.yaxis.set_major_formatter(FuncFormatter(_thousands))
        axes.yaxis.set_major_locator(MaxNLocator(6))
        axes.margins(y=0.12 if upright else 0.25)
        axes.set_title(title or "VM exits by reason")
        _legend(axes, len(labels))
    return axes


def stacked_times(
    times: Mapping[str, Mapping[str, float]],
    *,
    ylabel: str,
    title: str,
    ax: Axes | None = None,
) -> Axes:
    """Draw one bar for each key of `times`, stacked of its parts, each labelled with its value.

    Args:
        times: parts by bar; bars and parts are drawn in their order. A newline in a key breaks it.
        ylabel: quantity and unit.
        title: the picture's message.
        ax: where to draw; by default a new figure of column width.
    """
    parts = list(dict.fromkeys(part for bar in times.values() for part in bar))
    largest = max((sum(bar.values()) for bar in times.values()), default=0.0)
    with mpl.rc_context(STYLE):
        axes = _axes(ax, 2.6)
        bottoms = [0.0] * len(times)
        for index, part in enumerate(parts):
            heights = [bar.get(part, 0.0) for bar in times.values()]
            colour = PALETTE[index % len(PALETTE)]
            bars = axes.bar(range(len(times)), heights, 0.66, bottoms, label=part, color=colour)
            texts = [f"{height:,.0f}" if height >= 0.04 * largest else "" for height in heights]
            dark = _luminance(colour) < 0.35
            ink = "white" if dark else "black"
            axes.bar_label(bars, texts, label_type="center", fontsize=6, color=ink)
            bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
        for index, total in enumerate(bottoms):
            axes.annotate(
                f"{total:,.0f}",
                (index, total),
                (0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontweight="bold",
            )
        axes.set_xticks(range(len(times)), list(times))
        axes.set_ylabel(ylabel)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.margins(y=0.1)
        axes.set_title(title)
        _legend(axes, len(parts))
    return axes


def _luminance(colour: str) -> float:
    """Return how light a colour looks, 0 to 1, to choose the ink on it."""
    red, green, blue = to_rgb(colour)
    return float(0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2)


def _legend(axes: Axes, entries: int) -> None:
    """Put the legend below the axes, where it covers no bar."""
    axes.figure.legend(loc="outside lower center", ncols=min(entries, 4))


def save(figure: Figure | SubFigure, stem: str | Path) -> list[Path]:
    """Write `stem`.png (300 dots per inch) and `stem`.svg; the same picture gives the same bytes.

    Raises:
        UserError: a file cannot be written.
    """
    root = figure.figure
    assert isinstance(root, Figure)
    base = Path(stem)
    make_directory(base.parent)
    png, svg = base.with_name(base.name + ".png"), base.with_name(base.name + ".svg")
    with mpl.rc_context(STYLE):
        root.savefig(png, dpi=300, metadata={"Software": None})
        root.savefig(svg, metadata={"Date": None, "Creator": None})
    return [png, svg]
