"""Python values as the TOML text that `--set key=value` takes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, SupportsFloat, SupportsIndex

from svmsim.errors import ScenarioError, problem

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")


def _key(name: str) -> str:
    return name if _BARE_KEY.fullmatch(name) else _string(name)


def _string(text: str) -> str:
    # A JSON string is a TOML basic string, but for DEL.
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def toml_value(path: str, value: Any) -> str:
    """Return `value` as one TOML value; `path` is named when it has no TOML form.

    Takes bool, str, whole and real numbers (NumPy's too), lists, tuples, ranges and mappings.

    Raises:
        ScenarioError: a value of another type.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return _string(value)
    if isinstance(value, Mapping):
        items = (f"{_key(str(k))} = {toml_value(_join(path, str(k)), v)}" for k, v in value.items())
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list | tuple | range):
        return "[" + ", ".join(toml_value(f"{path}[{i}]", v) for i, v in enumerate(value)) + "]"
    if type(value).__name__ in {"bool", "bool_"}:  # NumPy's
        return "true" if value else "false"
    if isinstance(value, SupportsIndex):
        return str(value.__index__())
    if isinstance(value, SupportsFloat):
        number = float(value)
        if math.isnan(number) or math.isinf(number):
            return str(number)
        text = repr(number)
        return text if "e" not in text or "." in text else text.replace("e", ".0e")
    text = f"a value of type {type(value).__name__} has no TOML form"
    raise ScenarioError([problem(text, source="<dict>", path=path)])


def overrides(changes: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Flatten nested changes into `key=value` overrides: {"kvm": {"avic": True}} → kvm.avic=true.

    Raises:
        ScenarioError: a value that has no TOML form.
    """
    for name, value in changes.items():
        path = f"{prefix}{name}"
        if isinstance(value, Mapping):
            yield from overrides(value, f"{path}.")
        else:
            yield f"{path}={toml_value(path, value)}"
