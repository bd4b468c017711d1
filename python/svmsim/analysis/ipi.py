"""IPIs of a campaign: latency, and the exits that they cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from svmsim.analysis.latency import VALUES, percentiles
from svmsim.analysis.requires import Analysis, requires
from svmsim.analysis.summary import By, keys_of, means

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Ipi"]

_EXITS = ("avic_incomplete_ipi", "avic_unaccelerated_access", "msr", "hypercall", "npf")


class Ipi(Analysis):
    """What IPIs cost: their latency, the exits of sender and target, AVIC's inhibits."""

    @requires(latencies=("kind", "count", *VALUES), runs=("status",))
    def df_latency(self, by: By = None) -> pl.DataFrame:
        """Return the latency from the ICR write to the handler; as `latency.df_percentiles`."""
        return percentiles(self._table, "ipi", by)

    @requires(exits=("exit", "count", "time_ns"), runs=("status",))
    def df_exits(self, by: By = None) -> pl.DataFrame:
        """Return the exits that IPIs can cause: means over runs.

        Frame of the keys, exit (avic_incomplete_ipi, avic_unaccelerated_access, msr, hypercall,
        npf), count, time_ns. Only the first names are IPIs alone: an ICR write of an x2APIC without
        AVIC is one msr exit among others.
        """
        keys = keys_of(self._table, by)
        found = means(self._table, "exits", keys, ["exit"], ["count", "time_ns"])
        return found.filter(pl.col("exit").is_in(_EXITS))

    @requires(apicv_inhibits=("vm", "reason", "count", "time_ns"), runs=("status",))
    def df_inhibits(self, by: By = None) -> pl.DataFrame:
        """Return why AVIC was inhibited: frame of the keys, vm, reason, count, time_ns (means)."""
        keys = keys_of(self._table, by)
        columns = ["count", "time_ns"]
        return means(self._table, "apicv_inhibits", keys, ["vm", "reason"], columns)

    @requires(latencies=("kind", "mean_ns"))
    def df_cost(self, fanout: str, by: By = None, **options: Any) -> pl.DataFrame:
        """Return what an IPI costs by its number of targets; see `svmsim.plot.df_ipi_cost`."""
        from svmsim import plot

        return plot.df_ipi_cost(self._table, fanout=fanout, by=by, **options)

    @requires(latencies=("kind", "mean_ns"))
    def plot_cost(self, fanout: str, by: By = None, **options: Any) -> Axes:
        """Draw what an IPI costs against its number of targets; see `svmsim.plot.ipi_cost`."""
        from svmsim import plot

        return plot.ipi_cost(self._table, fanout=fanout, by=by, **options)
