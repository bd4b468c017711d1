"""What a campaign varies: axes, conditions, samples, and the points that follow from them."""

from __future__ import annotations

import difflib
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from svmsim.errors import Problem, problem

__all__ = ["Axis", "Point", "Repeat", "Sample", "SampleRange", "When", "expand", "read_axes"]

SECTIONS = ("host", "kvm", "vm", "run")
"""A swept key that begins so is a parameter; another one names an axis of variants."""

Where = tuple[str, ...]


def where_text(where: Where) -> str:
    """Return a key path as TOML writes it, dotted keys quoted."""
    parts = [f'"{part}"' if "." in part or " " in part else part for part in where]
    return ".".join(parts).replace(".[", "[")


def fault(message: str, where: Where, nearest: str = "") -> Problem:
    """Return a problem of the campaign; its file and line are added where they are known."""
    return problem(message, path=where_text(where), nearest=nearest)


def nearest_of(word: str, words: Sequence[str]) -> str:
    """Return the word that looks most like `word`, or an empty string."""
    close = difflib.get_close_matches(word, [str(item) for item in words], n=1, cutoff=0.5)
    return close[0] if close else ""


@dataclass(frozen=True, slots=True)
class Setting:
    """One value of an axis: what is shown, and which parameters it changes."""

    shown: Any
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Axis:
    """A swept parameter with its values, or a name with labelled variants."""

    name: str
    settings: tuple[Setting, ...]
    is_parameter: bool
    where: Where


@dataclass(frozen=True, slots=True)
class When:
    """Further axes for the points that meet a condition; others keep the scenario's values."""

    condition: Mapping[str, Any]
    sweep: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SampleRange:
    """The range of a sampled parameter, both ends included; whole numbers give whole numbers."""

    low: float
    high: float
    scale: Literal["linear", "log"] = "linear"


@dataclass(frozen=True, slots=True)
class Sample:
    """Points spread over ranges of parameters instead of a grid; every grid point gets all."""

    ranges: Mapping[str, SampleRange | Sequence[float]]
    count: int
    method: Literal["sobol", "latin-hypercube"] = "sobol"
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Repeat:
    """Add seeds to a configuration until the intervals of its means are narrow enough.

    `width` is half the interval's width as a share of the mean (or absolute, with
    `relative=False`). Seeds go on from the largest of the campaign's.
    """

    metric: str | Sequence[str]
    width: float = 0.05
    confidence: float = 0.95
    at_least: int = 3
    at_most: int = 30
    relative: bool = True


@dataclass(frozen=True, slots=True)
class Point:
    """One combination: what each axis shows, and all changes in the order of axes."""

    shown: Mapping[str, Any] = field(default_factory=dict)
    changes: Mapping[str, Any] = field(default_factory=dict)

    def with_(self, pairs: Sequence[tuple[Axis, Setting]]) -> Point:
        """Return the point with settings added."""
        shown, changes = dict(self.shown), dict(self.changes)
        for axis, setting in pairs:
            shown[axis.name] = setting.shown
            changes |= setting.changes
        return Point(shown, changes)


def is_parameter(key: str) -> bool:
    """Return whether a swept key names a parameter, rather than an axis of variants."""
    return key.partition(".")[0] in SECTIONS


def _flatten(table: Mapping[str, Any], where: Where, prefix: str = "") -> Iterator[Any]:
    """Give (key, value, where) of each axis; nested tables of sections are parts of the key."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        place = (*where, str(name))
        if isinstance(value, Mapping) and is_parameter(key):
            yield from _flatten(value, place, f"{key}.")
        else:
            yield key, value, place


def read_axes(table: Any, where: Where, problems: list[Problem], *, least: int = 1) -> list[Axis]:
    """Return the axes of a `sweep` table; what is wrong goes to `problems`."""
    if not isinstance(table, Mapping):
        problems.append(fault("expected a table of keys, each with its values", where))
        return []
    axes: list[Axis] = []
    for key, value, place in _flatten(table, where):
        axis = _axis(str(key), value, place, problems)
        if axis is None:
            continue
        if len(axis.settings) < least:
            problems.append(fault("has no values", place))
            continue
        if any(other.name == axis.name for other in axes):
            problems.append(fault("is there twice", place))
            continue
        axes.append(axis)
    return axes


def _axis(key: str, value: Any, where: Where, problems: list[Problem]) -> Axis | None:
    if key == "run.seed":
        text = "seeds are not swept: every configuration gets the same ones"
        problems.append(fault(text, where, "seeds"))
        return None
    if is_parameter(key):
        if hasattr(value, "tolist"):
            value = value.tolist()
        if isinstance(value, str) or not isinstance(value, Sequence):
            problems.append(fault("expected a list of values", where))
            return None
        return Axis(key, tuple(_parameter(key, item) for item in value), True, where)
    if not isinstance(value, Mapping) or not all(isinstance(v, Mapping) for v in value.values()):
        text = "is no parameter; an axis of variants is a table of labels, each with its changes"
        problems.append(fault(text, where, nearest_of(key.partition(".")[0], SECTIONS)))
        return None
    settings = tuple(
        Setting(str(label), dict(_changes(changes))) for label, changes in value.items()
    )
    return Axis(key, settings, False, where)


def _parameter(key: str, value: Any) -> Setting:
    if isinstance(value, Mapping) and key.rpartition(".")[2] == "workload":
        kind = value.get("kind", value.get("trace", ""))
        return Setting(str(kind), {key: dict(value)})
    return Setting(value, {key: value})


def _changes(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Flatten nested changes; a workload stays whole, since it replaces the scenario's."""
    for name, value in table.items():
        key = f"{prefix}{name}"
        workload = key.startswith("vm.") and str(name) == "workload"
        if isinstance(value, Mapping) and not workload:
            yield from _changes(value, f"{key}.")
        else:
            yield key, value


def matches(condition: Mapping[str, Any], shown: Mapping[str, Any]) -> bool:
    """Return whether a point meets a condition: each key has the value, one of several, or a range.

    A table with `min`, `max`, `not` asks for a range or excludes a value.
    """
    for key, wanted in condition.items():
        if key not in shown:
            return False
        value = shown[key]
        if isinstance(wanted, Mapping):
            if "min" in wanted and not value >= wanted["min"]:
                return False
            if "max" in wanted and not value <= wanted["max"]:
                return False
            if "not" in wanted and _one_of(value, wanted["not"]):
                return False
        elif not _one_of(value, wanted):
            return False
    return True


def _one_of(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, list | tuple):
        return any(_same(value, item) for item in wanted) or _same(value, wanted)
    return _same(value, wanted)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, bool) is not isinstance(other, bool):
        return False  # True is no 1 here
    return bool(one == other)


def check_condition(
    condition: Any, axes: Sequence[Axis], where: Where, problems: list[Problem]
) -> Mapping[str, Any]:
    """Check that a condition speaks of axes and of values that they have; return it flattened."""
    if not isinstance(condition, Mapping) or not condition:
        problems.append(fault("expected a table of keys and the values asked for", where))
        return {}
    names = {axis.name: axis for axis in axes}
    flat = dict(_condition_keys(condition, names))
    for key, wanted in flat.items():
        place = (*where, key)
        axis = names.get(key)
        if axis is None:
            text = "is not swept, so that no condition can ask for it"
            problems.append(fault(text, place, nearest_of(key, list(names))))
            continue
        if isinstance(wanted, Mapping):
            for name in wanted:
                if name not in ("min", "max", "not"):
                    near = nearest_of(str(name), ["min", "max", "not"])
                    problems.append(fault("is no condition", (*place, str(name)), near))
            numbers = all(isinstance(s.shown, int | float) for s in axis.settings)
            if not numbers and ("min" in wanted or "max" in wanted):
                problems.append(fault("has values that are no numbers", place))
            continue
        shown = [setting.shown for setting in axis.settings]
        for item in (
            wanted if isinstance(wanted, list | tuple) and wanted not in shown else [wanted]
        ):
            if not any(_same(item, value) for value in shown):
                near = nearest_of(str(item), [str(value) for value in shown])
                problems.append(fault(f"is never {item!r}", place, near))
    return flat


def _condition_keys(
    condition: Mapping[str, Any], names: Mapping[str, Axis], prefix: str = ""
) -> Iterator[tuple[str, Any]]:
    for name, value in condition.items():
        key = f"{prefix}{name}"
        is_range = isinstance(value, Mapping) and {"min", "max", "not"} & set(value)
        if isinstance(value, Mapping) and key not in names and not is_range:
            yield from _condition_keys(value, names, f"{key}.")
        else:
            yield key, value


def zip_axes(axes: Sequence[Axis], where: Where, problems: list[Problem]) -> list[Any]:
    """Return the steps of axes that change together."""
    lengths = {axis.name: len(axis.settings) for axis in axes}
    if len(set(lengths.values())) > 1:
        counts = ", ".join(f"{name} {count}" for name, count in lengths.items())
        problems.append(fault(f"zipped keys need equally many values: {counts}", where))
        return []
    columns = [[(axis, setting) for setting in axis.settings] for axis in axes]
    return [list(step) for step in zip(*columns, strict=True)]


def sample_axes(
    sample: Sample, where: Where, problems: list[Problem]
) -> tuple[list[Axis], list[Any]]:
    """Return the axes of a sample and its steps; equal steps of whole numbers are left out."""
    before = len(problems)
    ranges = _ranges(sample, where, problems)
    count = sample.count
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= 1 << 20:
        problems.append(fault("expected a whole number, 1 to 1048576", (*where, "count")))
    elif sample.method == "sobol" and count & (count - 1):
        near = str(1 << round(math.log2(count)))
        problems.append(
            fault("a Sobol sequence is balanced for powers of two alone", (*where, "count"), near)
        )
    methods = ["sobol", "latin-hypercube"]
    if sample.method not in methods:
        near = nearest_of(str(sample.method), methods)
        problems.append(fault("is no method of sampling", (*where, "method"), near))
    if len(problems) > before or not ranges:
        return [], []
    from scipy.stats import qmc

    if sample.method == "sobol":
        unit = qmc.Sobol(len(ranges), scramble=True, rng=sample.seed).random(count)
    else:
        unit = qmc.LatinHypercube(len(ranges), rng=sample.seed).random(count)
    columns = [
        [_scaled(low_high, float(share)) for share in unit[:, index]]
        for index, low_high in enumerate(ranges.values())
    ]
    axes = [
        Axis(key, tuple(_parameter(key, value) for value in column), True, (*where, "ranges", key))
        for key, column in zip(ranges, columns, strict=True)
    ]
    steps: list[Any] = []
    seen = set()
    for step in zip(*(axis.settings for axis in axes), strict=True):
        values = tuple(setting.shown for setting in step)
        if values not in seen:
            seen.add(values)
            steps.append(list(zip(axes, step, strict=True)))
    return axes, steps


def _ranges(sample: Sample, where: Where, problems: list[Problem]) -> dict[str, SampleRange]:
    result = {}
    for key, value, place in _flatten_ranges(sample.ranges, (*where, "ranges")):
        if isinstance(value, SampleRange):
            chosen = value
        elif isinstance(value, Mapping):
            unknown = [name for name in value if name not in ("low", "high", "scale")]
            for name in unknown:
                near = nearest_of(str(name), ["low", "high", "scale"])
                problems.append(fault("is no part of a range", (*place, str(name)), near))
            if unknown or "low" not in value or "high" not in value:
                problems.append(fault("expected low and high", place))
                continue
            chosen = SampleRange(value["low"], value["high"], value.get("scale", "linear"))
        elif isinstance(value, Sequence) and not isinstance(value, str) and len(value) == 2:
            chosen = SampleRange(value[0], value[1])
        else:
            problems.append(fault("expected [low, high], or a table with low and high", place))
            continue
        numbers = [isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v)
                   for v in (chosen.low, chosen.high)]  # fmt: skip
        if not all(numbers) or not chosen.low < chosen.high:
            problems.append(fault("expected two numbers, low < high", place))
        elif chosen.scale not in ("linear", "log"):
            near = nearest_of(str(chosen.scale), ["linear", "log"])
            problems.append(fault("is no scale", (*place, "scale"), near))
        elif chosen.scale == "log" and chosen.low <= 0:
            problems.append(fault("a logarithmic range begins above 0", place))
        elif not is_parameter(key) or key == "run.seed":
            problems.append(fault("is no parameter that can be sampled", place))
        else:
            result[key] = chosen
    if not result and not problems:
        problems.append(fault("has no ranges", where))
    return result


def _flatten_ranges(table: Any, where: Where, prefix: str = "") -> Iterator[Any]:
    if not isinstance(table, Mapping):
        return
    for name, value in table.items():
        key, place = f"{prefix}{name}", (*where, str(name))
        if isinstance(value, Mapping) and not {"low", "high"} & set(value):
            yield from _flatten_ranges(value, place, f"{key}.")
        else:
            yield key, value, place


def _scaled(limits: SampleRange, share: float) -> int | float:
    low, high = limits.low, limits.high
    whole = isinstance(low, int) and isinstance(high, int)
    if limits.scale == "log":
        value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        return min(max(round(value), int(low)), int(high)) if whole else value
    if whole:
        return min(int(low + math.floor(share * (high - low + 1))), int(high))
    return low + share * (high - low)


def expand(
    grid: Sequence[Axis],
    zips: Sequence[Sequence[Any]],
    sample: Sequence[Any],
    whens: Sequence[tuple[Mapping[str, Any], Sequence[Axis]]],
) -> Iterator[Point]:
    """Give every point: the grid's axes with the first one slowest, zips, samples, conditions."""
    blocks: list[list[list[tuple[Axis, Setting]]]] = [
        [[(axis, setting)] for setting in axis.settings] for axis in grid
    ]
    blocks += [list(steps) for steps in zips]
    if sample:
        blocks.append(list(sample))
    for combination in itertools.product(*blocks):
        yield from _conditional(
            Point().with_([pair for step in combination for pair in step]), whens
        )


def _conditional(
    point: Point, whens: Sequence[tuple[Mapping[str, Any], Sequence[Axis]]]
) -> Iterator[Point]:
    if not whens:
        yield point
        return
    (condition, axes), rest = whens[0], whens[1:]
    if not matches(condition, point.shown):
        yield from _conditional(point, rest)
        return
    columns = [[(axis, setting) for setting in axis.settings] for axis in axes]
    for combination in itertools.product(*columns):
        yield from _conditional(point.with_(combination), rest)
