"""One run of a campaign as a whole result, from the journal."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl

from svmsim.errors import UserError, problem
from svmsim.result import Result

if TYPE_CHECKING:
    from svmsim.table.table import ResultTable

__all__ = ["single_result"]


def single_result(table: ResultTable, run: int) -> Result:
    """Return the result of a run, with events if they were kept.

    Raises:
        UserError: there is no such run, it failed, or the table is in memory alone.
    """
    from svmsim.table.table import EVENTS_DIRECTORY, JOURNAL_DIRECTORY

    path = table.path
    if path is None:
        text = "these results are tables in memory alone; give the campaign a directory"
        raise UserError([problem(text, path="result")])
    rows = table.runs.filter(run=run).collect()
    if rows.is_empty():
        raise UserError([problem(f"there is no run {run}", source=str(path))])
    row = rows.row(0, named=True)
    if row["status"] != "ok":
        text = f"run {run} has no result: {row['error']}"
        raise UserError([problem(text, source=str(path))])
    from svmsim.campaign.journal import read_record, scan

    if not table.records:
        journal = scan(path / JOURNAL_DIRECTORY)
        table.records.update((record.run_id, record) for record in journal if record.status == "ok")
    found = table.records.get(row["run_id"])
    if found is None:
        text = f"the journal has no run {row['run_id']}"
        raise UserError([problem(text, source=str(path / JOURNAL_DIRECTORY))])
    configuration = table.configurations.filter(configuration=row["configuration"])
    scenario = json.loads(configuration["scenario"][0])
    scenario["run"]["seed"] = row["seed"]
    data = read_record(found)["result"]
    result = Result(
        {"schema": data["schema"], "version": data["version"], "scenario": scenario, **data}
    )
    events = path / EVENTS_DIRECTORY / f"{row['run_id']}.parquet"
    if events.is_file():
        from svmsim.campaign.events import events_of

        result.events = events_of(pl.read_parquet(events))
    return result
