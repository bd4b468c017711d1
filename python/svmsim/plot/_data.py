"""Numbers of results for pictures: values by name, configurations, intervals."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from svmsim._render import value_text
from svmsim.errors import UserError, problem
from svmsim.events import Events
from svmsim.result import EXIT_COLUMNS, Result

Results = Mapping[str, Result] | Sequence[Result] | Result

LEVEL = 0.95
"""Of every interval."""
_RESAMPLES = 2000


def value_at(scenario: Mapping[str, Any], path: str) -> Any:
    """Find a parameter of a resolved scenario; `vm.x` is that of the first VM.

    Raises:
        UserError: the scenario has no such parameter.
    """
    value: Any = scenario
    for part in path.split("."):
        if isinstance(value, Sequence) and not isinstance(value, str):
            named = [item for item in value if item.get("name") == part]
            value = named[0] if named else value[0].get(part) if value else None
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            raise UserError([problem("no such parameter in the results", path=path)])
    return value


def label_of(result: Result, by: str | Sequence[str]) -> str:
    """Return the values of parameters as one label: `avic = true, idle_hlt = false`."""
    paths = [by] if isinstance(by, str) else list(by)
    names = [path.rpartition(".")[2] for path in paths]
    texts = [value_text(value_at(result.scenario, path)) for path in paths]
    return ", ".join(f"{name} = {text}" for name, text in zip(names, texts, strict=True))


def labelled(results: Results, by: str | Sequence[str] | None) -> list[tuple[str, Result]]:
    """Return results with the label of their configuration.

    Raises:
        ValueError: there are no results.
        UserError: they have no parameter `by`.
    """
    if isinstance(results, Result):
        results = [results]
    if not results:
        raise ValueError("no results to show: give at least one")
    if isinstance(results, Mapping):
        if by is None:
            return list(results.items())
        results = list(results.values())
    if by is None:
        return [(f"run {index}", result) for index, result in enumerate(results, 1)]
    return [(label_of(result, by), result) for result in results]


def grouped(results: Results, by: str | Sequence[str] | None) -> dict[str, list[Result]]:
    """Return the results of each configuration, in the order in which they come first."""
    groups: dict[str, list[Result]] = {}
    for label, result in labelled(results, by):
        groups.setdefault(label, []).append(result)
    return groups


def events_of(result: Result) -> Events:
    """Return the events of a result.

    Raises:
        UserError: it was made without.
    """
    if result.events is None:
        text = "needs the events of the run: simulate with run(events=True)"
        raise UserError([problem(text, path="events")])
    return result.events


def _named(values: Mapping[str, Any], name: str, path: str, missing: float | None = None) -> float:
    value = values.get(name)
    if isinstance(value, bool | int | float):
        return float(value)
    if name not in values and missing is not None:
        return missing
    close = difflib.get_close_matches(name, [str(key) for key in values], n=1)
    nearest = path[: -len(name)] + close[0] if close and path.endswith(name) else ""
    raise UserError([problem("no such number in the results", path=path, nearest=nearest)])


def _busy_pct(result: Result) -> float:
    pcpus = result.to_dict()["pcpus"]
    busy = sum(cpu["guest_ns"] + cpu["host_ns"] + cpu["poll_ns"] for cpu in pcpus)
    total = busy + sum(sum(cpu["idle_ns"].values()) for cpu in pcpus)
    return 100.0 * busy / total if total else 0.0


def metric(result: Result, path: str) -> float:
    """Return a number of a result by name.

    Names: `exits.hlt.count` (0 for an exit that did not occur), `exits.count` (all exits),
    `latency.wakeup.p99_ns`, `stats.halt_exits` (over all vCPUs), `pcpus.poll_ns` (over all pCPUs),
    `pcpus.busy_pct` (share of the pCPUs' time in guest, host or polling), `workload.iterations`,
    `sim_time_ns`.

    Raises:
        UserError: the result has no such number.
    """
    data = result.to_dict()
    head, _, rest = path.partition(".")
    if head == "exits":
        name, dot, column = rest.rpartition(".")
        if not dot:
            return sum(_named(exit_, column, path) for exit_ in data["exits"].values())
        if column not in EXIT_COLUMNS:
            return _named(dict.fromkeys(EXIT_COLUMNS), column, path)
        return _named(data["exits"].get(name, {}), column, path, 0.0)
    if head == "latency":
        name, _, column = rest.partition(".")
        return _named(data["latency"].get(name, {}), column, path)
    if head == "stats":
        return sum(_named(vcpu["stats"], rest, path) for vcpu in data["vcpus"])
    if head == "pcpus" and rest == "busy_pct":
        return _busy_pct(result)
    if head == "pcpus":
        rows = [{**cpu, "idle_ns": sum(cpu["idle_ns"].values())} for cpu in data["pcpus"]]
        return sum(_named(row, rest, path) for row in rows)
    if head == "workload":
        return _named(result.metrics, rest.removeprefix("metrics."), path)
    return _named(data, path, path)


def unit_of(path: str) -> str:
    """Return the unit that the name of a number ends with, or an empty text."""
    ends = {"_ns": "ns", "_cycles": "cycles", "_pct": "%", "_s": "s", "count": "count"}
    return next((unit for end, unit in ends.items() if path.endswith(end)), "")


def with_unit(text: str, path: str) -> str:
    """Return the label of an axis."""
    unit = unit_of(path)
    return f"{text} ({unit})" if unit else text


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean and its 95 % bootstrap interval; the mean alone for a single value."""
    array = np.asarray(values, dtype=float)
    mean = float(array.mean())
    if len(array) < 2 or bool(np.all(array == array[0])):
        return mean, mean, mean
    random = np.random.default_rng(
        20240819
    )  # any fixed one: the same values give the same interval
    means = random.choice(array, (_RESAMPLES, len(array))).mean(axis=1)
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return mean, float(low), float(high)
