"""A number over two swept parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.cm import ScalarMappable
from matplotlib.colors import to_hex
from matplotlib.ticker import FuncFormatter, MaxNLocator

from svmsim._render import value_text
from svmsim.errors import UserError, problem
from svmsim.plot._data import Results, choose, parameters, spoken
from svmsim.plot._style import STYLE, axes_of, ink_on, shortened, thousands

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def df_heat_map(results: Results, *, x: str, y: str, value: str) -> pl.DataFrame:
    """Return a number of the results over two parameters.

    Args:
        results: a table of results, results by label, or a sequence of them.
        x: parameter on the horizontal axis (`kvm.halt_poll_ns`).
        y: parameter on the vertical axis.
        value: the number; see `ResultTable.metric`.

    Returns:
        Frame of x, y (as texts, in the order of their values), runs, value (mean).
    """
    cells = _cells(results, x, y, value)
    rows = [
        (value_text(a), value_text(b), len(values), sum(values) / len(values))
        for (a, b), values in sorted(cells.items(), key=lambda cell: tuple(map(_order, cell[0])))
    ]
    schema = {"x": pl.String, "y": pl.String, "runs": pl.Int64, "value": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _cells(results: Results, x: str, y: str, value: str) -> dict[tuple[Any, Any], list[float]]:
    chosen = choose(results, None)
    places = {run: (a, b) for run, a, b in parameters(chosen.table, [x, y]).iter_rows()}
    numbers = chosen.table.metric(value).select("run", "value")
    cells: dict[tuple[Any, Any], list[float]] = {}
    for run, number in numbers.iter_rows():
        if run in places and number is not None:
            cells.setdefault(places[run], []).append(number)
    if not cells:
        raise UserError([problem("no run has a value", path=value)])
    return cells


def _order(value: Any) -> tuple[int, float, str]:
    if isinstance(value, bool | int | float):
        return 0, float(value), ""
    return 1, 0.0, value_text(value)


def heat_map(
    results: Results,
    *,
    x: str,
    y: str,
    value: str,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a number over two parameters, each cell with its value; dark is low.

    Args:
        results: as for `df_heat_map`.
        x: as for `df_heat_map`.
        y: as for `df_heat_map`.
        value: as for `df_heat_map`.
        title: the picture's message.
        ax: where to draw; by default a new figure of column width.
    """
    cells = _cells(results, x, y, value)
    columns, rows = (sorted({key[axis] for key in cells}, key=_order) for axis in (0, 1))
    grid = np.full((len(rows), len(columns)), np.nan)
    for (a, b), numbers in cells.items():
        grid[rows.index(b), columns.index(a)] = sum(numbers) / len(numbers)
    with mpl.rc_context({**STYLE, "axes.grid": False, "axes.spines.left": False}):
        axes = axes_of(ax, 1.1 + 0.32 * len(rows))
        axes.set_facecolor("#f0f0f0")
        image = axes.imshow(grid, cmap="cividis", aspect="auto", interpolation="nearest")
        colours = ScalarMappable(image.norm, image.cmap).to_rgba
        for row, column in np.ndindex(*grid.shape):
            number = float(grid[row, column])
            if np.isnan(number):
                axes.text(column, row, "no run", ha="center", va="center", fontsize=5.5)
                continue
            ink = ink_on(to_hex(tuple(colours(np.array([number]))[0][:3])))
            axes.text(column, row, _short(number), ha="center", va="center", color=ink, fontsize=6)
        axes.set_xticks(range(len(columns)), [shortened(value_text(v), 14) for v in columns])
        axes.set_yticks(range(len(rows)), [shortened(value_text(v), 20) for v in rows])
        axes.tick_params(length=0)
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        figure = axes.figure.figure
        bar = figure.colorbar(image, ax=axes, pad=0.02, aspect=15)
        bar.ax.yaxis.set_major_locator(MaxNLocator(5))
        bar.ax.yaxis.set_major_formatter(FuncFormatter(thousands))
        bar.outline.set_visible(False)
        axes.set_title(title or spoken(value))
    return axes


def _short(number: float) -> str:
    for scale, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(number) >= scale:
            return f"{number / scale:.3g}{letter}"
    return f"{number:.3g}"
