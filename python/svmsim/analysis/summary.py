"""Means with intervals, and the keys by which results are put together."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from svmsim.analysis.intervals import mean_intervals
from svmsim.errors import UserError, problem

if TYPE_CHECKING:
    from svmsim.table import ResultTable

__all__ = ["By", "keys_of", "means", "runs_of", "summary", "with_intervals"]

By = str | Sequence[str] | None


def keys_of(table: ResultTable, by: By) -> list[str]:
    """Return the swept parameters to group by; all when `by` is None.

    Raises:
        UserError: one is not swept.
    """
    keys = list(table.sweep) if by is None else [by] if isinstance(by, str) else list(by)
    problems = []
    for key in keys:
        if key not in table.sweep:
            close = difflib.get_close_matches(key, table.sweep, n=1, cutoff=0.4)
            text = "is not swept in these results"
            problems.append(problem(text, path=key, nearest=close[0] if close else ""))
    if problems:
        raise UserError(problems)
    return keys


def runs_of(table: ResultTable, keys: Sequence[str]) -> pl.LazyFrame:
    """Return the run numbers and keys of the runs that did not fail."""
    return table.runs.filter(status="ok").select("run", *keys)


def with_intervals(values: pl.DataFrame, keys: Sequence[str]) -> pl.DataFrame:
    """Return the mean of `value` and its interval for each combination of keys.

    Groups keep the order of their first rows.
    """
    grouped = values.drop_nulls("value")
    if keys:
        groups = grouped.group_by(keys, maintain_order=True).agg("value")
    else:
        groups = grouped.select(pl.col("value").implode())
    lists = [np.asarray(item, dtype=float) for item in groups["value"].to_list()]
    low, high = np.full(len(lists), np.nan), np.full(len(lists), np.nan)
    for size in {len(item) for item in lists}:
        chosen = [index for index, item in enumerate(lists) if len(item) == size]
        if size > 0:
            found = mean_intervals(np.stack([lists[index] for index in chosen]))
            low[chosen], high[chosen] = found
    return groups.select(
        *keys,
        pl.col("value").list.len().cast(pl.Int64).alias("runs"),
        pl.col("value").list.mean().alias("mean"),
        pl.Series("low", low).fill_nan(None),
        pl.Series("high", high).fill_nan(None),
    )


def summary(table: ResultTable, metric: str, by: By = None) -> pl.DataFrame:
    """Return the mean of a metric with its interval for each combination of swept parameters."""
    keys = keys_of(table, by)
    return with_intervals(table.metric(metric).select(*keys, "value"), keys)


def means(
    table: ResultTable, name: str, keys: Sequence[str], rows: Sequence[str], columns: Sequence[str]
) -> pl.DataFrame:
    """Return the means over runs of a table's columns, summed over vCPUs and pCPUs within a run.

    A run that has no row, as of an exit that did not occur, counts as 0.
    """
    runs = runs_of(table, keys)
    counts = runs.group_by(keys).len() if keys else runs.select(pl.len())
    sums = (
        runs.join(table.scan(name), on="run", maintain_order="left")
        .group_by(*keys, *rows, maintain_order=True)
        .agg(pl.col(columns).sum())
    )
    if keys:
        joined = sums.join(counts, on=list(keys), nulls_equal=True, maintain_order="left")
    else:
        joined = sums.join(counts, how="cross")
    return joined.select(*keys, *rows, pl.col(columns) / pl.col("len")).collect()
