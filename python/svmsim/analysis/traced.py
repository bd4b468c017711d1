"""Results of a campaign with their events, for what only events tell."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from svmsim.result import Result
    from svmsim.table import ResultTable

__all__ = ["traced_results"]


def traced_results(table: ResultTable) -> list[Result]:
    """Return the results of the runs that did not fail, each with its events.

    Raises:
        UserError: no events were kept, or the table is in memory alone.
    """
    runs = table.runs.filter(status="ok").select("run").collect()["run"]
    return [table.result(run) for run in runs]
