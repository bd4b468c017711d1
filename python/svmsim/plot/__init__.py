"""Pictures of results. Beneath each picture stands a `df_` function with the numbers in it.

Each function takes a `ResultTable`, results by label (a mapping), a sequence of them or a single
one, and `by`, the parameter or parameters that tell configurations apart. Those that need the
events of a run take results of `run(events=True)` alone. Pictures are as wide as a column of a
page, in colours that every kind of colour vision tells apart; `save` writes PNG, SVG and PDF, the
same picture to the same bytes.
"""

from __future__ import annotations

from svmsim.plot._calibration import calibration, df_calibration
from svmsim.plot._exits import (
    before_after,
    df_before_after,
    df_exit_counts,
    df_exit_mix,
    df_handling_times,
    exit_counts,
    exit_mix,
    handling_times,
    stacked_times,
)
from svmsim.plot._halts import df_halt_poll_growth, df_halts, halt_poll_growth, halt_story
from svmsim.plot._latency import (
    df_frontier,
    df_ipi_cost,
    df_wakeup_stages,
    frontier,
    ipi_cost,
    wakeup_cdf,
)
from svmsim.plot._style import COLUMN_INCHES, FORMATS, PAGE_INCHES, PALETTE, STYLE, save
from svmsim.plot._sweep import df_heat_map, heat_map
from svmsim.plot._timeline import timeline

__all__ = [
    "COLUMN_INCHES",
    "FORMATS",
    "PAGE_INCHES",
    "PALETTE",
    "STYLE",
    "before_after",
    "calibration",
    "df_before_after",
    "df_calibration",
    "df_exit_counts",
    "df_exit_mix",
    "df_frontier",
    "df_halt_poll_growth",
    "df_halts",
    "df_handling_times",
    "df_heat_map",
    "df_ipi_cost",
    "df_wakeup_stages",
    "exit_counts",
    "exit_mix",
    "frontier",
    "halt_poll_growth",
    "halt_story",
    "handling_times",
    "heat_map",
    "ipi_cost",
    "save",
    "stacked_times",
    "timeline",
    "wakeup_cdf",
]
