"""On which line of a TOML file a key stands, which Python's TOML reader does not tell."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["line_of"]

_PART = re.compile(r"""\s*(?:"((?:[^"\\]|\\.)*)"|'([^']*)'|([A-Za-z0-9_-]+))\s*""")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"""|\'\'\'.*?\'\'\'|"(?:[^"\\]|\\.)*"|\'[^\']*\'', re.DOTALL
)


def _key(text: str) -> list[str] | None:
    """Read a dotted key from the beginning of `text`, which ends it with = or ]."""
    parts = []
    at = 0
    while True:
        match = _PART.match(text, at)
        if match is None:
            return None
        parts.append(next(part for part in match.groups() if part is not None))
        at = match.end()
        if text[at : at + 1] != ".":
            return parts
        at += 1


def _without_strings(text: str) -> list[str]:
    """Blank the insides of strings and comments, keeping lines, so that brackets can be counted."""

    def blank(match: re.Match[str]) -> str:
        return re.sub(r"[^\n]", "_", match[0])

    pattern = re.compile(rf"{_STRING.pattern}|#[^\n]*", re.DOTALL)
    return pattern.sub(blank, text).split("\n")


def _places(text: str) -> list[tuple[tuple[str, ...], int]]:
    """Return each key with its line; elements of [[arrays]] have an index, `[0]`, in their path."""
    result: list[tuple[tuple[str, ...], int]] = []
    counts: dict[tuple[str, ...], int] = {}
    table: tuple[str, ...] = ()
    depth = 0
    lines = text.split("\n")
    for number, (line, bare) in enumerate(zip(lines, _without_strings(text), strict=True), 1):
        stripped = line.lstrip()
        if depth == 0 and bare.lstrip().startswith("["):
            double = stripped.startswith("[[")
            parts = _key(stripped[2 if double else 1 :])
            if parts is not None:
                table = tuple(parts)
                if double:
                    index = counts.get(table, 0)
                    counts[table] = index + 1
                    table = (*table, f"[{index}]")
                result.append((table, number))
            continue
        if depth == 0 and "=" in bare:
            parts = _key(stripped)
            if parts is not None:
                result.append(((*table, *parts), number))
        depth += sum(bare.count(c) for c in "[{") - sum(bare.count(c) for c in "]}")
        depth = max(depth, 0)
    return result


def line_of(text: str, path: Sequence[str]) -> int:
    """Return the 1-based line of a key, else of its first part, else of the table around it.

    `path` has the parts of the key, `[i]` for the i-th table of an array. 0 when nothing fits.
    """
    wanted = _split(path)
    best, line = 0, 0
    below = 0
    for parts, number in _places(text):
        flat = _split(parts)
        common = min(len(flat), len(wanted))
        if flat[:common] != wanted[:common]:
            continue
        if len(flat) == len(wanted):
            return number
        if len(flat) > len(wanted):
            below = below or number
        elif len(flat) > best:
            best, line = len(flat), number
    return below or line


def _split(parts: Sequence[str]) -> list[str]:
    return [
        piece for part in parts for piece in ([part] if part.startswith("[") else part.split("."))
    ]
