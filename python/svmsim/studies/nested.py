"""The nested study: what idle HLT is worth for guests of guests.

A KVM-like and a Hyper-V-like guest hypervisor (L1) run `idle_hlt_test` and a request/response task
set as their guest (L2), with the idle-HLT intercept not offered to L1, offered, and emulated by L0.
Nothing of it has been published as numbers: exits follow from the rules in docs/nested.md, times
from the exits and the profile's costs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svmsim._pool import SimulationPool
from svmsim._progress import ProgressBar
from svmsim.errors import InternalError
from svmsim.result import Result
from svmsim.scenario import Scenario

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console, ConsoleOptions, RenderResult

STYLES = ("kvm", "hyperv")
MODES = ("none", "expose", "emulate")
AVIC = (False, True)
WORKLOADS = ("idle_hlt_test", "transactions")
FEWER, MORE = 1000, 3000
"""Iterations of the two runs whose difference is the exits of one iteration."""
TRANSACTIONS = 3200
"""Of the built-in task set: 8 workers, 400 loops each."""
LEVELS = ("reflected", "handled", "l1")
"""Exits from L2 given to L1, exits from L2 that L0 handles, exits of L1 itself."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the study."""

    style: str
    mode: str
    avic: bool
    workload: str

    @property
    def name(self) -> str:
        """File name of its results."""
        avic = "avic" if self.avic else "noavic"
        return f"{self.workload}-{self.style}-{self.mode}-{avic}"


def cells() -> Iterator[Cell]:
    """Give every cell, in a fixed order."""
    for workload in WORKLOADS:
        for style in STYLES:
            for avic in AVIC:
                for mode in MODES:
                    yield Cell(style, mode, avic, workload)


def _scenario(cell: Cell, iterations: int) -> Scenario:
    # Offered to L1 needs a CPU with the intercept; the other two modes are for one without.
    feature = "+idle_hlt" if cell.mode == "expose" else "-idle_hlt"
    workload: dict[str, Any] = {"tasks": "transactions"}
    if cell.workload == "idle_hlt_test":
        workload = {"kind": "idle_hlt_test", "iterations": iterations}
    return Scenario.from_dict(
        {
            "host": {"profile": "turin", "kernel": "6.18", "hz": 0, "features": [feature]},
            "kvm": {"nested": True, "nested_idle_hlt": cell.mode, "avic": cell.avic},
            "vm": [{"l1": cell.style, "pin": [0], "pit": "discard", "workload": workload}],
        }
    )


def runs() -> dict[str, Scenario]:
    """Return every simulation of the study, by name."""
    result = {}
    for cell in cells():
        if cell.workload == "idle_hlt_test":
            result[f"{cell.name}-{FEWER}"] = _scenario(cell, FEWER)
        result[f"{cell.name}-{MORE}"] = _scenario(cell, MORE)
    return result


def derived(style: str, mode: str) -> dict[str, dict[str, int]]:
    """Return the exits of one iteration of `idle_hlt_test` by level and kind, from the rules.

    An ICR write and an EOI always reach L1. The HLT finds a V_INTR pending in vmcb12, so that only
    a plain HLT intercept gives it to L1. Style kvm has the V_INTR for its window alone, and takes
    a vintr exit to inject; style hyperv has the CPU deliver. L1 enters L2 again behind each exit.
    """
    reflected = {"msr": 2}
    handled: dict[str, int] = {}
    if mode == "none":
        reflected["hlt"] = 1
    if mode == "emulate":
        handled["hlt"] = 1
    if style == "kvm":
        reflected["vintr"] = 1
    return {"reflected": reflected, "handled": handled, "l1": {"vmrun": sum(reflected.values())}}


def exits_by_level(result: Result) -> dict[tuple[str, str], int]:
    """Return how many exits there were, by level and kind."""
    counts: dict[tuple[str, str], int] = {}
    for vcpu in result.to_dict()["vcpus"]:
        for kind, levels in vcpu.get("nested", {}).items():
            values = {
                "reflected": levels["reflected"],
                "handled": levels["l2"] - levels["reflected"],
                "l1": levels["l1"],
            }
            for level, count in values.items():
                if count:
                    counts[level, kind] = counts.get((level, kind), 0) + count
    return counts


def _host_ns(result: Result) -> float:
    return float(result.pcpus["host_ns"].sum()) + float(result.pcpus["poll_ns"].sum())


def _per_unit(
    cell: Cell, results: Mapping[str, Result]
) -> tuple[dict[tuple[str, str], float], float]:
    """Return exits by level and kind, and ns of L0, of one iteration or transaction."""
    more = results[f"{cell.name}-{MORE}"]
    if cell.workload != "idle_hlt_test":
        counts = exits_by_level(more)
        return {key: n / TRANSACTIONS for key, n in counts.items()}, _host_ns(more) / TRANSACTIONS
    fewer = results[f"{cell.name}-{FEWER}"]
    before, after = exits_by_level(fewer), exits_by_level(more)
    span = MORE - FEWER
    exits = {key: (n - before.get(key, 0)) / span for key, n in after.items()}
    host = (_host_ns(more) - _host_ns(fewer)) / span
    return {key: n for key, n in exits.items() if n}, host


def frame(results: Mapping[str, Result]) -> pl.DataFrame:
    """Return a row per cell, level and kind of exit: its count per unit, and the derived one."""
    import polars as pl

    rows = []
    for cell in cells():
        exits, host_ns = _per_unit(cell, results)
        expected = derived(cell.style, cell.mode) if cell.workload == "idle_hlt_test" else {}
        by_rule = {
            (level, kind): n for level, kinds in expected.items() for kind, n in kinds.items()
        }
        for level, kind in sorted({*exits, *by_rule}):
            rows.append(
                {
                    "workload": cell.workload,
                    "l1": cell.style,
                    "nested_idle_hlt": cell.mode,
                    "avic": cell.avic,
                    "level": level,
                    "exit": kind,
                    "count": exits.get((level, kind), 0.0),
                    "derived": by_rule.get((level, kind), 0) if by_rule else None,
                    "host_ns": host_ns,
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)


@dataclass(frozen=True)
class Outcome:
    """What the study found."""

    results: dict[str, Result]
    table: pl.DataFrame

    @property
    def holds(self) -> bool:
        """Whether every simulated count of `idle_hlt_test` is the derived one."""
        judged = self.table.drop_nulls("derived")
        return bool((judged["count"] == judged["derived"]).all())

    def to_json(self) -> str:
        """Return the table as JSON text."""
        data = {"study": "nested", "holds": self.holds, "rows": self.table.to_dicts()}
        return json.dumps(data, indent=2) + "\n"

    def save(self, directory: str | Path) -> list[Path]:
        """Write table, frame, picture and results below a directory; return the main files.

        Raises:
            UserError: a file cannot be written.
        """
        from svmsim.studies import _nested_output

        return _nested_output.save(self, Path(directory))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from svmsim.studies import _nested_output

        yield _nested_output.view(self)


def study(progress: bool = False) -> Outcome:
    """Run the study, with as many simulations at once as there are CPUs.

    Args:
        progress: show a bar on standard error when it takes more than two seconds.

    Raises:
        InternalError: a simulation failed.
    """
    planned = runs()
    scenarios = list(planned.values())
    with (
        SimulationPool(scenarios, [1.0] * len(scenarios)) as pool,
        ProgressBar("nested", enabled=progress) as bar,
    ):
        simulated = pool.results(bar)
    results = dict(zip(planned, simulated, strict=True))
    for name, result in results.items():
        if result.failure:
            raise InternalError(f"{name}: {result.failure}")
    return Outcome(results, frame(results))
