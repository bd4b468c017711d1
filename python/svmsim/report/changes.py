"""What swept parameters changed, in the words of a report."""

from __future__ import annotations

import math
from dataclasses import dataclass

from svmsim.analysis.comparison import MORE_IS_BETTER, SAME_PCT, Change, Comparison
from svmsim.analysis.comparison_view import interval_text, number_text
from svmsim.plot._data import spoken

__all__ = ["PRIMARY", "Line", "Step", "steps_of", "worst"]

PRIMARY = (
    "exits",
    "busy_ns",
    "latency.wakeup.mean_ns",
    "latency.wakeup.p99_ns",
    "latency.ipi.mean_ns",
)
"""What decides a verdict; the other metrics say where it comes from."""

_NAMES = {
    "exits": "VM exits",
    "exit_time_ns": "time in exits",
    "handling_ns": "time handling exits",
    "polling_ns": "time halt polling",
    "busy_ns": "CPU time burnt",
}
_MINUS = "\N{MINUS SIGN}"


@dataclass(frozen=True, slots=True)
class Line:
    """One change, ready to be read."""

    change: Change

    @property
    def name(self) -> str:
        """The metric in words."""
        return _NAMES.get(self.change.metric) or spoken(self.change.metric, "")

    @property
    def verdict(self) -> str:
        """That of the change; of a single pair, what its sign says."""
        change = self.change
        if change.verdict != "single":
            return change.verdict
        if change.pct is not None and abs(change.pct) < SAME_PCT:
            return "same"
        if change.difference == 0:
            return "same"
        more_is_better = change.metric in MORE_IS_BETTER
        return "better" if (change.difference > 0) is more_is_better else "worse"

    @property
    def old(self) -> str:
        """The mean before, with its unit."""
        return number_text(self.change.old, self.change.unit)

    @property
    def new(self) -> str:
        """The mean after, with its unit."""
        return number_text(self.change.new, self.change.unit)

    @property
    def pct(self) -> str:
        """The change in per cent."""
        if self.change.pct is None:
            return "from 0"
        return f"{self.change.pct:+,.1f} %".replace("-", _MINUS)

    @property
    def interval(self) -> str:
        """Its 95 % interval."""
        if self.change.pairs < 2:
            return "one pair"
        return interval_text(self.change).replace("-", _MINUS)


@dataclass(frozen=True, slots=True)
class Step:
    """From a parameter's first value to another one, over all runs."""

    old_value: str
    new_value: str
    lines: list[Line]
    primary: tuple[str, ...] = PRIMARY

    @property
    def headline(self) -> str:
        """The answer at a glance, from what matters in the end."""
        words = {
            verdict: [x for x in self.lines if x.verdict == verdict and self._decides(x)]
            for verdict in ("better", "worse", "unclear")
        }
        better, worse, unclear = (_listed(words[name]) for name in ("better", "worse", "unclear"))
        if not better and not worse:
            return f"unclear, more seeds are needed: {unclear}" if unclear else "no difference"
        if better and worse:
            said = f"a trade: {better}, but {worse}"
        else:
            said = f"helps: {better}" if better else f"hurts: {worse}"
        return f"{said}; unclear: {unclear}" if unclear else said

    def _decides(self, line: Line) -> bool:
        return line.change.metric in self.primary


def _listed(lines: list[Line]) -> str:
    return ", ".join(f"{line.name} {line.pct}" for line in lines)


def steps_of(comparison: Comparison, metrics: tuple[str, ...] | None) -> list[Step]:
    """Return the steps of a comparison; `metrics` decide, if the campaign names them."""
    found: dict[tuple[str, str], list[Line]] = {}
    for change in comparison.overall:
        found.setdefault((change.old_value, change.new_value), []).append(Line(change))
    primary = metrics or PRIMARY
    return [Step(*ends, lines, primary) for ends, lines in found.items()]


def worst(
    comparisons: list[Comparison], metrics: tuple[str, ...] | None, most: int = 20
) -> list[tuple[str, Line]]:
    """Return what got worse in some configuration with the key that did it, the worst first."""
    primary = metrics or PRIMARY
    found = [
        (comparison.key, Line(change))
        for comparison in comparisons
        for change in comparison.changes or comparison.overall
        if change.metric in primary
    ]
    found = [(key, line) for key, line in found if line.verdict == "worse"]
    found.sort(key=lambda one: -_size(one[1].change))
    return found[:most]


def _size(change: Change) -> float:
    return math.inf if change.pct is None else abs(change.pct)
