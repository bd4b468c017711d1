"""Figures as a person reads them."""

from __future__ import annotations

from typing import Any

Item = dict[str, Any]


def finding(id_: str, text: str, *, warning: bool = False, replay: str | None = None) -> Item:
    """Return the keywords of a `Finding`."""
    level = "warning" if warning else "info"
    return {"id": id_, "text": text, "level": level, "replay": replay}


def percent(part: float, whole: float) -> str:
    """A share; `whole` is not 0."""
    value = 100 * part / whole
    return f"{value:.0f} %" if value >= 10 or value == 0 else f"{value:.2g} %"


def duration(ns: float) -> str:
    """A time with a unit that suits it."""
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if abs(ns) >= scale:
            return f"{ns / scale:.3g} {unit}" if ns / scale < 1000 else f"{ns / scale:,.0f} {unit}"
    return f"{ns:.0f} ns"


def number(value: float) -> str:
    """A count or a rate."""
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def times(count: int, word: str) -> str:
    """``1 exit``, ``2 exits``."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"
