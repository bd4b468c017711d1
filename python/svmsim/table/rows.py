"""From the results of runs to the columns of the tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from svmsim.table.schema import Column, TableSchema, table_schemas

__all__ = ["STATUSES", "TableBuilder", "polars_type", "swept_series"]

STATUSES = ("ok", "failed", "time_limit", "killed")
"""How a run ended; the last two say nothing of the simulation and may be tried again."""

Columns = dict[str, list[Any]]

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


def _empty(schema: TableSchema) -> Columns:
    return {name: [] for name in schema.names if name != SWEPT}


class TableBuilder:
    """Collects runs, in their order, and gives the tables."""

    def __init__(self) -> None:
        schemas = table_schemas()
        self._columns = {
            name: _empty(schema) for name, schema in schemas.items() if name != "events"
        }
        self._swept: Columns = {}
        self._configuration_swept: Columns = {}
        self._statistics = [
            (self._columns[table], [n for n in schemas[table].names if n not in _KEYS])
            for table in ("halts", "vcpus")
        ]

    def add_configuration(self, number: int, about: Mapping[str, Any]) -> None:
        """Add a configuration: `label`, `scenario`, `inputs` (texts) and `swept` (values)."""
        columns = self._columns["configurations"]
        columns["configuration"].append(number)
        for name in ("label", "scenario", "inputs"):
            columns[name].append(about[name])
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
        number = run["run"]
        columns = self._columns["runs"]
        for name in ("run", "run_id", "configuration", "seed", "version", "build"):
            columns[name].append(run[name])
        columns["status"].append(outcome["status"])
        columns["error"].append(outcome.get("error"))
        for key, value in swept.items():
            self._swept.setdefault(key, []).append(value)
        result = outcome.get("result")
        timing = self._columns["timing"]
        timing["run"].append(number)
        timing["wall_time_s"].append(result["wall_time_s"] if result else None)
        for name in ("elapsed_s", "host", "pid"):
            timing[name].append(outcome.get(name))
        self._add_sums(columns, result)
        if result:
            self._add_result(number, result)

    @staticmethod
    def _add_sums(columns: Columns, result: Mapping[str, Any] | None) -> None:
        if not result:
            names = ("failure", "sim_time_ns", "exits", "exit_time_ns", *_SPLIT, *_TIMES, "busy_ns")
            for name in names:
                columns[name].append(None)
            return
        columns["failure"].append(result["workload"].get("failure") or None)
        columns["sim_time_ns"].append(result["sim_time_ns"])
        # Of the vCPUs' rows, not of the totals, which are rounded to ns by themselves.
        exits = [item for vcpu in result["vcpus"] for item in vcpu["exits"].values()]
        columns["exits"].append(sum(item["count"] for item in exits))
        columns["exit_time_ns"].append(sum(item["time_ns"] for item in exits))
        for name in _SPLIT:
            columns[name].append(sum(item[name] for item in exits))
        pcpus = result["pcpus"]
        for name in _TIMES[:3]:
            columns[name].append(sum(pcpu[name] for pcpu in pcpus))
        columns["idle_ns"].append(sum(sum(pcpu["idle_ns"].values()) for pcpu in pcpus))
        columns["busy_ns"].append(sum(columns[name][-1] for name in _TIMES[:3]))

    def _add_result(self, number: int, result: Mapping[str, Any]) -> None:
        exits = self._columns["exits"]
        for vcpu in result["vcpus"]:
            vm, index = vcpu["vm"], vcpu["vcpu"]
            for name, values in vcpu["exits"].items():
                for column, cells in exits.items():
                    cells.append(values.get(column))
                exits["run"][-1] = number
                exits["vm"][-1] = vm
                exits["vcpu"][-1] = index
                exits["exit"][-1] = name
            statistics = vcpu["stats"]
            for columns, names in self._statistics:
                columns["run"].append(number)
                columns["vm"].append(vm)
                columns["vcpu"].append(index)
                for name in names:
                    columns[name].append(statistics.get(name))
        latencies = self._columns["latencies"]
        for kind, values in result["latency"].items():
            _append(latencies, {**values, "run": number, "kind": kind})
        pcpus, states = self._columns["pcpus"], self._columns["idle_states"]
        for pcpu in result["pcpus"]:
            idle = pcpu["idle_ns"]
            _append(pcpus, {**pcpu, "run": number, "idle_ns": sum(idle.values())})
            for state, time in idle.items():
                row = {"run": number, "pcpu": pcpu["pcpu"], "state": state, "idle_ns": time}
                _append(states, row)
        metrics = self._columns["metrics"]
        for name, value in result["workload"].get("metrics", {}).items():
            if isinstance(value, int | float) and not isinstance(value, bool):
                _append(metrics, {"run": number, "metric": name, "value": float(value)})
        for table in ("apicv_inhibits", "advice"):
            for row in result.get(table, ()):
                _append(self._columns[table], {**row, "run": number})

    def frames(self) -> dict[str, pl.DataFrame]:
        """Return the tables by name."""
        result = {}
        for name, columns in self._columns.items():
            swept = self._configuration_swept if name == "configurations" else self._swept
            series: list[pl.Series] = []
            for column in table_schemas()[name].columns:
                if column.name == SWEPT:
                    series += [swept_series(key, values) for key, values in swept.items()]
                else:
                    values = columns[column.name]
                    series.append(pl.Series(column.name, values, dtype=polars_type(column)))
            result[name] = pl.DataFrame(series)
        return result


_KEYS = ("run", "vm", "vcpu")


def _append(columns: Columns, row: Mapping[str, Any]) -> None:
    for name, cells in columns.items():
        cells.append(row.get(name))


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
    known_top = {"schema", "version", "scenario", "sim_time_ns", "wall_time_s", "exits", "vcpus",
                 "pcpus", "latency", "apicv_inhibits", "advice", "workload"}  # fmt: skip
    yield from (key for key in result if key not in known_top)
