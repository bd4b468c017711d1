"""Verdicts: the simulated figure of an item against its band."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from svmsim.validation.measure import Less
from svmsim.validation.published import Item

__all__ = ["SEEDS", "Judgement", "judge"]

SEEDS = (1, 2, 3, 4, 5)
"""Of an item that demands a sign."""


@dataclass(frozen=True, slots=True)
class Judgement:
    """An item with what was simulated for it."""

    item: Item
    simulated: float
    low: float
    high: float
    holds: bool
    reason: str
    """Why it does not hold; empty when it does."""

    @property
    def verdict(self) -> str:
        """`holds` or `fails`."""
        return "holds" if self.holds else "fails"

    def number(self, value: float | None) -> str:
        """Return a value with the item's digits; `-` for none."""
        return "-" if value is None else f"{value:,.{self.item.digits}f}"

    @property
    def band(self) -> str:
        """What is accepted, as text."""
        if self.low == self.high:
            return "exact"
        if self.item.is_sign:
            return f"> {self.number(self.low)}"
        return f"{self.number(self.low)}..{self.number(self.high)}"

    @property
    def label(self) -> str:
        """Quantity with its unit."""
        return f"{self.item.quantity} ({self.item.unit})" if self.item.unit else self.item.quantity

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data for JSON."""
        return {
            "id": self.item.id,
            "row": self.item.row.id,
            "quantity": self.item.quantity,
            "unit": self.item.unit,
            "class": self.item.kind,
            "published": self.item.published,
            "simulated": self.simulated,
            "low": self.low,
            "high": self.high,
            "holds": self.holds,
            "reason": self.reason,
            "setup": self.item.row.setup,
            "scenario": self.item.scenario,
            "source": self.item.row.source,
        }


def judge(item: Item, values: Sequence[float | Less]) -> Judgement:
    """Judge an item by its simulated figures: one, or of a sign one for each seed.

    Two figures of a sign become the reduction from the greater one in per cent. A sign without a
    band holds when it does for every seed, and its mean exceeds the standard deviation.
    """
    if item.kind != "D":
        (value,) = values
        if isinstance(value, Less):
            raise TypeError(f"{item.id}: only a sign compares two figures")
        return _judged(item, value, item.low, item.high, item.low <= value <= item.high)
    effects = [
        100 * (value.greater - value.less) / value.greater if isinstance(value, Less) else value
        for value in values
    ]
    mean = fmean(effects)
    if item.is_sign:
        # Runs are paired by seed: their spread is the effect's standard deviation.
        spread = stdev(effects)
        return _judged(item, mean, spread, item.high, min(effects) > 0 and mean > spread)
    inside = all(item.low <= effect <= item.high for effect in effects)
    return _judged(item, mean, item.low, item.high, inside)


def _judged(item: Item, value: float, low: float, high: float, holds: bool) -> Judgement:
    reason = "" if holds else item.misfit or "not explained"
    return Judgement(item, value, low, high, holds, reason)


def failed(item: Item, why: str) -> Judgement:
    """Return the judgement of an item whose simulation ended early."""
    low = item.low if item.low == item.low else 0.0
    return Judgement(item, 0.0, low, item.high, False, f"the simulation failed: {why}")
