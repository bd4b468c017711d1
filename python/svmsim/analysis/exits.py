"""VM exits of a campaign."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from svmsim.analysis.requires import Analysis, requires
from svmsim.analysis.summary import By, keys_of, means, runs_of, with_intervals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Exits"]

_SPLIT = ("handling_ns", "polling_ns", "blocked_ns", "runqueue_ns", "cstate_ns")


class Exits(Analysis):
    """What exits there were, and what they cost."""

    @requires(exits=("exit", "count"), runs=("status",))
    def df_counts(self, by: By = None) -> pl.DataFrame:
        """Return the exits of a run by reason: mean over runs, with its interval.

        Frame of the keys `by` (default: all swept parameters), exit, runs, mean, low, high. An exit
        that did not occur in a run counts 0 times there.
        """
        keys = keys_of(self._table, by)
        runs = runs_of(self._table, keys)
        counts = self._table.scan("exits").group_by("run", "exit").agg(pl.col("count").sum())
        names = counts.select("exit").unique().sort("exit")
        values = (
            runs.join(names, how="cross", maintain_order="left_right")
            .join(counts, on=["run", "exit"], how="left", maintain_order="left")
            .select(*keys, "exit", pl.col("count").fill_null(0).alias("value"))
            .collect()
        )
        found = with_intervals(values, [*keys, "exit"])
        total = pl.col("mean").sum().over("exit")
        names_by_total = found.sort(total, descending=True, maintain_order=True)["exit"]
        place = pl.Enum(names_by_total.unique(maintain_order=True))
        order = [pl.struct(keys).rank("dense")] if keys else []
        return found.sort(*order, pl.col("exit").cast(place), maintain_order=True)

    @requires(exits=("exit", "count", "time_ns", *_SPLIT), runs=("status",))
    def df_times(self, by: By = None) -> pl.DataFrame:
        """Return where the time between exit and entry went, by reason: means over runs.

        Frame of the keys, exit, count, time_ns, handling_ns, polling_ns, blocked_ns, runqueue_ns,
        cstate_ns, mean_ns (of one exit).
        """
        keys = keys_of(self._table, by)
        found = means(self._table, "exits", keys, ["exit"], ["count", "time_ns", *_SPLIT])
        return found.with_columns((pl.col("time_ns") / pl.col("count")).alias("mean_ns"))

    @requires(exits=("exit", "count"), runs=("status", "sim_time_ns"))
    def df_rates(self, by: By = None) -> pl.DataFrame:
        """Return exits per second of simulated time, by reason: frame of the keys, exit, per_s."""
        keys = keys_of(self._table, by)
        runs = self._table.runs.filter(status="ok").select("run", "sim_time_ns", *keys)
        seconds = pl.col("sim_time_ns").sum() / 1e9
        totals = runs.group_by(keys).agg(seconds.alias("s")) if keys else runs.select(s=seconds)
        counts = (
            runs.join(self._table.scan("exits"), on="run", maintain_order="left")
            .group_by(*keys, "exit", maintain_order=True)
            .agg(pl.col("count").sum())
        )
        if keys:
            joined = counts.join(totals, on=keys, nulls_equal=True, maintain_order="left")
        else:
            joined = counts.join(totals, how="cross")
        return joined.select(
            *keys, "exit", (pl.col("count") / pl.col("s")).alias("per_s")
        ).collect()

    @requires(exits=("exit", "count"))
    def plot_counts(self, by: By = None, **options: Any) -> Axes:
        """Draw exits by reason; see `svmsim.plot.exit_counts`."""
        from svmsim import plot

        return plot.exit_counts(self._table, by, **options)

    @requires(exits=("exit", "count", "handling_ns", "polling_ns"))
    def plot_mix(self, by: By = None, **options: Any) -> Figure:
        """Draw the mix of exits by count and by CPU time; see `svmsim.plot.exit_mix`."""
        from svmsim import plot

        return plot.exit_mix(self._table, by, **options)

    @requires(events=("event", "time_ns"))
    def plot_handling_times(self, by: By = None, **options: Any) -> Axes:
        """Draw the distribution of handling times; see `svmsim.plot.handling_times`."""
        from svmsim import plot

        return plot.handling_times(self._table, by, **options)

    @requires(events=("event", "time_ns"))
    def df_handling_times(self, by: By = None) -> pl.DataFrame:
        """Return the distribution of handling times; see `svmsim.plot.df_handling_times`."""
        from svmsim import plot

        return plot.df_handling_times(self._table, by)
