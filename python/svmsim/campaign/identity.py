"""What names a run: the hash of everything that decides its result."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from svmsim import _core

__all__ = ["build", "configuration_digest", "input_files", "run_id"]

RUN_ID_DIGITS = 20


@functools.cache
def build() -> str:
    """Return which build of the extension module this is: 16 digits of its file's SHA-256."""
    with Path(str(_core.__file__)).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:16]


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
    elif isinstance(value, str) and "/" in value:
        yield value


def input_files(resolved: str, base_dir: str) -> dict[str, str]:
    """Return the SHA-256 of each file that a resolved scenario names."""
    if "/" not in resolved:
        return {}
    return {
        name: _file_digest(str(path), path.stat().st_mtime_ns, path.stat().st_size)
        for name in dict.fromkeys(_texts(json.loads(resolved)))
        if (path := Path(base_dir, name)).is_file()
    }


@functools.lru_cache(maxsize=1024)
def _file_digest(path: str, _mtime_ns: int, _size: int) -> str:
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def configuration_digest(resolved: str, inputs: dict[str, str]) -> str:
    """Return the hash of what all runs of a configuration have in common.

    `resolved` has a fixed seed in it. Names of files do not count, their contents do.
    """
    text = resolved
    for name, digest in inputs.items():
        text = text.replace(json.dumps(name, ensure_ascii=False), f'"sha256:{digest}"')
    parts = (text, _core.version(), build())
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def run_id(digest: str, seed: int) -> str:
    """Return the name of the run of a configuration with a seed."""
    return hashlib.sha256(f"{digest}\0{seed}".encode()).hexdigest()[:RUN_ID_DIGITS]
