"""Whether parsed JSON has the shape of a result, so that no later access can fail on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from svmsim._files import bad_text

_DEEPEST = 64
_LARGEST = 2**63 - 1

Fault = tuple[str, str]
"""Where (a key path) and what is wrong."""
Check = Callable[[str, Any], Iterator[Fault]]


def _integer(path: str, value: Any) -> Iterator[Fault]:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not -_LARGEST <= value <= _LARGEST:
        yield path, "is no whole number of 64 bits"


def _number(path: str, value: Any) -> Iterator[Fault]:
    if not isinstance(value, float) or not math.isfinite(value):
        for _ in _integer(path, value):
            yield path, "is no number"


def _optional_number(path: str, value: Any) -> Iterator[Fault]:
    if value is not None:
        yield from _number(path, value)


def _string(path: str, value: Any) -> Iterator[Fault]:
    if not isinstance(value, str):
        yield path, "is no text"


def _anything(_path: str, _value: Any) -> Iterator[Fault]:
    return iter(())


def _table_of(check: Check) -> Check:
    def checked(path: str, value: Any) -> Iterator[Fault]:
        if not isinstance(value, dict):
            yield path, "is no JSON object"
            return
        for name, item in value.items():
            yield from check(f"{path}.{name}", item)

    return checked


def _list_of(check: Check) -> Check:
    def checked(path: str, value: Any) -> Iterator[Fault]:
        if not isinstance(value, list):
            yield path, "is no JSON array"
            return
        for index, item in enumerate(value):
            yield from check(f"{path}[{index}]", item)

    return checked


def _record(
    checks: Mapping[str, Check],
    optional: Mapping[str, Check] | None = None,
    rest: Check = _anything,
) -> Check:
    """Check an object by key; `rest` is for the keys that stand in neither."""

    def checked(path: str, value: Any) -> Iterator[Fault]:
        if not isinstance(value, dict):
            yield path, "is no JSON object"
            return
        known = {**checks, **(optional or {})}
        for name in checks:
            if name not in value:
                yield f"{path}.{name}", "is missing"
        for name, item in value.items():
            yield from known.get(name, rest)(f"{path}.{name}", item)

    return checked


def _statistic(path: str, value: Any) -> Iterator[Fault]:
    yield from (_list_of(_integer) if isinstance(value, list) else _number)(path, value)


_EXIT_NUMBERS = ("time_ns", "min_ns", "max_ns", "mean_ns", "error_pct")
_COUNTER = _record(
    {"count": _integer, **dict.fromkeys(_EXIT_NUMBERS, _number)}, rest=_optional_number
)
_EXITS = _table_of(_COUNTER)
_PCPU = ("pcpu", "guest_ns", "host_ns", "poll_ns", "context_switches")
_LATENCY = ("mean_ns", "p50_ns", "p99_ns", "max_ns")
_LATENCY_RECORD = _record(
    {"count": _integer, **dict.fromkeys(_LATENCY, _number)}, rest=_optional_number
)
_RESULT = _record(
    {
        "version": _string,
        "sim_time_ns": _integer,
        "wall_time_s": _number,
        "scenario": _table_of(_anything),
        "exits": _EXITS,
        "vcpus": _list_of(
            _record(
                {"vm": _string, "vcpu": _integer, "exits": _EXITS, "stats": _table_of(_statistic)},
                {"halt": _COUNTER},
            )
        ),
        "pcpus": _list_of(
            _record(
                {**dict.fromkeys(_PCPU, _integer), "idle_ns": _table_of(_integer)},
                rest=_optional_number,
            )
        ),
        "latency": _table_of(_LATENCY_RECORD),
        "workload": _record(
            {"kind": _string}, {"metrics": _table_of(_anything), "failure": _string}
        ),
    },
    {
        "advice": _list_of(_record(dict.fromkeys(("id", "text", "setting"), _string))),
        "halt": _COUNTER,
        "busy_reason": _string,
        "tasks": _list_of(
            _record(
                {
                    "name": _string,
                    "tid": _integer,
                    "run_ns": _integer,
                    "loops": _integer,
                    "wakeup": _LATENCY_RECORD,
                }
            )
        ),
    },
)


def _depth_and_texts(data: Any) -> Iterator[Fault]:
    open_values: list[tuple[int, Any]] = [(0, data)]
    while open_values:
        depth, value = open_values.pop()
        if depth > _DEEPEST:
            yield "", f"has more than {_DEEPEST} levels of nesting"
            return
        if isinstance(value, dict):
            open_values += [(depth + 1, item) for pair in value.items() for item in pair]
        elif isinstance(value, list):
            open_values += [(depth + 1, item) for item in value]
        elif isinstance(value, str) and bad_text(value.replace("\0", "")) is not None:
            yield "", "has a text that is not Unicode"
            return


def faults(data: Any) -> list[Fault]:
    """Return what keeps `data` from being a result; empty when it is one."""
    wrong = list(_depth_and_texts(data))
    return wrong or [(path.removeprefix("."), text) for path, text in _RESULT("", data)]
