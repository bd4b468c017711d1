"""From the results of runs to the columns of the tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import polars as pl

from svmsim.table.schema import TABLES, Column, TableSchema, table_schemas

__all__ = ["STATUSES", "TableBuilder", "polars_type", "swept_series"]

STATUSES = ("ok", "failed", "time_limit", "killed")
"""How a run ended; the last two say nothing of the simulation and may be tried again."""

SWEPT = "<parameter>"
_SPLIT = ("handling_ns", "polling_ns", "blocked_ns", "runqueue_ns", "cstate_ns")
_TIMES = ("guest_ns", "host_ns", "poll_ns", "idle_ns")


def polars_type(column: Column) -> pl.DataType:
    """Return the type of a declared column; swept ones have no declared type."""
    if column.name == "run":
        return pl.UInt32()
    types: dict[str, pl.DataType] = {
        "integer": pl.Int64(),
        "unsigned": pl.UInt64(),
        "real": pl.Float64(),
        "text": pl.String(),
        "list of integers": pl.List(pl.Int64()),
    }
    return types[column.type]


def swept_series(name: str, values: Sequence[Any]) -> pl.Series:
    """Return the column of a swept parameter: booleans, integers, reals, or texts for all else."""
    from svmsim._toml import toml_value

    known = [value for value in values if value is not None]
    if all(isinstance(value, bool) for value in known):
        return pl.Series(name, values, dtype=pl.Boolean)
    if all(isinstance(value, int) and not isinstance(value, bool) for value in known):
        return pl.Series(name, values, dtype=pl.Int64)
    if all(isinstance(value, int | float) and not isinstance(value, bool) for value in known):
        return pl.Series(name, [None if v is None else float(v) for v in values], pl.Float64)

    def text(value: Any) -> str | None:
        return value if value is None or isinstance(value, str) else toml_value(name, value)

    return pl.Series(name, [text(value) for value in values], dtype=pl.String)


Row = tuple[Any, ...]


def _getter(names: Sequence[str]) -> Callable[[Mapping[str, Any]], Row]:
    """Return what takes these values out of a mapping, None for those that it does not have."""
    take = itemgetter(*names)

    def get(values: Mapping[str, Any]) -> Row:
        try:
            found = take(values)
        except KeyError:
            return tuple(values.get(name) for name in names)
        return found if len(names) > 1 else (found,)

    return get


def _values(table: str, *keys: str) -> Callable[[Mapping[str, Any]], Row]:
    """Return what takes a row's values, without its keys, which are the table's first columns."""
    names = table_schemas()[table].names
    assert names[: len(keys)] == keys
    return _getter(names[len(keys) :])


_VCPU_KEYS = ("run", "vm", "vcpu")
_RUN_KEYS = ("run", "run_id", "configuration", "seed", "version", "build")


class TableBuilder:
    """Collects runs, in their order, and gives the tables."""

    def __init__(self, sweep: Sequence[str] = ()) -> None:
        self._rows: dict[str, list[Row]] = {name: [] for name in TABLES if name != "events"}
        self._swept: dict[str, list[Any]] = {name: [] for name in sweep}
        self._configuration_swept: dict[str, list[Any]] = {name: [] for name in sweep}
        self._exit = _values("exits", *_VCPU_KEYS, "exit")
        self._halts = _values("halts", *_VCPU_KEYS)
        self._vcpus = _values("vcpus", *_VCPU_KEYS)
        self._latency = _values("latencies", "run", "kind")
        self._pcpu = _values("pcpus", "run")
        self._task = _values("tasks", "run")
        self._inhibit = _values("apicv_inhibits", "run")
        self._advice = _values("advice", "run")
        self._run = _getter(_RUN_KEYS)
        self._timing = _getter(("elapsed_s", "host", "pid"))

    def add_configuration(self, number: int, about: Mapping[str, Any]) -> None:
        """Add a configuration: `label`, `scenario`, `inputs` (texts) and `swept` (values)."""
        row = (number, about["label"], about["scenario"], about["inputs"])
        self._rows["configurations"].append(row)
        for key, value in about["swept"].items():
            self._configuration_swept.setdefault(key, []).append(value)

    def add_run(
        self, run: Mapping[str, Any], swept: Mapping[str, Any], outcome: Mapping[str, Any]
    ) -> None:
        """Add a run.

        Args:
            run: run, run_id, configuration, seed, version, build.
            swept: its values of the swept parameters.
            outcome: status, error, wall and elapsed time, host, pid, and `result` if it has one.
        """
        for key, value in swept.items():
            self._swept.setdefault(key, []).append(value)
        number = run["run"]
        result = outcome.get("result")
        failure = wall_time = sim_time = migrations = busy_reason = None
        if result:
            failure = result["workload"].get("failure") or None
            wall_time, sim_time = result["wall_time_s"], result["sim_time_ns"]
            migrations, busy_reason = result.get("migrations"), result.get("busy_reason")
            self._add_result(number, result)
        about = (outcome["status"], outcome.get("error"), failure, sim_time)
        self._rows["runs"].append((*self._run(run), *about, migrations, busy_reason))
        self._rows["timing"].append((number, wall_time, *self._timing(outcome)))

    def _add_result(self, number: int, result: Mapping[str, Any]) -> None:
        rows = self._rows
        for vcpu in result["vcpus"]:
            keys = (number, vcpu["vm"], vcpu["vcpu"])
            rows["exits"] += [
                (*keys, name, *self._exit(values)) for name, values in vcpu["exits"].items()
            ]
            rows["halts"].append((*keys, *self._halts(vcpu["stats"])))
            rows["vcpus"].append((*keys, *self._vcpus(vcpu["stats"])))
        rows["latencies"] += [
            (number, kind, *self._latency(values)) for kind, values in result["latency"].items()
        ]
        for pcpu in result["pcpus"]:
            idle = pcpu["idle_ns"]
            rows["pcpus"].append((number, *self._pcpu({**pcpu, "idle_ns": sum(idle.values())})))
            index = pcpu["pcpu"]
            rows["idle_states"] += [(number, index, state, time) for state, time in idle.items()]
        for task in result.get("tasks", ()):
            latency = {f"wakeup_{key}": value for key, value in task["wakeup"].items()}
            rows["tasks"].append((number, *self._task({**task, **latency})))
        rows["metrics"] += [
            (number, name, float(value))
            for name, value in result["workload"].get("metrics", {}).items()
            if isinstance(value, int | float) and not isinstance(value, bool)
        ]
        for table, take in (("apicv_inhibits", self._inhibit), ("advice", self._advice)):
            rows[table] += [(number, *take(row)) for row in result.get(table, ())]

    def frames(self) -> dict[str, pl.DataFrame]:
        """Return the tables by name."""
        result: dict[str, pl.DataFrame] = {}
        for name, schema in table_schemas().items():
            if name == "events":
                continue
            if name == "runs":
                result[name] = pl.DataFrame()  # its place; it sums up others
            elif name == "configurations":
                names = ("configuration", "label", "scenario", "inputs")
                columns = _series(schema, names, self._rows[name])
                result[name] = _with_swept(schema, columns, self._configuration_swept)
            else:
                columns = _series(schema, schema.names, self._rows[name])
                result[name] = pl.DataFrame(list(columns.values()))
        result["runs"] = self._runs(result["exits"], result["pcpus"])
        return result

    def _runs(self, exits: pl.DataFrame, pcpus: pl.DataFrame) -> pl.DataFrame:
        schema = table_schemas()["runs"]
        of_result = ("failure", "sim_time_ns", "migrations", "busy_reason")
        names = (*_RUN_KEYS, "status", "error", *of_result)
        columns = _series(schema, names, self._rows["runs"])
        sums = exits.group_by("run").agg(
            pl.col("count").sum().alias("exits"),
            pl.col("time_ns").sum().alias("exit_time_ns"),
            pl.col(_SPLIT).sum(),
        )
        times = pcpus.group_by("run").agg(pl.col(_TIMES).sum())
        found = pl.DataFrame([columns["run"], columns["sim_time_ns"]])
        for part in (sums, times):
            found = found.join(part, on="run", how="left", maintain_order="left")
        counted = [name for name in found.columns if name not in ("run", "sim_time_ns")]
        ended = pl.col("sim_time_ns").is_not_null()
        found = found.with_columns(
            pl.when(ended).then(pl.col(name).fill_null(0)).alias(name) for name in counted
        ).with_columns(busy_ns=pl.sum_horizontal(_TIMES[:3], ignore_nulls=False))
        columns |= {name: found[name] for name in (*counted, "busy_ns")}
        return _with_swept(schema, columns, self._swept)


def _series(schema: TableSchema, names: Sequence[str], rows: Sequence[Row]) -> dict[str, pl.Series]:
    """Return rows as columns of the declared types."""
    types = {column.name: column for column in schema.columns}
    columns: Iterable[Sequence[Any]] = zip(*rows, strict=True) if rows else [()] * len(names)
    return {name: _column(types[name], values) for name, values in zip(names, columns, strict=True)}


def _column(column: Column, values: Sequence[Any]) -> pl.Series:
    if column.type == "list of integers" and values and values[0]:
        width = len(values[0])
        if all(value is not None and len(value) == width for value in values):
            array = np.array(values, dtype=np.int64)  # a hundred times as fast as lists
            return pl.Series(column.name, array).arr.to_list()
    return pl.Series(column.name, values, dtype=polars_type(column))


def _with_swept(
    schema: TableSchema, columns: Mapping[str, pl.Series], swept: Mapping[str, Sequence[Any]]
) -> pl.DataFrame:
    """Put columns in the declared order, with those of swept parameters where they belong."""
    series: list[pl.Series] = []
    for name in schema.names:
        if name == SWEPT:
            series += [swept_series(key, values) for key, values in swept.items()]
        else:
            series.append(columns[name])
    return pl.DataFrame(series)


def undeclared(result: Mapping[str, Any]) -> Iterable[str]:
    """Name what a result has and no table takes, so that a test notices what was forgotten."""
    known = {name: set(schema.names) for name, schema in table_schemas().items()}
    for vcpu in result["vcpus"]:
        for name, values in vcpu["exits"].items():
            yield from (f"exits.{name}.{key}" for key in values if key not in known["exits"])
        statistics = known["halts"] | known["vcpus"]
        yield from (f"stats.{key}" for key in vcpu["stats"] if key not in statistics)
    for kind, values in result["latency"].items():
        yield from (f"latency.{kind}.{key}" for key in values if key not in known["latencies"])
    for pcpu in result["pcpus"]:
        yield from (f"pcpus.{key}" for key in pcpu if key not in known["pcpus"])
    for table in ("apicv_inhibits", "advice"):
        for row in result.get(table, ()):
            yield from (f"{table}.{key}" for key in row if key not in known[table])
    for task in result.get("tasks", ()):
        keys = [*(key for key in task if key != "wakeup"), *(f"wakeup_{k}" for k in task["wakeup"])]
        yield from (f"tasks.{key}" for key in keys if key not in known["tasks"])
    # `halt` is the sum of rows of `exits`.
    known_top = {"schema", "version", "scenario", "sim_time_ns", "wall_time_s", "exits", "halt",
                 "vcpus", "pcpus", "latency", "tasks", "migrations", "busy_reason",
                 "apicv_inhibits", "advice", "workload"}  # fmt: skip
    yield from (key for key in result if key not in known_top)
