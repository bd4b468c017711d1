"""What a swept parameter changed: paired differences with intervals, and what got worse."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from svmsim._render import value_text
from svmsim.errors import UserError
from svmsim.plot._data import LEVEL, parameters, spoken
from svmsim.table import ResultTable

__all__ = ["METRICS", "PRIMARY", "Change", "changes", "got_worse"]

METRICS = (
    "exits.count",
    "exits.hlt.count",
    "handling_ns",
    "polling_ns",
    "busy_ns",
    "latency.wakeup.mean_ns",
    "latency.wakeup.p99_ns",
    "latency.ipi.mean_ns",
)
"""What is compared when a campaign does not say; of all of them less is better."""

PRIMARY = (
    "exits.count",
    "busy_ns",
    "latency.wakeup.mean_ns",
    "latency.wakeup.p99_ns",
    "latency.ipi.mean_ns",
)
"""What decides a verdict; the others say where it comes from."""

_SAME_PCT = 0.5
"""A change below this is called none."""
_RESAMPLES = 2000

_NAMES = {
    "exits.count": "VM exits",
    "exits.hlt.count": "hlt exits",
    "handling_ns": "time handling exits",
    "polling_ns": "time halt polling",
    "busy_ns": "CPU time burnt",
    "latency.wakeup.mean_ns": "wake-up latency, mean",
    "latency.wakeup.p99_ns": "wake-up latency, p99",
    "latency.ipi.mean_ns": "IPI latency, mean",
}


@dataclass(frozen=True, slots=True)
class Change:
    """The change of a metric between two values of a parameter, over runs paired by all else."""

    key: str
    old_value: str
    new_value: str
    metric: str
    where: str
    """What else the runs have in common; empty for all runs."""
    pairs: int
    old: float
    new: float
    low_pct: float
    high_pct: float
    """95 % bootstrap interval of the change in per cent of the old mean."""

    @property
    def name(self) -> str:
        """The metric in words."""
        return _NAMES.get(self.metric, spoken(self.metric, ""))

    @property
    def pct(self) -> float | None:
        """The change in per cent; None from 0."""
        return 100 * (self.new - self.old) / self.old if self.old else None

    @property
    def verdict(self) -> str:
        """`better`, `worse`, `same`, or `unclear` when the interval has both signs."""
        pct = self.pct
        if pct is None:
            return "worse" if self.new > 0 else "same"
        if abs(pct) < _SAME_PCT:
            return "same"
        if self.low_pct <= 0 <= self.high_pct:
            return "unclear"
        return "worse" if pct > 0 else "better"


def _interval(old: np.ndarray, new: np.ndarray) -> tuple[float, float]:
    """The interval of the change of the mean in per cent, over samples of pairs."""
    if old.mean() == 0:
        return 0.0, 0.0
    if len(old) < 2:
        value = float(100 * (new[0] - old[0]) / old[0])
        return value, value
    random = np.random.default_rng(20240819)  # a fixed one: equal values, equal intervals
    chosen = random.integers(0, len(old), (_RESAMPLES, len(old)))
    olds, news = old[chosen].mean(axis=1), new[chosen].mean(axis=1)
    ratios = 100 * (news[olds > 0] / olds[olds > 0] - 1)
    low, high = np.quantile(ratios, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return float(low), float(high)


class _Pairs:
    """Runs of a table by the value of one parameter and by all else."""

    def __init__(self, table: ResultTable, key: str) -> None:
        others = [name for name in table.sweep if name not in (key, "label")]
        frame = parameters(table, [key, *others])
        seeds = dict(table.runs.select("run", "seed").collect().iter_rows())
        self.values = list(dict.fromkeys(frame[key].to_list()))
        if set(map(type, self.values)) == {bool}:
            self.values.sort()
        self.others = others
        self.runs: dict[Any, dict[tuple[Any, ...], int]] = {}
        for run, value, *rest in frame.iter_rows():
            cell = tuple(value_text(item) for item in rest)
            self.runs.setdefault(value, {})[*cell, seeds[run]] = run

    def of(self, old: Any, new: Any) -> list[tuple[tuple[Any, ...], int, int]]:
        """The runs that differ in the parameter alone: all else, old run, new run."""
        first, second = self.runs[old], self.runs[new]
        return [(cell, run, second[cell]) for cell, run in first.items() if cell in second]

    def where(self, cell: Sequence[Any]) -> str:
        names = [name.rpartition(".")[2] for name in self.others]
        return ", ".join(f"{name} = {text}" for name, text in zip(names, cell[:-1], strict=True))


def _values(table: ResultTable, metric: str) -> dict[int, float]:
    try:
        frame = table.metric(metric).select("run", "value").drop_nulls()
    except UserError:  # no run has it, as the hlt exits of guests that never halt
        return {}
    return dict(frame.iter_rows())


def _change(
    key: str,
    ends: tuple[Any, Any],
    metric: str,
    where: str,
    pairs: Iterable[tuple[float, float]],
) -> Change | None:
    array = np.array(list(pairs), dtype=float)
    if array.size == 0 or not array.any():
        return None
    old, new = array[:, 0], array[:, 1]
    low, high = _interval(old, new)
    texts = (value_text(ends[0]), value_text(ends[1]))
    means = (float(old.mean()), float(new.mean()))
    return Change(key, *texts, metric, where, len(array), *means, low, high)


def changes(table: ResultTable, key: str, metrics: Sequence[str] = METRICS) -> list[Change]:
    """Compare every value of a swept parameter with its first one, over all runs."""
    pairs = _Pairs(table, key)
    found = []
    for value in pairs.values[1:]:
        both = pairs.of(pairs.values[0], value)
        for metric in metrics:
            numbers = _values(table, metric)
            known = [(numbers[a], numbers[b]) for _, a, b in both if a in numbers and b in numbers]
            change = _change(key, (pairs.values[0], value), metric, "", known)
            if change is not None:
                found.append(change)
    return found


def got_worse(
    table: ResultTable, key: str, metrics: Sequence[str] = METRICS, most: int = 20
) -> list[Change]:
    """Return what got worse in some configuration, the worst first; all else equal there."""
    pairs = _Pairs(table, key)
    found = []
    by_metric = {metric: _values(table, metric) for metric in metrics}
    for value in pairs.values[1:]:
        cells: dict[tuple[Any, ...], list[tuple[int, int]]] = {}
        for cell, a, b in pairs.of(pairs.values[0], value):
            cells.setdefault(cell[:-1], []).append((a, b))
        for cell, both in cells.items():
            for metric, numbers in by_metric.items():
                known = [(numbers[a], numbers[b]) for a, b in both if a in numbers and b in numbers]
                where = pairs.where((*cell, 0))
                change = _change(key, (pairs.values[0], value), metric, where, known)
                if change is not None and change.verdict == "worse":
                    found.append(change)
    found.sort(key=lambda change: -(change.pct if change.pct is not None else float("inf")))
    return found[:most]
