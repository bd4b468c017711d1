"""The arguments of a campaign: checked, with every problem, and made into points."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from svmsim.campaign.axes import (
    Axis,
    Point,
    Repeat,
    Sample,
    When,
    check_condition,
    expand,
    fault,
    matches,
    read_axes,
    sample_axes,
    zip_axes,
)
from svmsim.errors import Problem
from svmsim.scenario import Scenario

__all__ = ["MOST_RUNS", "check_repeat", "make_points", "read_seeds", "read_time_limit"]

MOST_RUNS = 10_000_000


def read_seeds(
    base: Scenario, seeds: Iterable[int] | int | None, problems: list[Problem]
) -> list[int]:
    """Return the seeds that an argument means; default is the scenario's own."""
    where = ("seeds",)
    if seeds is None:
        return [int(base.resolved["run"]["seed"])]
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if seeds < 1:
            problems.append(fault("expected at least one seed", where))
        return list(range(1, min(seeds, MOST_RUNS) + 1))
    if isinstance(seeds, str | bool) or not isinstance(seeds, Iterable):
        problems.append(fault("expected a number of seeds, or a list of them", where))
        return [1]
    chosen = [seed.__index__() if hasattr(seed, "__index__") else seed for seed in seeds]
    if not chosen:
        problems.append(fault("expected at least one seed", where))
    for seed in chosen:
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
            problems.append(fault(f"{seed!r} is no seed: a whole number, 0 to 2^63 - 1", where))
            return [1]
    if len(set(chosen)) != len(chosen):
        problems.append(fault("a seed is there twice", where))
    return list(dict.fromkeys(chosen))


def read_time_limit(limit: float | None, problems: list[Problem]) -> float:
    """Return a time limit in seconds, 0 for none."""
    if limit is None:
        return 0.0
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not number or not 0 < limit < math.inf:
        problems.append(fault("expected a time in seconds, more than 0", ("time_limit",)))
        return 0.0
    return float(limit)


def check_repeat(repeat: Repeat | None, problems: list[Problem]) -> None:
    """Note what is wrong with the conditions of repeats."""
    if repeat is None:
        return

    def check(name: str, holds: bool, text: str) -> None:
        if not holds:
            problems.append(fault(text, ("repeat", name)))

    number = (int, float)
    metrics = [repeat.metric] if isinstance(repeat.metric, str) else list(repeat.metric)
    check("metric", bool(metrics) and all(isinstance(m, str) for m in metrics), "expected a metric")
    check("width", isinstance(repeat.width, number) and repeat.width > 0, "expected more than 0")
    inside = isinstance(repeat.confidence, number) and 0 < repeat.confidence < 1
    check("confidence", inside, "expected a share between 0 and 1, such as 0.95")
    check(
        "at_least", isinstance(repeat.at_least, int) and repeat.at_least >= 2, "expected 2 or more"
    )
    more = isinstance(repeat.at_most, int) and repeat.at_most >= 2
    check("at_most", more and repeat.at_most >= repeat.at_least, "expected at_least or more")


def _tables(value: Any) -> list[Any]:
    return [value] if isinstance(value, Mapping | When) else list(value)


def make_points(
    sweep: Mapping[str, Any],
    zips: Any,
    whens: Any,
    sample: Sample | None,
    drop: Any,
    keep: Any,
    chosen: Callable[[Mapping[str, Any]], bool] | None,
    problems: list[Problem],
) -> tuple[list[Axis], list[Point]]:
    """Return all axes, and every point that is left."""
    grid = read_axes(sweep, ("sweep",), problems)
    axes = list(grid)
    steps = []
    for index, table in enumerate(_tables(zips)):
        where = ("zip", f"[{index}]")
        block = read_axes(table, where, problems)
        axes += block
        steps.append(zip_axes(block, where, problems))
    sampled: list[Any] = []
    if sample is not None:
        block, sampled = sample_axes(sample, ("sample",), problems)
        axes += block
    conditional = []
    for index, item in enumerate(_tables(whens)):
        where = ("when", f"[{index}]")
        condition = check_condition(item.condition, axes, (*where, "if"), problems)
        block = read_axes(item.sweep, (*where, "sweep"), problems)
        axes += [axis for axis in block if axis.name not in {other.name for other in axes}]
        conditional.append((condition, block))
    twice = {axis.name for axis in axes if sum(other.name == axis.name for other in axes) > 1}
    problems += [fault("is swept twice", axis.where) for axis in axes if axis.name in twice]
    filters = {}
    for kind, tables in (("drop", drop), ("keep", keep)):
        filters[kind] = [
            check_condition(table, axes, (kind, f"[{index}]"), problems)
            for index, table in enumerate(_tables(tables))
        ]
    size = math.prod(len(axis.settings) for axis in grid) * max(1, len(sampled))
    size *= math.prod(max(1, len(step)) for step in steps)
    if size > MOST_RUNS:
        problems.append(fault(f"more than {MOST_RUNS} combinations", ("sweep",)))
        return axes, []
    if problems:  # of axes: points would only repeat them; those of values come from resolving
        return axes, list(_one_axis_at_a_time(axes))
    points = []
    for point in expand(grid, steps, sampled, conditional):
        if any(matches(condition, point.shown) for condition in filters["drop"]):
            continue
        if filters["keep"] and not any(matches(c, point.shown) for c in filters["keep"]):
            continue
        if chosen is None or chosen(dict(point.shown)):
            points.append(point)
    return axes, points


def _one_axis_at_a_time(axes: Sequence[Axis]) -> Iterable[Point]:
    """Give points that show what is wrong with single values, when there can be no real points.

    Keys of a workload are left out where another axis decides which workload they are for.
    """
    replaced = any(
        key.rpartition(".")[2] == "workload"
        for axis in axes
        for setting in axis.settings
        for key in setting.changes
    )
    for axis in axes:
        if replaced and ".workload." in axis.name:
            continue
        for setting in axis.settings:
            yield Point().with_([(axis, setting)])
