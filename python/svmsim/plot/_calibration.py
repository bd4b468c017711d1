"""The picture of a calibration: what was measured beside what the model predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
import polars as pl
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from svmsim.plot._style import (
    OTHER,
    PALETTE,
    STYLE,
    axes_of,
    legend,
    rows_of,
    shortened,
    thousands,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from svmsim.calibration import Calibration


def df_calibration(calibration: Calibration) -> pl.DataFrame:
    """Return what `calibration` draws.

    Returns:
        Frame of label, measured, before and predicted in TSC cycles, and residual_pct.
    """
    named = pl.when(pl.col("kind") == "exit time").then(
        pl.format("{} exit, {}", "name", "workload")
    )
    label = named.otherwise(pl.col("name")).alias("label")
    return calibration.measurements.select(label, "measured", "before", "predicted", "residual_pct")


def calibration(calibration: Calibration, ax: Axes | None = None) -> Axes:
    """Draw each measurement, and what the profile predicted of it before and after the fit.

    Args:
        calibration: from `svmsim.calibrate`.
        ax: where to draw; default: a new figure.
    """
    rows = df_calibration(calibration)
    labels, step = rows_of([shortened(label, 34) for label in rows["label"]])
    with mpl.rc_context(STYLE):
        axes = axes_of(ax, 0.75 + max(0.17, step) * len(labels))
        places = list(range(len(labels)))
        axes.hlines(places, rows["before"], rows["predicted"], color=OTHER, linewidth=0.6, zorder=1)
        axes.plot(
            rows["measured"], places, "|", color="black", markersize=9, label="measured", zorder=3
        )
        axes.plot(
            rows["before"],
            places,
            "o",
            color=PALETTE[1],
            markerfacecolor="white",
            label="predicted before",
            zorder=2,
        )
        axes.plot(rows["predicted"], places, "o", color=PALETTE[0], label="after", zorder=4)
        lowest = min(rows[name].min() for name in ("measured", "before", "predicted"))  # type: ignore[type-var]
        highest = max(rows[name].max() for name in ("measured", "before", "predicted"))  # type: ignore[type-var]
        axes.set_xscale("log")
        axes.set_xlim(float(lowest) / 1.25, float(highest) * 1.25)  # type: ignore[arg-type]
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=7))
        axes.xaxis.set_major_formatter(FuncFormatter(thousands))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_yticks(places, labels)
        axes.set_ylim(len(labels) - 0.4, -0.6)
        axes.grid(axis="x")
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("TSC cycles")
        axes.set_title("Measured and predicted costs of exits")
        legend(axes, ["measured", "predicted before", "predicted after the fit"])
    return axes
