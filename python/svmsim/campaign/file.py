"""Campaigns as TOML files: every problem with its file, line and key."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from svmsim._files import read_text
from svmsim.campaign.axes import Repeat, Sample, When, fault, nearest_of
from svmsim.campaign.campaign import Campaign
from svmsim.campaign.lines import line_of
from svmsim.errors import Problem, ScenarioError, problem
from svmsim.scenario import Scenario

__all__ = ["KEYS", "load_campaign"]

KEYS: dict[str, str] = {
    "name": "Name of the campaign; default: the file's name without its suffix.",
    "question": "What the campaign shall answer, for reports.",
    "scenario": "The scenario that is varied: a file's path, or a table like a scenario file.",
    "set": "Changes to the scenario that hold for every run: a table of keys and values.",
    "seeds": "How many seeds (1 to n), or a list of them; every configuration gets the same.",
    "time_limit": 'Wall time that one run may take: seconds, or a text such as "90s" or "2m".',
    "events": "Whether to keep the events of each run.",
    "compare": "The swept key whose effect is asked for.",
    "metrics": "The metrics to compare: a list of names.",
    "sweep": "A grid: values by key; under another name variants, changes by label.",
    "zip": "[[zip]]: keys that change together.",
    "when": "[[when]]: `if`, a condition, and `sweep`, further keys for the points that meet it.",
    "sample": "method (sobol, latin-hypercube), count, seed, ranges: [low, high] by key.",
    "drop": "[[drop]]: a condition; points that meet it are left out.",
    "keep": "[[keep]]: a condition; points that meet none of them are left out.",
    "repeat": "metric, width, confidence, at_least, at_most, relative: when to add seeds.",
}
"""Every key of a campaign file with what it means."""

_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|)")
_SECONDS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}


class _Reader:
    """Takes values of the right type out of a table, and notes what is wrong."""

    def __init__(self, table: Mapping[str, Any], problems: list[Problem]) -> None:
        self._table = table
        self.problems = problems

    def get(self, key: str, kinds: Any, words: str, default: Any = None) -> Any:
        value = self._table.get(key, default)
        if value is default or (isinstance(value, kinds) and not self._is_odd_bool(value, kinds)):
            return value
        self.problems.append(fault(f"expected {words}", (key,)))
        return default

    @staticmethod
    def _is_odd_bool(value: Any, kinds: Any) -> bool:
        kinds = kinds if isinstance(kinds, tuple) else (kinds,)
        return isinstance(value, bool) and bool not in kinds

    def tables(self, key: str) -> list[Mapping[str, Any]]:
        """Return the tables of an array, of which one may stand alone."""
        value = self._table.get(key, [])
        if isinstance(value, Mapping):
            return [value]
        if isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
            return value
        self.problems.append(fault(f"expected tables, [[{key}]]", (key,)))
        return []

    def only(self, table: Mapping[str, Any], known: Any, where: tuple[str, ...]) -> None:
        """Note keys that do not exist."""
        for key in table:
            if key not in known:
                near = nearest_of(key, list(known))
                self.problems.append(fault("unknown key", (*where, key), near))


def _parsed(path: Path, text: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        match = re.search(r"\(at line (\d+), column \d+\)", str(error))
        item = problem(f"is not TOML: {error}", source=str(path))
        line = int(match[1]) if match else 0
        raise ScenarioError([{**item, "line": line}]) from None
    except (RecursionError, ValueError) as error:
        item = problem(f"is not TOML that can be read: {error}", source=str(path))
        raise ScenarioError([item]) from None


_PATHS = ("kind", "trace", "tasks", "profile")
"""Parameters, by the last part of their keys, whose values may be paths."""


def _with_paths(table: Any, directory: Path, key: str = "") -> Any:
    """Make paths absolute that are relative to the campaign's file; a scenario has its own.

    As in scenarios, a name without `/` and suffix is a built-in one.
    """
    if isinstance(table, Mapping):
        return {
            name: value if name == "scenario" else _with_paths(value, directory, str(name))
            for name, value in table.items()
        }
    if isinstance(table, list):
        return [_with_paths(item, directory, key) for item in table]
    if isinstance(table, str) and key.rpartition(".")[2] in _PATHS:
        return str(directory / table) if "/" in table or Path(table).suffix else table
    return table


def load_campaign(path: Path) -> Campaign:
    """Read a campaign file.

    Raises:
        ScenarioError: something is wrong; with every problem, its file, line and key.
    """
    text = read_text(path)
    table = _with_paths(_parsed(path, text), path.resolve().parent)
    problems: list[Problem] = []
    located: list[Problem] = []
    base = _base(path, table, problems, located)
    arguments = _arguments(path, table, problems)
    if base is not None:
        try:
            campaign = Campaign(base, **arguments)
        except ScenarioError as error:
            problems += error.problems
        else:
            if not problems:
                return campaign
    if not located and not problems:
        problems.append(fault("nothing to do", ()))
    found = sorted((_located(item, path, text) for item in problems), key=lambda p: p["line"])
    raise ScenarioError(located + found)


def _located(item: Problem, path: Path, text: str) -> Problem:
    """Return a problem with the campaign's file and line, unless it is one of another file."""
    if item["source"] not in ("", "Campaign", "<dict>", "--set"):
        return item
    parts = re.findall(r'"[^"]*"|\[\d+\]|[^.\[\]"]+', item["path"])
    line = line_of(text, [part.strip('"') for part in parts])
    return {**item, "source": str(path), "line": line}


def _base(
    path: Path, table: Mapping[str, Any], problems: list[Problem], located: list[Problem]
) -> Scenario | None:
    """Return the scenario; problems within its own file are `located` already."""
    scenario = table.get("scenario")
    changes = table.get("set", {})
    if not isinstance(changes, Mapping):
        problems.append(fault("expected a table of keys and values", ("set",)))
        changes = {}
    try:
        if isinstance(scenario, str):
            base = Scenario.load(path.parent / scenario)
        elif isinstance(scenario, Mapping):
            base = Scenario.from_dict(scenario, base_dir=path.parent)
        else:
            text = "expected the path of a scenario file, or a table"
            problems.append(fault(text, ("scenario",)))
            return None
    except ScenarioError as error:
        for item in error.problems:
            if item["source"] in ("<dict>", ""):
                problems.append({**item, "path": f"scenario.{item['path']}"})
            elif item["line"] or not item["message"].startswith("cannot be read"):
                located.append(item)
            else:
                problems.append(
                    fault(f"{item['source']} {item['message']}", ("scenario",), item["nearest"])
                )
        return None
    try:
        return base.with_(**changes) if changes else base
    except ScenarioError as error:
        problems += [{**item, "path": f"set.{item['path']}"} for item in error.problems]
        return base


def _arguments(path: Path, table: Mapping[str, Any], problems: list[Problem]) -> dict[str, Any]:
    reader = _Reader(table, problems)
    reader.only(table, KEYS, ())
    arguments: dict[str, Any] = {
        "name": reader.get("name", str, "a text", path.stem),
        "question": reader.get("question", str, "a text", ""),
        "seeds": reader.get("seeds", (int, list), "a number of seeds, or a list of them"),
        "events": reader.get("events", bool, "true or false", False),
        "compare": reader.get("compare", str, "a swept key"),
        "metrics": reader.get("metrics", list, "a list of names", []),
        "time_limit_s": _time_limit(reader),
        "sweep": reader.get("sweep", dict, "a table of keys and values", {}),
        "zip": reader.tables("zip"),
        "drop": reader.tables("drop"),
        "keep": reader.tables("keep"),
    }
    if not all(isinstance(name, str) for name in arguments["metrics"]):
        problems.append(fault("expected a list of names", ("metrics",)))
        arguments["metrics"] = []
    whens = []
    for index, item in enumerate(reader.tables("when")):
        reader.only(item, ("if", "sweep"), ("when", f"[{index}]"))
        whens.append(When(item.get("if", {}), item.get("sweep", {})))
    arguments["when"] = whens
    arguments["sample"] = _made(reader, "sample", Sample, ("ranges", "count"), {})
    arguments["repeat"] = _made(reader, "repeat", Repeat, ("metric",), _REPEAT_TYPES)
    return arguments


_NUMBER = (int, float)
_REPEAT_TYPES: dict[str, tuple[Any, str]] = {
    "metric": ((str, list), "a metric, or a list of them"),
    "width": (_NUMBER, "a number"),
    "confidence": (_NUMBER, "a number"),
    "at_least": (int, "a whole number"),
    "at_most": (int, "a whole number"),
    "relative": (bool, "true or false"),
}


def _made(
    reader: _Reader,
    key: str,
    make: Callable[..., Any],
    required: tuple[str, ...],
    types: Mapping[str, tuple[Any, str]],
) -> Any:
    """Return the Sample or Repeat of a table, or None when there is none or it is wrong."""
    table = reader.get(key, dict, "a table")
    if table is None:
        return None
    known = list(make.__dataclass_fields__)  # type: ignore[attr-defined]
    before = len(reader.problems)
    reader.only(table, known, (key,))
    for name in required:
        if name not in table:
            reader.problems.append(fault(f"{name} is missing", (key,)))
    for name, (kinds, words) in types.items():
        inner = _Reader(table, [])
        inner.get(name, kinds, words)
        reader.problems += [fault(f"expected {words}", (key, name))] * len(inner.problems)
    return make(**table) if len(reader.problems) == before else None


def _time_limit(reader: _Reader) -> float | None:
    value = reader.get("time_limit", (int, float, str), 'a time, such as 90 or "90s"')
    if not isinstance(value, str):
        return value  # type: ignore[no-any-return]
    match = _TIME.fullmatch(value.strip())
    if match is None:
        reader.problems.append(fault(f"{value!r} is no time; write 90s or 2m", ("time_limit",)))
        return None
    return float(match[1]) * _SECONDS[match[2]]
