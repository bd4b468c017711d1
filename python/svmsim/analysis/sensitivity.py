"""Which conclusion depends on which assumed number: tornado and Sobol indices over parameters.

Both are campaigns: they run in as many processes as wanted or on a cluster, and a directory makes
them resumable.
"""

from __future__ import annotations

import difflib
import fnmatch
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from svmsim import _core
from svmsim._render import value_text
from svmsim.campaign import Campaign
from svmsim.errors import UserError, problem
from svmsim.scenario import Scenario
from svmsim.table import ResultTable
from svmsim.table.metrics import metric_unit
from svmsim.table.paths import value_at

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from rich.console import Console, ConsoleOptions, RenderResult

__all__ = ["COSTS", "Effect", "Sensitivity", "sobol", "tornado"]

COSTS = "host.cost.*"
"""The cost parameters: what the simulator assumes or was told about hardware and kernel."""
_BASE = "base"


@dataclass(frozen=True, slots=True)
class Effect:
    """A conclusion: how the metric changes, in per cent, from one value of a key to another."""

    key: str
    old: Any
    new: Any


@dataclass(frozen=True, slots=True)
class _Factor:
    """A parameter that is varied, and within what."""

    key: str
    value: float
    low: float
    high: float
    unit: str
    source: str


@dataclass(frozen=True)
class Sensitivity:
    """What `tornado` or `sobol` found; the most important parameters first."""

    method: str
    metric: str
    unit: str
    base: float
    """The metric, or the effect in per cent, with the scenario's own values."""
    frame: pl.DataFrame
    """tornado: parameter, value, low, high, at_low, at_high (the metric there), swing, flips (an
    effect has another sign there), source. sobol: parameter, value, low, high, first, first_conf,
    total, total_conf, source."""
    table: ResultTable
    """All runs."""

    def to_json(self) -> str:
        """Return everything as JSON text."""
        data = {
            "method": self.method,
            "metric": self.metric,
            "unit": self.unit,
            "base": self.base,
            "parameters": self.frame.to_dicts(),
        }
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"

    def _cells(self) -> tuple[list[str], list[list[str]]]:
        rows = [
            [value_text(round(v, 4) if isinstance(v, float) else v) for v in row]
            for row in self.frame.iter_rows()
        ]
        return self.frame.columns, rows

    @property
    def title(self) -> str:
        """What the numbers are about."""
        return f"{self.method} of {self.metric} ({self.unit or 'count'}), base {self.base:,.6g}"

    def _repr_html_(self) -> str:
        from svmsim._html import html_table

        headings, rows = self._cells()
        return html_table(list(headings), rows, left=1, caption=self.title)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from svmsim._render import table, titled

        headings, rows = self._cells()
        body = table(headings)
        body.columns[-1].no_wrap = False
        body.columns[-1].justify = "left"
        for row in rows:
            body.add_row(*row)
        yield titled(self.title, body)

    def __repr__(self) -> str:
        first = ", ".join(self.frame["parameter"].head(3))
        return f"Sensitivity({self.method} of {self.metric}: {first}, ...)"


def tornado(
    base: Scenario,
    metric: str,
    parameters: str | Sequence[str] | Mapping[str, tuple[float, float]] = COSTS,
    *,
    spread: float = 0.2,
    effect: Effect | None = None,
    out: str | Path | None = None,
    **run: Any,
) -> Sensitivity:
    """Vary one parameter at a time to its low and its high value, all others as in the scenario.

    Args:
        base: the scenario.
        metric: as for `ResultTable.metric`.
        parameters: keys, patterns (`host.cost.h_*`), or low and high by key.
        spread: how far low and high lie from the scenario's value, as a share of it.
        effect: judge the change in per cent of the metric between two values of a key, instead of
            the metric itself: then `flips` says which parameter turns the conclusion around.
        out: directory for the campaign; without it nothing is kept.
        **run: options of `Campaign.run`.

    Raises:
        UserError: no parameter has such a name, or there is no such metric.
    """
    factors = _factors(base, parameters, spread)
    variants: dict[str, dict[str, Any]] = {_BASE: {}}
    for factor in factors:
        for end, value in (("low", factor.low), ("high", factor.high)):
            variants[f"{factor.key}={end}"] = {factor.key: value}
    sweep: dict[str, Any] = {"variation": variants}
    campaign = Campaign(base, _with_effect(sweep, effect), name=f"tornado-{metric}")
    table = campaign.run(out, **run)
    values = _outcomes(table, metric, effect, list(variants))
    base_value = values[_BASE]
    rows = []
    for factor in factors:
        low, high = values[f"{factor.key}=low"], values[f"{factor.key}=high"]
        flips = effect is not None and any(v * base_value < 0 for v in (low, high))
        rows.append(
            {
                "parameter": factor.key,
                "value": factor.value,
                "low": factor.low,
                "high": factor.high,
                "unit": factor.unit,
                "at_low": low,
                "at_high": high,
                "swing": max(low, high, base_value) - min(low, high, base_value),
                "flips": flips,
                "source": factor.source,
            }
        )
    frame = pl.DataFrame(rows).sort("swing", descending=True, maintain_order=True)
    return _sensitivity("tornado", metric, effect, base_value, frame, table)


def sobol(
    base: Scenario,
    metric: str,
    parameters: str | Sequence[str] | Mapping[str, tuple[float, float]] = COSTS,
    *,
    spread: float = 0.2,
    samples: int = 64,
    seed: int = 1,
    effect: Effect | None = None,
    out: str | Path | None = None,
    **run: Any,
) -> Sensitivity:
    """Share out the variance of a metric among parameters that all vary at once (SALib).

    `first` is what a parameter explains alone, `total` with all its interactions; `_conf` is half
    of their 95 % interval. It takes samples * (parameters + 2) runs.

    Args:
        base: the scenario.
        metric: as for `ResultTable.metric`.
        parameters: as for `tornado`.
        spread: as for `tornado`.
        samples: a power of two; more make the intervals narrower.
        seed: of the sample.
        effect: as for `tornado`.
        out: as for `tornado`.
        **run: options of `Campaign.run`.

    Raises:
        UserError: as for `tornado`; samples are no power of two; SALib is not installed.
    """
    try:
        from SALib.analyze import sobol as analysis
        from SALib.sample import sobol as sampling
    except ImportError:
        text = "needs SALib: pip install svmsim[sensitivity]"
        raise UserError([problem(text, path="sobol")]) from None
    if samples < 2 or samples & (samples - 1):
        near = str(1 << max(1, round(math.log2(max(samples, 2)))))
        text = "a Sobol sequence is balanced for powers of two alone"
        raise UserError([problem(text, path="samples", nearest=near)])
    factors = _factors(base, parameters, spread)
    model = {
        "num_vars": len(factors),
        "names": [factor.key for factor in factors],
        "bounds": [[factor.low, factor.high] for factor in factors],
    }
    points = sampling.sample(model, samples, calc_second_order=False, seed=seed)
    variants: dict[str, dict[str, Any]] = {_BASE: {}}
    labels = []
    for number, point in enumerate(points):
        label = f"sample {number}"
        labels.append(label)
        variants[label] = {
            factor.key: round(value) if isinstance(factor.value, int) else float(value)
            for factor, value in zip(factors, point, strict=True)
        }
    sweep: dict[str, Any] = {"variation": variants}
    campaign = Campaign(base, _with_effect(sweep, effect), name=f"sobol-{metric}")
    table = campaign.run(out, **run)
    values = _outcomes(table, metric, effect, list(variants))
    outcomes = np.array([values[label] for label in labels])
    found = _indices(analysis, model, outcomes, seed)
    frame = pl.DataFrame(
        {
            "parameter": model["names"],
            "value": [float(factor.value) for factor in factors],
            "low": [float(factor.low) for factor in factors],
            "high": [float(factor.high) for factor in factors],
            "unit": [factor.unit for factor in factors],
            **found,
            "source": [factor.source for factor in factors],
        }
    ).sort("total", descending=True, maintain_order=True)
    return _sensitivity("sobol", metric, effect, values[_BASE], frame, table)


def _indices(
    analysis: Any, model: Mapping[str, Any], outcomes: NDArray[np.float64], seed: int
) -> dict[str, Any]:
    names = {"first": "S1", "first_conf": "S1_conf", "total": "ST", "total_conf": "ST_conf"}
    if np.ptp(outcomes) <= 1e-12 * np.abs(outcomes).max(initial=0.0):
        return dict.fromkeys(names, [0.0] * model["num_vars"])  # nothing varies
    with np.errstate(all="ignore"):
        found = analysis.analyze(model, outcomes, calc_second_order=False, seed=seed)
    return {name: np.nan_to_num(np.asarray(found[key], dtype=float)) for name, key in names.items()}


def _with_effect(sweep: dict[str, Any], effect: Effect | None) -> dict[str, Any]:
    return sweep if effect is None else {**sweep, effect.key: [effect.old, effect.new]}


def _outcomes(
    table: ResultTable, metric: str, effect: Effect | None, labels: Sequence[str]
) -> dict[str, float]:
    """Return the metric, or its change in per cent, for each variation.

    Raises:
        UserError: a run failed or has no such value.
    """
    failures = table.failures
    if not failures.is_empty():
        row = failures.row(0, named=True)
        text = f"{failures.height} runs failed, the first: {row['error'] or row['failure']}"
        raise UserError([problem(text, path=str(row["variation"]))])
    rows = table.metric(metric)
    values: dict[str, list[float]] = {}
    for label, value in rows.select("variation", "value").iter_rows():
        if value is None:
            text = f"there is no value with {label}"
            raise UserError([problem(text, path=metric)])
        values.setdefault(label, []).append(value)
    if effect is None:
        return {label: values[label][0] for label in labels}
    changes = {}
    for label in labels:
        old, new = values[label]
        if old == 0:
            text = f"is 0 with {effect.key} = {value_text(effect.old)}: there is no change in %"
            raise UserError([problem(text, path=metric)])
        changes[label] = 100 * (new / old - 1)
    return changes


def _sensitivity(
    method: str,
    metric: str,
    effect: Effect | None,
    base: float,
    frame: pl.DataFrame,
    table: ResultTable,
) -> Sensitivity:
    if effect is None:
        return Sensitivity(method, metric, metric_unit(metric), base, frame, table)
    step = f"{effect.key} {value_text(effect.old)} → {value_text(effect.new)}"
    return Sensitivity(method, f"{metric}, change by {step}", "%", base, frame, table)


def _factors(
    base: Scenario,
    parameters: str | Sequence[str] | Mapping[str, tuple[float, float]],
    spread: float,
) -> list[_Factor]:
    """Return the parameters that are varied; those of value 0 stay as they are.

    Raises:
        UserError: a name fits none, a range is none, or the spread is none.
    """
    if not 0 < spread < 1:
        raise UserError([problem("expected a share between 0 and 1", path="spread")])
    described = json.loads(_core.describe())
    known = {item["path"]: item for item in described["parameters"]}
    numbers = [
        key for key, item in known.items() if item["type"] in ("integer", "number", "duration")
    ]
    resolved = base.resolved
    sources = _cost_sources(described, str(value_at(resolved, "host.profile")))
    wanted = [parameters] if isinstance(parameters, str) else list(parameters)
    keys: list[str] = []
    problems = []
    for pattern in wanted:
        fitting = [key for key in numbers if fnmatch.fnmatchcase(key, pattern)]
        if not fitting:
            close = difflib.get_close_matches(pattern, numbers, n=1, cutoff=0.4)
            text = "fits no parameter that is a number"
            problems.append(problem(text, path=pattern, nearest=close[0] if close else ""))
        keys += [key for key in fitting if key not in keys]
    if problems:
        raise UserError(problems)
    factors = []
    for key in keys:
        value = value_at(resolved, key)
        if isinstance(parameters, Mapping):
            low, high = parameters[key]
        elif not value:
            continue
        else:
            low, high = _around(value, spread, known[key])
        if not low < high:
            raise UserError([problem("expected low < high", path=key)])
        source = sources.get(key, known[key]["source"])
        factors.append(_Factor(key, value, low, high, known[key]["unit"], source))
    if not factors:
        raise UserError([problem("no parameter is left to vary", path=", ".join(wanted))])
    return factors


def _around(value: float, spread: float, about: Mapping[str, Any]) -> tuple[float, float]:
    low, high = value * (1 - spread), value * (1 + spread)
    if isinstance(value, int):
        low, high = min(value - 1, round(low)), max(value + 1, round(high))
    if about["minimum"] is not None:
        low = max(low, about["minimum"])
    if about["maximum"] is not None:
        high = min(high, about["maximum"])
    return low, high


def _cost_sources(described: Mapping[str, Any], profile: str) -> dict[str, str]:
    """Return where each cost of a profile comes from; `assumed` is what to look out for."""
    for item in described["profiles"]:
        if item["name"] == profile:
            return {f"host.cost.{cost['name']}": cost["source"] for cost in item["costs"]}
    return {}
