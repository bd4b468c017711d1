"""Latencies of a campaign, and the CPU time burnt for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from svmsim.analysis.requires import Analysis, requires
from svmsim.analysis.summary import By, keys_of, runs_of, with_intervals

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from svmsim.table import ResultTable

__all__ = ["VALUES", "Latency", "percentiles"]

Kind = Literal["wakeup", "ipi"]
VALUES = ("mean_ns", "p50_ns", "p99_ns", "max_ns")


def percentiles(table: ResultTable, kind: str, by: By = None) -> pl.DataFrame:
    """Return the latencies of one kind: means over the runs in which it occurred."""
    keys = keys_of(table, by)
    rows = table.scan("latencies").filter((pl.col("kind") == kind) & (pl.col("count") > 0))
    joined = runs_of(table, keys).join(rows, on="run", maintain_order="left")
    found = [pl.col("count").mean(), *(pl.col(name).mean() for name in VALUES)]
    means = joined.group_by(keys, maintain_order=True).agg(found) if keys else joined.select(found)
    p99 = with_intervals(joined.select(*keys, pl.col("p99_ns").alias("value")).collect(), keys)
    result = means.collect()
    return result.with_columns(p99["low"].alias("p99_low_ns"), p99["high"].alias("p99_high_ns"))


class Latency(Analysis):
    """Latencies, and the CPU time burnt for them."""

    @requires(latencies=("kind", "count", *VALUES), runs=("status",))
    def df_percentiles(self, by: By = None, kind: Kind = "wakeup") -> pl.DataFrame:
        """Return the latencies of one kind: means over the runs in which it occurred.

        Frame of the keys `by`, count, mean_ns, p50_ns, p99_ns, max_ns (the mean of the
        longest of each run), p99_low_ns, p99_high_ns (the interval of the mean p99).
        """
        return percentiles(self._table, kind, by)

    @requires(latencies=("kind", "p99_ns"), runs=("status", "busy_ns", "idle_ns"))
    def df_frontier(self, by: By = None, **options: Any) -> pl.DataFrame:
        """Return latency and CPU burnt of each configuration; see `svmsim.plot.df_frontier`."""
        from svmsim import plot

        return plot.df_frontier(self._table, by, **options)

    @requires(latencies=("kind", "p99_ns"), runs=("status", "busy_ns", "idle_ns"))
    def plot_frontier(self, by: By = None, **options: Any) -> Axes:
        """Draw latency against CPU burnt; see `svmsim.plot.frontier`."""
        from svmsim import plot

        return plot.frontier(self._table, by, **options)

    @requires(events=("event", "time_ns"))
    def df_wakeup_stages(self, by: By = None) -> pl.DataFrame:
        """Return the stages of each wake-up; see `svmsim.plot.df_wakeup_stages`."""
        from svmsim import plot

        return plot.df_wakeup_stages(self._table, by)

    @requires(events=("event", "time_ns"))
    def plot_wakeup_stages(self, by: By = None, **options: Any) -> Figure:
        """Draw the distribution of wake-up latency by stage; see `svmsim.plot.wakeup_cdf`."""
        from svmsim import plot

        return plot.wakeup_cdf(self._table, by, **options)
