"""What the idle studies share: every run with several seeds, and rows that judge all of them."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from svmsim._pool import SimulationPool
from svmsim._progress import ProgressBar
from svmsim.errors import InternalError
from svmsim.result import Result
from svmsim.scenario import Scenario
from svmsim.studies._table import Judged, Tolerance

SEEDS = 5


@dataclass(frozen=True, slots=True)
class Run:
    """One configuration of a study; it is simulated once for each seed."""

    name: str
    scenario: Scenario
    weight: float = 1.0
    """A guess of the work, relative to the others."""


Results = Mapping[str, Sequence[Result]]
"""Results by name of the run, one for each seed."""


def simulate(name: str, runs: Sequence[Run], seeds: int, progress: bool) -> dict[str, list[Result]]:
    """Simulate every run with seeds 1 to `seeds`, as many at once as there are CPUs.

    Raises:
        InternalError: a simulation failed.
    """
    planned = [(run, seed) for run in runs for seed in range(1, seeds + 1)]
    scenarios = [run.scenario.set("run.seed", seed) for run, seed in planned]
    with (
        SimulationPool(scenarios, [run.weight for run, _ in planned]) as pool,
        ProgressBar(name, enabled=progress) as bar,
    ):
        # Slow to import and needed for the output: at no cost of time while the workers simulate.
        importlib.import_module("svmsim.plot")
        simulated = pool.results(bar)
    results: dict[str, list[Result]] = {run.name: [] for run in runs}
    for (run, seed), result in zip(planned, simulated, strict=True):
        if result.failure:
            raise InternalError(f"{run.name}, seed {seed}: {result.failure}")
        results[run.name].append(result)
    return results


def each_seed(measure: Callable[..., float], *results: Sequence[Result]) -> list[float]:
    """Return `measure` of the results of one seed after the other."""
    return [measure(*same) for same in zip(*results, strict=True)]


@dataclass(frozen=True, slots=True)
class SeedRow(Judged):
    """One published quantity; the verdict holds when it holds for every seed."""

    setup: str
    quantity: str
    values: tuple[float, ...]
    """Simulated, by seed."""
    simulated: float
    """Their mean."""
    published: float | tuple[float, float] | None
    tolerance: Tolerance
    low: float
    high: float
    unit: str
    digits: int
    source: str
    note: str
    """Why a figure that does not fit does not; empty otherwise."""

    @property
    def holds(self) -> bool:
        """Whether every seed's figure is within the tolerance; always so when not judged."""
        inside = all(self.low <= value <= self.high for value in self.values)
        # A sign must be larger than what the seeds differ by.
        spread = max(self.values) - min(self.values)
        clear = self.tolerance != "D" or spread == 0 or abs(self.simulated) > spread / 2
        return self.tolerance == "-" or (inside and clear)

    @property
    def band(self) -> str:
        """What is accepted, as text."""
        if self.tolerance == "-":
            return ""
        if math.isinf(self.high):
            return f"> {self.number(self.low)}"
        if math.isinf(self.low):
            return f"< {self.number(self.high)}"
        return f"{self.number(self.low)}..{self.number(self.high)}"

    @property
    def spread_text(self) -> str:
        """Least and greatest of the seeds."""
        return f"{self.number(min(self.values))}..{self.number(max(self.values))}"

    def to_dict(self) -> dict[str, Any]:
        """Return the row as plain data for JSON."""
        names = ("setup", "quantity", "unit", "published", "simulated", "values", "ratio")
        data = {name: getattr(self, name) for name in (*names, "tolerance")}
        return data | {
            "low": None if math.isinf(self.low) else self.low,
            "high": None if math.isinf(self.high) else self.high,
            "verdict": self.verdict,
            "note": self.note,
            "source": self.source,
        }


Band = tuple[Tolerance, float, float]
NOT_JUDGED: Band = ("-", 0.0, 0.0)


def around(value: float, band: float) -> Band:
    """Return the tolerance of a ratio within ±band."""
    return "R", value - band, value + band


def above(value: float, tolerance: Tolerance = "D") -> Band:
    """Return the tolerance of what must be greater than `value`."""
    return tolerance, math.nextafter(value, math.inf), math.inf


def below(value: float, tolerance: Tolerance = "D") -> Band:
    """Return the tolerance of what must be less than `value`."""
    return tolerance, -math.inf, math.nextafter(value, -math.inf)


class Sheet:
    """Collects the rows of one set-up."""

    def __init__(self, setup: str, source: str) -> None:
        self.rows: list[SeedRow] = []
        self._setup = setup
        self._source = source

    def add(
        self,
        quantity: str,
        values: Sequence[float],
        public: float | tuple[float, float] | None,
        band: Band,
        *,
        unit: str = "",
        digits: int = 2,
        note: str = "",
    ) -> None:
        """Add one row, of the values by seed."""
        self.rows.append(
            SeedRow(
                setup=self._setup,
                quantity=quantity,
                values=tuple(values),
                simulated=fmean(values),
                published=public,
                tolerance=band[0],
                low=band[1],
                high=band[2],
                unit=unit,
                digits=digits,
                source=self._source,
                note=note,
            )
        )
