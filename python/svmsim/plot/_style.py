"""What all pictures share: colours, sizes, intervals of numbers, and how they are written."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from svmsim._files import make_directory

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import SubFigure

# Okabe and Ito's palette, told apart with every kind of colour vision.
PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
"""Beside the colours, for prints without them."""

OTHER = "#999999"
"""The colour of what is grouped together or not the subject."""

STATE_COLOURS = {
    "guest": "#0072B2",
    "host": "#E69F00",
    "exit": "#E69F00",
    "poll": "#D55E00",
    "task": "#009E73",
    "idle": "#e4e4e4",
    "blocked": "#bbbbbb",
    "runqueue": "#CC79A7",
}
"""Of a pCPU's or vCPU's time, the same in every picture."""

STYLE: Any = {
    "font.size": 7.0,
    "text.parse_math": False,  # names come from files
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
    "xtick.minor.size": 0.0,
    "ytick.major.width": 0.6,
    "ytick.minor.size": 0.0,
    "lines.linewidth": 1.1,
    "lines.markersize": 4.0,
    "legend.frameon": False,
    "hatch.linewidth": 0.4,
    "svg.hashsalt": "svmsim",
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
}
COLUMN_INCHES = 3.5
"""Width of a column of a two-column page; pictures are legible at this width."""

PAGE_INCHES = 7.1
"""Width of both columns."""

FORMATS = ("png", "svg", "pdf")

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def axes_of(ax: Axes | None, height: float, width: float = COLUMN_INCHES) -> Axes:
    """Return `ax`, or the axes of a new figure of that many inches."""
    return ax if ax is not None else new_figure(height, width).add_subplot()


def new_figure(height: float, width: float = COLUMN_INCHES) -> Figure:
    """Return an empty figure of that many inches, at most as high as a page."""
    figure = Figure(figsize=(width, min(height, 20.0)), dpi=300, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def thousands(value: float, _position: object = None) -> str:
    """Write a number as ticks show it: 1.5 k, 20 M."""
    for scale, letter in ((1e9, " G"), (1e6, " M"), (1e3, " k")):
        if abs(value) >= scale:
            return f"{value / scale:g}{letter}"
    return f"{value:g}"


def time_unit(values_ns: Sequence[float]) -> tuple[float, str]:
    """Return the unit in which the largest of some times reads well: its length in ns, its name."""
    largest = max((abs(value) for value in values_ns), default=0.0)
    return next(((scale, name) for scale, name in _UNITS if largest >= scale), _UNITS[-1])


def duration(value_ns: float, _position: object = None) -> str:
    """Write a time as ticks show it, with its unit."""
    scale, unit = time_unit([value_ns])
    return f"{value_ns / scale:g} {unit}"


def log_time_axis(axis: Axis, lowest: float, highest: float) -> None:
    """Put ticks at round times on a logarithmic axis, also when it spans little."""
    narrow = highest < 30 * max(lowest, 1e-9)
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,), numticks=7))
    axis.set_major_formatter(FuncFormatter(duration))
    axis.set_minor_locator(NullLocator())


def luminance(colour: str) -> float:
    """Return how light a colour looks, 0 to 1, to choose the ink on it."""
    red, green, blue = to_rgb(colour)
    return float(0.2126 * red**2.2 + 0.7152 * green**2.2 + 0.0722 * blue**2.2)


def ink_on(colour: str) -> str:
    """Return the ink that can be read on a colour."""
    return "white" if luminance(colour) < 0.35 else "black"


def colour_of(index: int) -> str:
    """Return the colour of the series of that number."""
    return PALETTE[index % len(PALETTE)]


_LONGEST = 30


def shortened(text: str, longest: int = _LONGEST) -> str:
    """Return a text with its middle left out when it is long."""
    if len(text) <= longest:
        return text
    return f"{text[: longest // 2]}…{text[len(text) - longest // 2 + 1 :]}"


def rows_of(labels: Sequence[str]) -> tuple[list[str], float]:
    """Return labels for the rows of a picture, broken at their commas, and a row's height."""
    broken = [
        "\n".join(shortened(part) for part in re.split(r"(?<=,) ", label)) for label in labels
    ]
    lines = max((label.count("\n") + 1 for label in broken), default=1)
    return broken, 0.08 + 0.12 * lines


def headline(figure: Figure, text: str) -> None:
    """Put the title of a picture of several axes at its left."""
    figure.suptitle(text, x=0.01, ha="left", fontsize=7.5, fontweight="bold")


def legend(axes: Axes, entries: Sequence[str], handles: Sequence[Any] | None = None) -> None:
    """Put the legend below the axes, where it covers nothing; as many columns as fit its width."""
    figure = axes.figure
    root = figure.figure
    assert isinstance(root, Figure)
    entries = [shortened(entry, 56) for entry in entries]
    fitting = root.get_figwidth() / 0.05  # letters at this size
    widest = max((len(entry) for entry in entries), default=1) + 6
    columns = max(1, min(len(entries), int(fitting // widest), 6))
    if handles is None:
        handles = axes.get_legend_handles_labels()[0]
    figure.legend(handles, entries, loc="outside lower center", ncols=columns)


def save(
    figure: Figure | SubFigure, stem: str | Path, formats: Sequence[str] = ("png", "svg")
) -> list[Path]:
    """Write `stem` with each suffix of `formats`; the same picture gives the same bytes.

    Args:
        figure: what to write.
        stem: path without the suffix; its directory is made.
        formats: some of png (300 dots per inch), svg, pdf.

    Raises:
        UserError: a file cannot be written.
        ValueError: there is no such format.
    """
    unknown = [name for name in formats if name not in FORMATS]
    if unknown:
        raise ValueError(f"pictures are {', '.join(FORMATS)}, not {unknown[0]}")
    root = figure.figure
    assert isinstance(root, Figure)
    base = Path(stem)
    make_directory(base.parent)
    # Without what would tell when and with what it was written.
    metadata: dict[str, dict[str, Any]] = {
        "png": {"Software": None},
        "svg": {"Date": None, "Creator": None},
        "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    }
    files = []
    with mpl.rc_context(STYLE):
        for name in formats:
            file = base.with_name(f"{base.name}.{name}")
            root.savefig(file, dpi=300, metadata=metadata[name])
            files.append(file)
    return files
