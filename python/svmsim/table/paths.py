"""Values of a resolved scenario by their full key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["differing_keys", "flattened", "value_at"]


def value_at(scenario: Mapping[str, Any], path: str) -> Any:
    """Return a parameter of a resolved scenario, None when it is absent.

    `vm.x` is that of the first VM, as is `vm.NAME.x` of the VM with that name.
    """
    value: Any = scenario
    for part in path.split("."):
        if isinstance(value, Sequence) and not isinstance(value, str):
            named = [i for i in value if isinstance(i, Mapping) and i.get("name") == part]
            first = value[0] if value and isinstance(value[0], Mapping) else {}
            value = named[0] if named else first.get(part)
        else:
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            return None
    return value


def flattened(value: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Give every parameter of a resolved scenario with its full key; VMs by their names.

    A single VM's keys begin with `vm.` alone.
    """
    if isinstance(value, Mapping):
        for key, item in value.items():
            yield from flattened(item, f"{prefix}.{key}" if prefix else str(key))
    elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        for index, item in enumerate(value):
            alone = prefix == "vm" and len(value) == 1
            name = prefix if alone else f"{prefix}.{item.get('name', index)}"
            yield from flattened(item, name)
    else:
        yield prefix, value


def differing_keys(scenarios: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the keys of parameters that are not the same in all scenarios, without the seed."""
    flat = [dict(flattened(scenario)) for scenario in scenarios]
    keys = list(dict.fromkeys(key for one in flat for key in one))
    return [
        key
        for key in keys
        if key != "run.seed" and any(one.get(key) != flat[0].get(key) for one in flat[1:])
    ]
