"""Metrics by name: `exits.hlt.count`, `latency.wakeup.p99_ns`, `halts.halt_wait_ns`, `busy_ns`."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import NoReturn

import polars as pl

from svmsim.errors import UserError, problem
from svmsim.table.schema import table_schema

__all__ = ["common_metrics", "metric_names", "metric_unit", "metric_values"]

Scan = Callable[[str], pl.LazyFrame]

_OVER_VCPUS = {"min_ns": "min", "max_ns": "max"}
_NO_SUM = ("mean_ns", "error_pct")
_RUN_COLUMNS = tuple(
    column.name
    for column in table_schema("runs").columns
    if column.type in ("integer", "real") and column.name not in ("run", "configuration", "seed")
)


def _value_columns(table: str) -> list[str]:
    return [
        column.name
        for column in table_schema(table).columns
        if column.type in ("integer", "real") and column.name not in ("run", "vcpu", "pcpu")
    ]


def metric_names(scan: Scan) -> list[str]:
    """Return every metric of a table of results."""
    exits = scan("exits").select("exit").unique().collect()["exit"].sort().to_list()
    kinds = scan("latencies").select("kind").unique().collect()["kind"].sort().to_list()
    metrics = scan("metrics").select("metric").unique().collect()["metric"].sort().to_list()
    columns = [name for name in _value_columns("exits") if name != "error_pct"]
    names = list(_RUN_COLUMNS)
    names += [f"exits.{name}.{column}" for name in exits for column in columns]
    names += [f"exits.{column}" for column in columns]
    names += [f"latency.{k}.{column}" for k in kinds for column in _value_columns("latencies")]
    names += [
        f"{table}.{c}" for table in ("halts", "vcpus", "pcpus") for c in _value_columns(table)
    ]
    return names + [f"workload.{name}" for name in metrics]


def common_metrics() -> list[str]:
    """Return the metrics that any results can have; of exits those about halts and IPIs."""
    exits = ("hlt", "idle-halt", "msr", "vintr", "interrupt", "avic_incomplete_ipi", "pause", "npf")
    columns = ("count", "time_ns", "mean_ns", "handling_ns")
    names = [*_RUN_COLUMNS, *(f"exits.{name}.{column}" for name in exits for column in columns)]
    names += [f"latency.{k}.{c}" for k in ("wakeup", "ipi") for c in _value_columns("latencies")]
    return names + [f"{t}.{c}" for t in ("halts", "vcpus", "pcpus") for c in _value_columns(t)]


def _refuse(name: str, scan: Scan) -> NoReturn:
    close = difflib.get_close_matches(name, metric_names(scan), n=1, cutoff=0.5)
    text = "the results have no such metric"
    raise UserError([problem(text, path=name, nearest=close[0] if close else "")])


def _of_exits(rows: pl.LazyFrame, column: str) -> pl.LazyFrame:
    if column == "mean_ns":
        mean = pl.col("time_ns").sum() / pl.col("count").sum()
        return rows.group_by("run").agg(mean.alias("value"))
    how = getattr(pl.col(column), _OVER_VCPUS.get(column, "sum"))()
    return rows.group_by("run").agg(how.alias("value"))


def metric_values(name: str, scan: Scan) -> pl.DataFrame:
    """Return `run` and `value` of a metric, in the order of runs; failed runs have none.

    Of several vCPUs and pCPUs counts and times are summed, `min_ns` and `max_ns` are the extremes,
    `mean_ns` is the mean over all. An exit reason that a run does not have counts 0 times.

    Raises:
        UserError: there is no such metric; the error names the nearest.
    """
    first, _, rest = name.partition(".")
    middle, _, column = rest.rpartition(".")
    ok = scan("runs").filter(pl.col("status") == "ok")
    zero = False
    if name in _RUN_COLUMNS:
        value = pl.col(name).cast(pl.Float64).alias("value")
        return ok.select("run", value).drop_nulls("value").sort("run").collect()
    if first == "exits" and column in _value_columns("exits") and column != "error_pct":
        rows = scan("exits")
        if middle:
            rows = rows.filter(pl.col("exit") == middle)
            if rows.limit(1).collect().is_empty():
                _check_exit_name(middle, name, scan)
        found = _of_exits(rows, column)
        zero = column not in (*_NO_SUM, *_OVER_VCPUS)
    elif first in ("latency", "latencies") and column in _value_columns("latencies"):
        rows = scan("latencies").filter(pl.col("kind") == middle)
        if rows.limit(1).collect().is_empty():
            _refuse(name, scan)
        found = rows.select("run", pl.col(column).alias("value"))
        if column != "count":  # of nothing there is no latency
            empty = rows.filter(pl.col("count") == 0).select("run")
            found = found.join(empty, on="run", how="anti")
    elif first in ("halts", "vcpus", "pcpus") and rest in _value_columns(first):
        found = scan(first).group_by("run").agg(pl.col(rest).sum().alias("value"))
    elif first in ("workload", "metrics"):
        rows = scan("metrics").filter(pl.col("metric") == rest)
        if rows.limit(1).collect().is_empty():
            _refuse(name, scan)
        found = rows.select("run", "value")
    else:
        _refuse(name, scan)
    value = pl.col("value").cast(pl.Float64)
    if zero:
        value = value.fill_null(0.0)
    return (
        ok.select("run")
        .join(found, on="run", how="left")
        .with_columns(value)
        .filter(pl.col("value").is_not_null())
        .sort("run")
        .collect()
    )


def _check_exit_name(exit_name: str, metric: str, scan: Scan) -> None:
    """Refuse a name that no exit has; one that merely did not occur counts 0 times."""
    import json

    from svmsim import _core

    known = {item["name"] for item in json.loads(_core.describe())["exit_codes"]}
    if exit_name not in known:
        _refuse(metric, scan)


def metric_unit(name: str) -> str:
    """Return the unit of a metric, empty for a count or when only the workload knows it."""
    last = name.rpartition(".")[2]
    for suffix, unit in (("_ns", "ns"), ("_pct", "%"), ("_cycles", "cycles"), ("_s", "s")):
        if last.endswith(suffix):
            return unit
    return "cycles" if last.startswith("cycles_") else ""
