"""Python values as plain data, and as the TOML text that `--set key=value` takes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn, SupportsIndex

from svmsim._files import bad_text
from svmsim.errors import ScenarioError, problem

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_DEEPEST = 64
"""Levels of nesting; a scenario has five, so that more is a structure that contains itself."""

_LONGEST_PATH = 100


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _refuse(text: str, path: str, source: str) -> NoReturn:
    if len(path) > _LONGEST_PATH:
        path = path[:_LONGEST_PATH] + "..."
    raise ScenarioError([problem(text, source=source, path=path)])


def plain(path: str, value: Any, *, source: str = "<dict>", depth: int = 0) -> Any:
    """Return `value` made of bool, int, float, str, list and dict alone.

    Takes these, tuples, ranges, mappings and NumPy's numbers and arrays. `path` is the key of the
    value, which an error names.

    Raises:
        ScenarioError: a value of another type, NaN or infinity, a whole number of more than 64
            bits, a text that is not Unicode, two keys of the same text, or too many levels.
    """
    if depth > _DEEPEST:
        _refuse(f"more than {_DEEPEST} levels of nesting", path, source)
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _text(path, str(value), source)
    if isinstance(value, Mapping):
        return _table(path, value, source, depth)
    if isinstance(value, list | tuple | range):
        return [
            plain(f"{path}[{index}]", item, source=source, depth=depth + 1)
            for index, item in enumerate(value)
        ]
    if isinstance(value, float):
        if not math.isfinite(value):
            _refuse(f"{float(value)} is not a number that a scenario can have", path, source)
        return float(value)
    if callable(getattr(value, "tolist", None)):  # NumPy's numbers and arrays
        inner = value.tolist()
        if type(inner) is not type(value):
            return plain(path, inner, source=source, depth=depth + 1)
    elif isinstance(value, SupportsIndex):
        whole = value.__index__()
        if not -(2**63) <= whole < 2**64:
            _refuse("a whole number of more than 64 bits", path, source)
        return whole
    _refuse(f"a value of type {type(value).__name__} has no TOML form", path, source)


def _text(path: str, text: str, source: str) -> str:
    reason = bad_text(text.replace("\0", ""))
    if reason is not None:
        _refuse(f"a text that {reason}", path, source)
    return text


def _table(path: str, table: Mapping[Any, Any], source: str, depth: int) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in table.items():
        name = _text(path, str(key), source)
        if name in result:
            _refuse("this key is there twice", _join(path, name), source)
        result[name] = plain(_join(path, name), value, source=source, depth=depth + 1)
    return result


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    # A JSON string is a TOML basic string, but for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _toml(value: Any) -> str:
    """Return plain data as one TOML value."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_key(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    text = repr(value)
    return text if "e" not in text or "." in text else text.replace("e", ".0e")


def toml_value(path: str, value: Any) -> str:
    """Return `value` as one TOML value; `path` is named when it has no TOML form.

    Takes what `plain` takes.

    Raises:
        ScenarioError: as `plain` does.
    """
    return _toml(plain(path, value))


def overrides(changes: Mapping[Any, Any], prefix: str = "", depth: int = 0) -> Iterator[str]:
    """Flatten nested changes into `key=value` overrides: {"kvm": {"avic": True}} → kvm.avic=true.

    Raises:
        ScenarioError: a value that has no TOML form, or a key that is there twice.
    """
    if depth > _DEEPEST:
        _refuse(f"more than {_DEEPEST} levels of nesting", prefix.rstrip("."), "<dict>")
    seen: set[str] = set()
    for key, value in changes.items():
        path = _text(prefix, f"{prefix}{key}", "<dict>")
        if path in seen:
            _refuse("this key is there twice", path, "<dict>")
        seen.add(path)
        if isinstance(value, Mapping):
            yield from overrides(value, f"{path}.", depth + 1)
        else:
            yield f"{path}={toml_value(path, value)}"
