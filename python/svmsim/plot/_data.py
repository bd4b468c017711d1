"""Numbers of results for pictures: runs with the label of their configuration, values by name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from svmsim._render import value_text
from svmsim.analysis.intervals import mean_intervals
from svmsim.errors import UserError, problem
from svmsim.events import Events
from svmsim.result import Result
from svmsim.table import ResultTable
from svmsim.table.metrics import metric_unit
from svmsim.table.paths import value_at

Results = ResultTable | Mapping[str, Result] | Sequence[Result] | Result
By = str | Sequence[str] | None

BUSY = "busy_pct"
"""A metric that only pictures have: the share of the pCPUs' time in guest, host or polling."""


@dataclass(frozen=True)
class Chosen:
    """Results as a table, and each run's configuration."""

    table: ResultTable
    labels: pl.DataFrame
    """Frame of run, label; in the order of runs."""
    results: list[tuple[str, Result]]
    """The results with their labels; empty when they came as a table."""

    @cached_property
    def configurations(self) -> list[str]:
        """The labels, in the order in which they come first."""
        return self.labels["label"].unique(maintain_order=True).to_list()

    @cached_property
    def runs(self) -> dict[str, int]:
        """How many runs each configuration has."""
        return dict(self.labels.group_by("label").len().iter_rows())

    def rows(self, table: str) -> pl.DataFrame:
        """Return a table with the label of each row's run; without failed runs."""
        labels = self.labels.lazy()
        return labels.join(self.table.scan(table), on="run", maintain_order="left_right").collect()

    def values(self, metric: str) -> dict[str, list[float]]:
        """Return the values of a metric by configuration; empty lists where no run has one.

        Raises:
            UserError: there is no such metric.
        """
        if metric == BUSY:
            share = 100 * pl.col("busy_ns") / (pl.col("busy_ns") + pl.col("idle_ns"))
            frame = self.table.runs.select("run", share.alias("value")).collect()
        else:
            frame = self.table.metric(metric).select("run", "value")
        joined = self.labels.join(frame, on="run", how="left", maintain_order="left")
        found: dict[str, list[float]] = {label: [] for label in self.configurations}
        for label, value in joined.select("label", "value").iter_rows():
            if value is not None and np.isfinite(value):
                found[label].append(float(value))
        return found


def parameters(table: ResultTable, paths: Sequence[str]) -> pl.DataFrame:
    """Return run and each parameter's value, as an object, of the runs that did not fail.

    Raises:
        UserError: a parameter is in none of the runs.
    """
    runs = table.runs.filter(pl.col("status") == "ok").collect()
    columns: dict[str, list[Any]] = {}
    scenarios: dict[int, Any] | None = None
    for path in paths:
        if path in runs.columns and path not in _OWN_COLUMNS:
            columns[path] = runs[path].to_list()
        elif path == "run.seed":
            columns[path] = runs["seed"].to_list()
        else:
            if scenarios is None:
                found = table.configurations.select("configuration", "scenario")
                scenarios = {number: json.loads(text) for number, text in found.iter_rows()}
            values = {number: value_at(scenario, path) for number, scenario in scenarios.items()}
            columns[path] = [values[number] for number in runs["configuration"]]
        if all(value is None for value in columns[path]):
            raise UserError([problem("no such parameter in the results", path=path)])
    frame = runs.select("run")
    return frame.with_columns(
        [pl.Series(path, values, dtype=pl.Object) for path, values in columns.items()]
    )


_OWN_COLUMNS = ("run", "run_id", "configuration", "seed", "status", "error", "failure")


def _labels(table: ResultTable, paths: Sequence[str]) -> pl.DataFrame:
    frame = parameters(table, paths)
    names = [path.rpartition(".")[2] for path in paths]
    if len(set(names)) < len(names):
        names = list(paths)
    columns = [frame[path].to_list() for path in paths]
    texts = [
        ", ".join(
            str(v) if name == "label" else f"{name} = {value_text(v)}"
            for name, v in zip(names, values, strict=True)
        )
        for values in zip(*columns, strict=True)
    ]
    return frame.select("run", label=pl.Series(texts, dtype=pl.String))


def choose(results: Results, by: By) -> Chosen:
    """Return results with the label of their configuration.

    Raises:
        ValueError: there are no results.
        UserError: they have no parameter `by`; or every run failed.
    """
    paths = None if by is None else [by] if isinstance(by, str) else list(by)
    if isinstance(results, ResultTable):
        if paths is None:
            paths = ["label"] if "label" in results.sweep else list(results.sweep)
        if paths:
            labels = _labels(results, paths)
        else:
            labels = parameters(results, []).with_columns(label=pl.lit(results.name or "all runs"))
        if labels.is_empty():
            raise UserError([problem("every run failed", source=str(results.path or ""))])
        return Chosen(results, labels, [])
    given: list[Result]
    if isinstance(results, Result):
        given, names = [results], None
    elif isinstance(results, Mapping):
        given, names = list(results.values()), list(results)
    else:
        given, names = list(results), None
    if not given:
        raise ValueError("no results to show: give at least one")
    table = ResultTable.of(given)
    if paths is None:
        texts = names or [f"run {number}" for number in range(1, len(given) + 1)]
    else:
        texts = _labels(table, paths)["label"].to_list()
    labels = pl.DataFrame({"run": pl.Series(range(len(given)), dtype=pl.UInt32), "label": texts})
    return Chosen(table, labels, list(zip(texts, given, strict=True)))


def grouped(results: Results, by: By) -> dict[str, list[Result]]:
    """Return the single results of each configuration, for what needs their events.

    Raises:
        UserError: the results came as a table without events.
    """
    chosen = choose(results, by)
    singles = chosen.results
    if not singles and chosen.table.has_events:
        singles = [(label, chosen.table.result(run)) for run, label in chosen.labels.iter_rows()]
    if not singles:
        text = "needs results with their events: simulate with run(events=True), or a campaign with"
        raise UserError([problem(f"{text} events = true", path="events")])
    groups: dict[str, list[Result]] = {}
    for label, result in singles:
        groups.setdefault(label, []).append(result)
    return groups


def has_events(results: Results) -> bool:
    """Return whether the events are there of a table, or of some of single results."""
    if isinstance(results, ResultTable):
        return results.has_events
    chosen = choose(results, None)
    return any(result.events is not None for _, result in chosen.results)


def events_of(result: Result) -> Events:
    """Return the events of a result.

    Raises:
        UserError: it was made without.
    """
    if result.events is None:
        text = "needs the events of the run: simulate with run(events=True)"
        raise UserError([problem(text, path="events")])
    return result.events


def unit_of(metric: str) -> str:
    """Return the unit of a metric, or an empty text."""
    return "count" if metric.endswith("count") else metric_unit(metric)


_SPOKEN = {
    "latency.wakeup": "wake-up latency",
    "latency.ipi": "IPI latency",
    BUSY: "pCPU time not idle",
    "busy_ns": "CPU time burnt",
}


def spoken(metric: str, scale_unit: str | None = None) -> str:
    """Return a metric's name and unit for an axis: `wake-up latency p99 (ns)`."""
    unit = unit_of(metric) if scale_unit is None else scale_unit
    head, _, last = metric.rpartition(".")
    if head.startswith("exits.") and last == "count":
        return f"{head.removeprefix('exits.')} exits"
    if metric in _SPOKEN:
        text = _SPOKEN[metric]
    elif head in _SPOKEN:
        text = f"{_SPOKEN[head]} {last.removesuffix('_ns')}"
    else:
        text = metric
    return f"{text} ({unit})" if unit else text


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % bootstrap interval; the mean alone for a single value."""
    array = np.asarray(values, dtype=float)
    mean = float(array.mean())
    if len(array) < 2 or bool(np.all(array == array[0])):
        return mean, mean, mean
    low, high = mean_intervals(array[None, :])
    return mean, float(low[0]), float(high[0])
