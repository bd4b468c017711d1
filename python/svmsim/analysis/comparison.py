"""Paired comparisons: what a parameter, or another campaign, changes, and what got worse."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from svmsim._render import value_text
from svmsim.analysis.intervals import LEVEL, mean_intervals, ratio_intervals
from svmsim.errors import UserError, problem
from svmsim.table.metrics import metric_unit, metric_values

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console, ConsoleOptions, RenderResult

    from svmsim.table import ResultTable

__all__ = ["METRICS", "Change", "Comparison", "compare_key", "compare_tables"]

METRICS = (
    "exits",
    "exit_time_ns",
    "handling_ns",
    "polling_ns",
    "busy_ns",
    "latency.wakeup.mean_ns",
    "latency.wakeup.p99_ns",
    "latency.ipi.mean_ns",
    "latency.ipi.p99_ns",
)
"""What is compared when nobody says; of all of them less is better."""
MORE_IS_BETTER = ("guest_ns", "idle_ns", "workload.iterations", "halts.halt_successful_poll")
SAME_PCT = 0.5
"""A change of less is called the same."""

Verdict = Literal["better", "worse", "same", "unclear", "single"]


@dataclass(frozen=True, slots=True)
class Change:
    """The change of one metric, where all else is equal.

    Percentages are of the old mean. An interval is null for a single pair, percentages from 0.
    """

    metric: str
    unit: str
    old_value: str
    new_value: str
    """The two values that are compared, or the names of two campaigns."""
    where: str
    """What else the runs have in common; empty for all runs together."""
    pairs: int
    old: float
    new: float
    difference: float
    low: float | None
    """The bootstrap interval of the mean difference."""
    high: float | None
    pct: float | None
    pct_low: float | None
    pct_high: float | None
    effect: float | None
    """Cohen's d of the paired differences, with Hedges' correction for few pairs; infinite when
    every pair differs by the same, null for a single pair."""
    worse_pairs: int
    """How many pairs got worse."""
    q: float | None
    """Share of false discoveries among the changes that are at least as clear (Benjamini and
    Hochberg, over paired t tests)."""
    verdict: Verdict
    """same: less than 0.5 %; unclear: the interval has both signs; single: one pair alone."""


@dataclass(frozen=True)
class Comparison:
    """What differs between two or more values of a key, or between two campaigns."""

    key: str
    overall: tuple[Change, ...]
    """Over all runs."""
    changes: tuple[Change, ...]
    """For each combination of everything else."""
    unpaired: int
    """Runs that had no partner; they are not compared."""

    @property
    def worse(self) -> list[Change]:
        """What got worse in any combination, the worst first."""
        found = [change for change in self.changes or self.overall if change.verdict == "worse"]
        return sorted(found, key=lambda c: -abs(c.pct) if c.pct is not None else -math.inf)

    @property
    def better(self) -> list[Change]:
        """What got better in any combination, the best first."""
        found = [change for change in self.changes or self.overall if change.verdict == "better"]
        return sorted(found, key=lambda c: -abs(c.pct) if c.pct is not None else -math.inf)

    @property
    def frame(self) -> pl.DataFrame:
        """Frame of all changes, those over all runs first (with an empty `where`)."""
        return _frame([*self.overall, *self.changes])

    def to_json(self) -> str:
        """Return everything as JSON text."""
        data = {
            "key": self.key,
            "level": LEVEL,
            "unpaired": self.unpaired,
            "overall": [_plain(change) for change in self.overall],
            "changes": [_plain(change) for change in self.changes],
            "worse": [_plain(change) for change in self.worse],
        }
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"

    def _repr_html_(self) -> str:
        from svmsim.analysis.comparison_view import comparison_html

        return comparison_html(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from svmsim.analysis.comparison_view import comparison_view

        yield comparison_view(self)

    def __repr__(self) -> str:
        words = ", ".join(
            f"{c.metric} {c.old_value} → {c.new_value} {c.verdict}" for c in self.overall[:4]
        )
        return f"Comparison({self.key}: {words}; {len(self.worse)} got worse)"


def _plain(change: Change) -> dict[str, Any]:
    infinite = change.effect is not None and math.isinf(change.effect)
    return {**asdict(change), "effect": None if infinite else change.effect}


def _frame(changes: Sequence[Change]) -> pl.DataFrame:
    types: dict[str, Any] = {"pairs": pl.Int64, "worse_pairs": pl.Int64}
    texts = ("metric", "unit", "old_value", "new_value", "where", "verdict")
    schema = {
        field.name: types.get(field.name, pl.String if field.name in texts else pl.Float64)
        for field in fields(Change)
    }
    rows = [tuple(asdict(change).values()) for change in changes]
    return pl.DataFrame(rows, schema=schema, orient="row")


def compare_key(
    table: ResultTable,
    key: str,
    metrics: Sequence[str] | None = None,
    baseline: Any = None,
) -> Comparison:
    """Compare the values of a swept parameter with one of them, paired by all else and the seed.

    Raises:
        UserError: the parameter is not swept, has one value alone or not this baseline, or there
            is no such metric.
    """
    import difflib

    if key not in table.sweep:
        close = difflib.get_close_matches(key, table.sweep, n=1, cutoff=0.4)
        text = "is not swept in these results"
        raise UserError([problem(text, path=key, nearest=close[0] if close else "")])
    runs = table.runs.filter(status="ok").select("run", "seed", *table.sweep).collect()
    values = runs[key].unique(maintain_order=True).to_list()
    if baseline is None:
        baseline = (
            min(values) if set(map(type, values)) == {bool} else values[0] if values else None
        )
    if baseline not in values:
        close = difflib.get_close_matches(str(baseline), map(str, values), n=1)
        text = f"no run has the value {value_text(baseline)}"
        raise UserError([problem(text, path=key, nearest=close[0] if close else "")])
    others = [name for name in table.sweep if name != key]
    old = runs.filter(pl.col(key) == baseline)
    pairs = []
    for value in values:
        if value == baseline:
            continue
        new = runs.filter(pl.col(key) == value)
        pairs.append((value_text(baseline), value_text(value), old, new))
    if not pairs:
        text = f"has one value alone, {value_text(baseline)}"
        raise UserError([problem(text, path=key)])
    return _compare(key, pairs, others, _chosen(metrics, [table]), (table, table))


def compare_tables(
    before: ResultTable, after: ResultTable, metrics: Sequence[str] | None = None
) -> Comparison:
    """Compare two campaigns, paired by the parameters that both swept and the seed.

    Raises:
        UserError: there is no such metric, or no run of one has a partner in the other.
    """
    keys = [key for key in before.sweep if key in after.sweep and key != "label"]
    frames = [
        table.runs.filter(status="ok").select("run", "seed", *keys).collect()
        for table in (before, after)
    ]
    for name, frame in zip(("before", "after"), frames, strict=True):
        if frame.select("seed", *keys).is_duplicated().any():
            text = f"several runs of the results {name} have the same seed and swept values"
            raise UserError([problem(text, path=", ".join(keys) or "run.seed")])
    if not frames[0].join(frames[1], on=["seed", *keys], nulls_equal=True).height:
        text = "no run of one has a partner in the other: no seed and swept values are the same"
        raise UserError([problem(text, path=", ".join(keys))])
    names = (before.name, after.name)
    if names[0] == names[1]:
        names = ("before", "after")
    pairs = [(names[0], names[1], frames[0], frames[1])]
    return _compare("", pairs, keys, _chosen(metrics, [before, after]), (before, after))


def _chosen(metrics: Sequence[str] | None, tables: Sequence[ResultTable]) -> dict[str, bool]:
    """Return the metrics with whether they must be there."""
    if metrics is not None:
        return dict.fromkeys([metrics] if isinstance(metrics, str) else metrics, True)
    for table in tables:
        if table.about.get("metrics"):
            return dict.fromkeys(table.about["metrics"], True)
    return dict.fromkeys(METRICS, False)


def _compare(
    key: str,
    pairs: Sequence[tuple[str, str, pl.DataFrame, pl.DataFrame]],
    others: Sequence[str],
    metrics: Mapping[str, bool],
    tables: tuple[ResultTable, ResultTable],
) -> Comparison:
    values = {metric: _values(tables, metric, must) for metric, must in metrics.items()}
    overall: list[Change] = []
    changes: list[Change] = []
    unpaired = 0
    for old_value, new_value, old, new in pairs:
        on = ["seed", *others]
        both = old.rename({"run": "old_run"}).join(
            new.select(pl.col("run").alias("new_run"), *on),
            on=on,
            nulls_equal=True,
            maintain_order="left",
        )
        unpaired += old.height + new.height - 2 * both.height
        for metric, (first, second) in values.items():
            known = both.join(
                first.rename({"run": "old_run", "value": "old"}),
                on="old_run",
                maintain_order="left",
            ).join(
                second.rename({"run": "new_run", "value": "new"}),
                on="new_run",
                maintain_order="left",
            )
            if not known.select(((pl.col("old") != 0) | (pl.col("new") != 0)).any()).item():
                continue  # it did not occur at all
            about = (metric, old_value, new_value)
            lists = known.select(pl.col("old", "new").implode())
            overall += _changes(about, [""], lists["old"], lists["new"])
            if others:
                changes += _by_cell(about, known, others)
    return Comparison(key, tuple(_judged(overall)), tuple(_judged(changes)), unpaired)


def _values(
    tables: tuple[ResultTable, ResultTable], metric: str, must: bool
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return run and value of a metric in both tables; empty where none is and none must be."""
    empty = pl.DataFrame(schema={"run": pl.UInt32, "value": pl.Float64})
    found = []
    for table in dict.fromkeys(tables):
        try:
            found.append(metric_values(metric, table.scan))
        except UserError:
            if must:
                raise
            found.append(empty)
    return found[0], found[-1]


def _by_cell(
    about: tuple[str, str, str], known: pl.DataFrame, others: Sequence[str]
) -> list[Change]:
    """Return the change in every combination of the other parameters."""
    cells = known.group_by(others, maintain_order=True).agg("old", "new")
    shorts = [name.rpartition(".")[2] for name in others]
    names = shorts if len(set(shorts)) == len(shorts) else list(others)
    wheres = [
        ", ".join(f"{n}={value_text(v)}" for n, v in zip(names, values, strict=True))
        for values in cells.select(others).iter_rows()
    ]
    return _changes(about, wheres, cells["old"], cells["new"])


def _changes(
    about: tuple[str, str, str], wheres: Sequence[str], olds: pl.Series, news: pl.Series
) -> list[Change]:
    """Return the changes of several groups of pairs; those of one size are computed together."""
    lengths = olds.list.len().to_numpy()
    found: dict[int, Change] = {}
    for size in np.unique(lengths):
        indices = np.flatnonzero(lengths == size)
        old, new = (
            series.gather(indices).explode().to_numpy().astype(float).reshape(len(indices), size)
            for series in (olds, news)
        )
        numbers = indices.tolist()
        rows = _rows(about, [wheres[index] for index in numbers], old, new)
        found |= dict(zip(numbers, rows, strict=True))
    return [found[index] for index in range(len(wheres))]


def _rows(
    about: tuple[str, str, str],
    wheres: Sequence[str],
    old: NDArray[np.float64],
    new: NDArray[np.float64],
) -> list[Change]:
    """Return the change of each row, whose columns are pairs."""
    metric, old_value, new_value = about
    difference = new - old
    count = old.shape[1]
    low, high = (bound.tolist() for bound in mean_intervals(difference))
    ratio_low, ratio_high = (bound.tolist() for bound in ratio_intervals(old, new))
    sign = -1.0 if metric in MORE_IS_BETTER else 1.0
    worse = (sign * difference > 0).sum(axis=1).tolist()
    effects, p_values = _effects(difference)
    means = zip(
        old.mean(axis=1).tolist(),
        new.mean(axis=1).tolist(),
        difference.mean(axis=1).tolist(),
        strict=True,
    )
    unit = metric_unit(metric)
    return [
        Change(
            metric=metric,
            unit=unit,
            old_value=old_value,
            new_value=new_value,
            where=wheres[row],
            pairs=count,
            old=mean_old,
            new=mean_new,
            difference=mean_difference,
            low=_number(low[row]),
            high=_number(high[row]),
            pct=100 * (mean_new / mean_old - 1) if mean_old else None,
            pct_low=_number(100 * (ratio_low[row] - 1)),
            pct_high=_number(100 * (ratio_high[row] - 1)),
            effect=effects[row],
            worse_pairs=worse[row],
            q=p_values[row],
            verdict="unclear",
        )
        for row, (mean_old, mean_new, mean_difference) in enumerate(means)
    ]


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _effects(
    difference: NDArray[np.float64],
) -> tuple[list[float | None], list[float | None]]:
    """Return Cohen's d, and the p value of the paired t test, of each row.

    Where all pairs differ by the same, d is infinite and p is 0; without a difference 0 and 1.
    """
    from scipy.stats import t

    rows, count = difference.shape
    if count < 2:
        return [None] * rows, [None] * rows
    mean, spread = difference.mean(axis=1), difference.std(axis=1, ddof=1)
    exact = spread <= 1e-12 * np.abs(mean)
    ratio = np.divide(mean, spread, out=np.zeros(rows), where=~exact)
    correction = 1 - 3 / (4 * (count - 1) - 1)
    effect = np.where(
        exact, np.where(mean == 0, 0.0, np.copysign(np.inf, mean)), ratio * correction
    )
    p_value = 2 * t.sf(np.abs(ratio) * math.sqrt(count), count - 1)
    p_value = np.where(exact, np.where(mean == 0, 1.0, 0.0), p_value)
    return effect.tolist(), p_value.tolist()


def _judged(changes: Sequence[Change]) -> list[Change]:
    """Turn p values into shares of false discoveries, and give the verdicts."""
    from dataclasses import replace

    from scipy.stats import false_discovery_control

    tested = [index for index, change in enumerate(changes) if change.q is not None]
    adjusted: dict[int, float] = {}
    if tested:
        values = false_discovery_control([changes[index].q for index in tested])
        adjusted = dict(zip(tested, map(float, values), strict=True))
    return [
        replace(change, q=adjusted.get(index), verdict=_verdict(change))
        for index, change in enumerate(changes)
    ]


def _verdict(change: Change) -> Verdict:
    if change.difference == 0 and change.low in (0.0, None) and change.high in (0.0, None):
        return "same"
    if change.pct is not None and abs(change.pct) < SAME_PCT:
        return "same"
    if change.low is None or change.high is None:
        return "single"
    low, high = change.pct_low, change.pct_high
    if low is None or high is None:
        low, high = change.low, change.high
    if low <= 0 <= high:
        return "unclear"
    rose = change.difference > 0
    return "better" if rose is (change.metric in MORE_IS_BETTER) else "worse"
