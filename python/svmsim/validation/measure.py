"""How an item says what it simulates and what it takes from the results."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from svmsim.result import Result
from svmsim.scenario import Scenario

__all__ = ["MEASURES", "Less", "Measure", "Plan", "Run", "measures"]

Look = Callable[[Result], Any]
"""Takes plain data from a result with its events, in the process that simulated."""


@dataclass(frozen=True, slots=True)
class Run:
    """A simulation that an item needs; equal ones are made once."""

    scenario: Scenario
    look: Look | None = None
    """A function of a module; without one the result itself comes back."""
    weight: float = 1.0
    """A guess of the work."""


class Less(NamedTuple):
    """Two figures of which the second one shall be less, for a sign."""

    greater: float
    less: float


Plan = Generator[Sequence[Run | Scenario], list[Any], float | Less]
"""Yields what to simulate, gets the results in that order, returns the simulated figure."""
Measure = Callable[..., Plan]
"""Without arguments, or of a sign with `seed`."""

MEASURES: dict[str, Measure] = {}


def measures(
    items: Mapping[str, tuple[Any, ...]],
) -> Callable[[Callable[..., Plan]], Callable[..., Plan]]:
    """Make a function the measure of items, each with its arguments."""

    def register(plan: Callable[..., Plan]) -> Callable[..., Plan]:
        for id_, arguments in items.items():
            if id_ in MEASURES:
                raise ValueError(f"{id_} is measured twice")
            MEASURES[id_] = partial(plan, *arguments)
        return plan

    return register
