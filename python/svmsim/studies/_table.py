"""The table of a study: published beside simulated, ratio, tolerance, verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeVar

Tolerance = Literal["E", "R", "A", "D", "-"]

TOLERANCES = {
    "E": "exact",
    "R": "ratio of two simulated figures within a band",
    "A": "absolute figure within a band",
    "D": "sign, for every seed and greater than what the seeds differ by",
    "-": "reported, not judged",
}


VERDICT_COLOURS = {"holds": "green", "fails": "bold red", "-": "dim"}


class Judged:
    """What every row has: a published figure, a simulated one, and the verdict on it."""

    __slots__ = ()

    quantity: str
    simulated: float
    published: float | tuple[float, float] | None
    """A pair is a range: anything in it agrees with what was published; None: no figure was."""
    tolerance: Tolerance
    low: float
    high: float
    """The verdict is whether `simulated` lies in low..high."""
    unit: str
    digits: int

    @property
    def ratio(self) -> float | None:
        """Simulated by published; None against a range, zero or nothing."""
        if isinstance(self.published, tuple) or not self.published:
            return None
        return self.simulated / self.published

    @property
    def holds(self) -> bool:
        """Whether the simulated figure is within the tolerance; always so when not judged."""
        return self.tolerance == "-" or self.low <= self.simulated <= self.high

    @property
    def verdict(self) -> str:
        """`holds`, `fails`, or `-` when not judged."""
        if self.tolerance == "-":
            return "-"
        return "holds" if self.holds else "fails"

    @property
    def label(self) -> str:
        """Quantity with its unit."""
        return f"{self.quantity} ({self.unit})" if self.unit else self.quantity

    @property
    def band(self) -> str:
        """What is accepted, as text."""
        if self.tolerance == "-":
            return ""
        if self.low == self.high:
            return "exact"
        return f"{self.number(self.low)}..{self.number(self.high)}"

    def number(self, value: float) -> str:
        """Return a value of this row with the row's digits."""
        return f"{value:,.{self.digits}f}"

    @property
    def published_text(self) -> str:
        """The published figure, or the range; `-` when there is none."""
        if self.published is None:
            return "-"
        if isinstance(self.published, tuple):
            return "..".join(self.number(value) for value in self.published)
        return self.number(self.published)

    @property
    def ratio_text(self) -> str:
        """The ratio with three digits, or `-`."""
        return "-" if self.ratio is None else f"{self.ratio:.3f}"


@dataclass(frozen=True, slots=True)
class Row(Judged):
    """One quantity under one kernel generation. Percentages and ratios have an empty `unit`."""

    quantity: str
    recorded: bool
    """Whether the run was recorded as `perf kvm stat` does, which slows it."""
    idle_hlt: str
    """off, on, or `on / off` for what compares both."""
    kernel: str
    simulated: float
    published: float | tuple[float, float]
    """A pair is a range: anything in it agrees with what was published."""
    tolerance: Tolerance
    low: float
    high: float
    """The verdict is whether `simulated` lies in low..high."""
    unit: str = ""
    digits: int = 0
    source: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data for JSON."""
        return {
            "kernel": self.kernel,
            "quantity": self.quantity,
            "unit": self.unit,
            "idle_hlt": self.idle_hlt,
            "recorded": self.recorded,
            "published": self.published,
            "simulated": self.simulated,
            "ratio": self.ratio,
            "tolerance": self.tolerance,
            "low": self.low,
            "high": self.high,
            "verdict": self.verdict,
            "source": self.source,
        }


def exact(value: float) -> tuple[Tolerance, float, float]:
    """Return the tolerance of a count that has to agree."""
    return "E", value, value


def within(tolerance: Tolerance, value: float, share: float) -> tuple[Tolerance, float, float]:
    """Return the tolerance of `value` within a share of itself, 0.1 for ±10 %."""
    return tolerance, value - abs(value) * share, value + abs(value) * share


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> str:
    """Return a Markdown table; the first `left` columns hold text, the others numbers."""
    rules = [":--" if index < left else "--:" for index in range(len(columns))]
    lines = [columns, rules, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


class _HasSetup(Protocol):
    @property
    def setup(self) -> str: ...


_RowT = TypeVar("_RowT", bound=_HasSetup)


def by_setup(rows: Iterable[_RowT]) -> dict[str, list[_RowT]]:
    """Return the rows of each set-up, in the order of their first."""
    setups: dict[str, list[_RowT]] = {}
    for row in rows:
        setups.setdefault(row.setup, []).append(row)
    return setups
