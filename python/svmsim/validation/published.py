"""The published figures, as `published.toml` lays them out."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, cast

__all__ = ["CLASSES", "Class", "Item", "Row", "published_items", "published_rows"]

Class = Literal["E", "R", "D", "A"]

CLASSES: dict[Class, str] = {
    "E": "exact count",
    "R": "ratio of two simulated figures, within a band",
    "D": "sign: it holds for each of five seeds, and the effect is larger than their spread",
    "A": "absolute figure, within a factor",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One published source: a row of several demands has several items."""

    id: str
    source: str
    setup: str
    """Hardware and set-up of the measurement."""
    figures: str
    """What was printed."""


@dataclass(frozen=True, slots=True)
class Item:
    """One demand on one published figure."""

    id: str
    row: Row
    quantity: str
    unit: str
    digits: int
    kind: Class
    published: float | None
    """None where only a direction was published."""
    low: float
    high: float
    """The accepted band; of a sign without a band of its own: above the spread of the seeds."""
    scenario: str
    """What is simulated for it."""
    misfit: str
    """Why it does not fit, where that is known."""

    @property
    def is_sign(self) -> bool:
        """Whether the band is what the spread of runs leaves."""
        return self.kind == "D" and math.isnan(self.low)


def _band(entry: dict[str, Any]) -> tuple[float, float]:
    public: Any = entry.get("published")
    if "low" in entry or "high" in entry:
        return float(entry["low"]), float(entry["high"])
    if entry["class"] == "E":
        return float(public), float(public)
    if "within" in entry:
        return public - entry["within"], public + entry["within"]
    if "share" in entry:
        spread = abs(public * entry["share"])
        return public - spread, public + spread
    if "factor" in entry:
        return public / entry["factor"], public * entry["factor"]
    return math.nan, 100.0  # a sign: a reduction in per cent, above the spread


@cache
def _file() -> dict[str, Any]:
    path = Path(__file__).with_name("published.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


@cache
def published_rows() -> dict[str, Row]:
    """Return the sources by the id of their row, in the order of the file."""
    return {
        id_: Row(id_, row["source"], row["setup"], row["figures"])
        for id_, row in _file()["row"].items()
    }


@cache
def published_items() -> dict[str, Item]:
    """Return every demand by its id, in the order of the file."""
    items = {}
    for id_, row in _file()["row"].items():
        for name, entry in row["item"].items():
            low, high = _band(entry)
            item = Item(
                id=f"{id_}.{name}",
                row=published_rows()[id_],
                quantity=entry["quantity"],
                unit=entry.get("unit", ""),
                digits=entry.get("digits", 0),
                kind=cast("Class", entry["class"]),
                published=entry.get("published"),
                low=low,
                high=high,
                scenario=entry.get("scenario", ""),
                misfit=entry.get("misfit", ""),
            )
            items[item.id] = item
    return items
