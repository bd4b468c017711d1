"""Physical CPUs of a campaign: who used them, who waited for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from svmsim.analysis.requires import Analysis, requires
from svmsim.analysis.summary import By, keys_of, means, runs_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["Sched"]

_TIMES = ("guest_ns", "host_ns", "poll_ns", "idle_ns")


class Sched(Analysis):
    """Who used the physical CPUs, and how long vCPUs waited for them."""

    @requires(pcpus=("pcpu", *_TIMES, "context_switches"), runs=("status",))
    def df_pcpus(self, by: By = None, *, each: bool = False) -> pl.DataFrame:
        """Return the time of pCPUs by use: means over runs.

        Frame of the keys, (with `each` pcpu,) guest_ns, host_ns, poll_ns, idle_ns,
        context_switches, and each time's share: guest_pct and so on.
        """
        keys = keys_of(self._table, by)
        rows = ["pcpu"] if each else []
        found = means(self._table, "pcpus", keys, rows, [*_TIMES, "context_switches"])
        total = pl.sum_horizontal(_TIMES)
        return found.with_columns(
            (100 * pl.col(name) / total).alias(name.replace("_ns", "_pct")) for name in _TIMES
        )

    @requires(idle_states=("state", "idle_ns"), runs=("status",))
    def df_idle_states(self, by: By = None) -> pl.DataFrame:
        """Return the time in each idle state: frame of the keys, state, idle_ns (means)."""
        keys = keys_of(self._table, by)
        return means(self._table, "idle_states", keys, ["state"], ["idle_ns"])

    @requires(runs=("status", "runqueue_ns", "cstate_ns", "blocked_ns"))
    def df_waits(self, by: By = None) -> pl.DataFrame:
        """Return how long vCPUs waited: frame of the keys, blocked_ns, runqueue_ns, cstate_ns."""
        keys = keys_of(self._table, by)
        columns = ["blocked_ns", "runqueue_ns", "cstate_ns"]
        runs = runs_of(self._table, keys).join(
            self._table.runs.select("run", *columns), on="run", maintain_order="left"
        )
        if not keys:
            return runs.select(pl.col(columns).mean()).collect()
        return runs.group_by(keys, maintain_order=True).agg(pl.col(columns).mean()).collect()

    @requires(pcpus=_TIMES, runs=("status",))
    def plot_pcpus(self, by: By = None, *, title: str | None = None, **options: Any) -> Axes:
        """Draw the time of pCPUs by use, a bar for each configuration, from `df_pcpus`."""
        from svmsim import plot
        from svmsim.table.table import label_of

        keys = keys_of(self._table, by)
        bars = {
            label_of({key: row[key] for key in keys}).replace(", ", "\n"): {
                name.removesuffix("_ns"): row[name] / 1e6 for name in _TIMES
            }
            for row in self.df_pcpus(by).iter_rows(named=True)
        }
        shown = title or "Time of physical CPUs"
        return plot.stacked_times(bars, ylabel="time of a run (ms)", title=shown, **options)
