"""Halts of a campaign: how they ended, what polling cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from svmsim.analysis.requires import Analysis, requires
from svmsim.analysis.summary import By, keys_of, means, runs_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Halts"]

_COUNTS = ("halt_exits", "halt_attempted_poll", "halt_successful_poll", "halt_wakeup")
_TIMES = ("halt_poll_success_ns", "halt_poll_fail_ns", "halt_wait_ns")
_HISTOGRAMS = ("halt_poll_success_hist", "halt_poll_fail_hist", "halt_wait_hist")


class Halts(Analysis):
    """How halts ended, and what polling cost."""

    @requires(halts=(*_COUNTS, *_TIMES), runs=("status",))
    def df_story(self, by: By = None) -> pl.DataFrame:
        """Return KVM's halt statistics: means over runs, of all vCPUs together.

        Frame of the keys `by`, halt_exits, halt_attempted_poll, halt_successful_poll, halt_wakeup,
        halt_poll_success_ns, halt_poll_fail_ns, halt_wait_ns, success_pct (successful polls of
        those attempted), wasted_pct (polling time that ended in a block).
        """
        keys = keys_of(self._table, by)
        found = means(self._table, "halts", keys, [], [*_COUNTS, *_TIMES])
        polled = pl.col("halt_poll_success_ns") + pl.col("halt_poll_fail_ns")
        shares = (
            ("success_pct", pl.col("halt_successful_poll"), pl.col("halt_attempted_poll")),
            ("wasted_pct", pl.col("halt_poll_fail_ns"), polled),
        )
        return found.with_columns(
            pl.when(whole > 0).then(100 * part / whole).alias(name) for name, part, whole in shares
        )

    @requires(halts=_HISTOGRAMS, runs=("status",))
    def df_lengths(self, by: By = None) -> pl.DataFrame:
        """Return how long polls and waits were, from KVM's logarithmic histograms.

        Frame of the keys, kind (poll_success, poll_fail, wait), from_ns, to_ns, count: the sum over
        runs and vCPUs; empty buckets are left out.
        """
        keys = keys_of(self._table, by)
        rows = runs_of(self._table, keys).join(
            self._table.scan("halts").select("run", *_HISTOGRAMS), on="run", maintain_order="left"
        )
        parts = []
        for name in _HISTOGRAMS:
            kind = name.removeprefix("halt_").removesuffix("_hist")
            counts = pl.col(name).list.eval(pl.element())
            buckets = pl.int_ranges(0, pl.col(name).list.len())
            parts.append(
                rows.select(*keys, pl.lit(kind).alias("kind"), bucket=buckets, count=counts)
                .explode("bucket", "count")
                .group_by(*keys, "kind", "bucket", maintain_order=True)
                .agg(pl.col("count").sum())
                .filter(pl.col("count") > 0)
            )
        power = pl.lit(2, pl.Int64).pow(pl.col("bucket") - 1)
        first = pl.when(pl.col("bucket") == 0).then(0).otherwise(power).cast(pl.Int64)
        last = pl.when(pl.col("bucket") == 0).then(0).otherwise(2 * power - 1).cast(pl.Int64)
        return (
            pl.concat(parts)
            .select(*keys, "kind", first.alias("from_ns"), last.alias("to_ns"), "count")
            .collect()
        )

    @requires(halts=(*_COUNTS, *_TIMES))
    def plot_story(self, by: By = None, **options: Any) -> Figure:
        """Draw how halts ended and what polling cost; see `svmsim.plot.halt_story`."""
        from svmsim import plot

        return plot.halt_story(self._table, by, **options)

    @requires(events=("event", "time_ns"))
    def df_growth(self, by: By = None) -> pl.DataFrame:
        """Return each change of halt_poll_ns; see `svmsim.plot.df_halt_poll_growth`."""
        from svmsim import plot

        return plot.df_halt_poll_growth(self._table, by)

    @requires(events=("event", "time_ns"))
    def plot_growth(self, by: By = None, **options: Any) -> Axes:
        """Draw halt_poll_ns over time; see `svmsim.plot.halt_poll_growth`."""
        from svmsim import plot

        return plot.halt_poll_growth(self._table, by, **options)
