"""The idle-HLT experiment: the guest program of the patch series, with the intercept off and on.

One vCPU, AVIC off. Each mode runs twice: recorded as `perf kvm stat` records, which costs time for
every event, and not recorded. The published exit counts are of recorded runs, the published cycles
per iteration of runs that were not.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from svmsim._pool import SimulationPool
from svmsim._progress import ProgressBar
from svmsim.errors import InternalError
from svmsim.result import Result
from svmsim.scenario import Scenario
from svmsim.studies._idle_hlt_rows import (
    SLOW_RECORDING_CYCLES,
    oddities,
    plain_rows,
    recorded_rows,
)
from svmsim.studies._table import TOLERANCES, Row

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

KERNELS = ("6.1", "6.12", "6.18")
JUDGED = "6.1"
"""The kernel generation whose verdicts decide; the published host ran one without HLT fastpath."""

RECORDED_EVENTS = ("kvm_entry", "kvm_exit", "kvm_msr", "kvm_pio")
RECORDING_CYCLES = 500


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation of the study."""

    name: str
    kernel: str
    idle_hlt: bool
    recorded: bool
    scenario: Scenario
    weight: float
    """A guess of the work, in VM exits."""


def runs() -> list[Run]:
    """Return every simulation of the study, in a fixed order."""
    result = []
    for kernel in KERNELS:
        base = Scenario.from_dict(
            {
                "host": {"profile": "turin", "pcpus": 1, "kernel": kernel},
                "kvm": {"avic": False},
                "vm": [
                    {
                        "name": "vm0",
                        "vcpus": 1,
                        "pin": [0],
                        "apic": "x2apic",
                        "workload": {"kind": "idle_hlt_test"},
                    }
                ],
            }
        )
        events = list(RECORDED_EVENTS)
        recorded = base.with_(host={"tracepoints": events, "cost": {"t_trace": RECORDING_CYCLES}})
        for on in (False, True):
            mode = "on" if on else "off"
            exits = 3 if on else 4
            for is_recorded, scenario in ((True, recorded), (False, base)):
                weight = exits * (262_080 if is_recorded else 524_224)
                state = "recorded" if is_recorded else "plain"
                scenario = scenario.set("kvm.idle_hlt", on)
                name = f"{kernel}-{mode}-{state}"
                result.append(Run(name, kernel, on, is_recorded, scenario, weight))
        # How slow recording must be for the harness to end one doubling earlier.
        slow = recorded.with_(
            kvm={"idle_hlt": False}, host={"cost": {"t_trace": SLOW_RECORDING_CYCLES}}
        )
        result.append(Run(f"{kernel}-off-slow", kernel, False, True, slow, 524_288))
        # What an un-intercepted HLT that ends at once costs, by leaving its cost out.
        free = base.with_(
            kvm={"idle_hlt": True},
            host={"cost": {"t_halt_abort": 0}},
            vm={"workload": {"iterations": 4096}},
        )
        result.append(Run(f"{kernel}-on-free-halt", kernel, True, False, free, 12_288))
        user_io = recorded.with_(vm={"workload": {"kind": "user_io", "iterations": 4096}})
        result.append(Run(f"{kernel}-user-io", kernel, False, True, user_io, 4096))
    return result


def table_rows(results: Mapping[str, Result]) -> list[Row]:
    """Return the study's table from the results of `runs` by name."""
    return [
        row
        for kernel in KERNELS
        for make in (recorded_rows, plain_rows)
        for row in make(kernel, results)
    ]


@dataclass(frozen=True)
class Outcome:
    """What the study found."""

    runs: tuple[Run, ...]
    results: dict[str, Result]
    rows: tuple[Row, ...]

    @property
    def holds(self) -> bool:
        """Whether every verdict of the judged kernel generation holds."""
        return all(row.holds for row in self.rows if row.kernel == JUDGED)

    def to_json(self) -> str:
        """Return the table and its notes as JSON text."""
        data = {
            "study": "idle-hlt",
            "version": next(iter(self.results.values())).version,
            "judged_kernel": JUDGED,
            "holds": self.holds,
            "recorded_events": RECORDED_EVENTS,
            "t_trace_cycles": RECORDING_CYCLES,
            "tolerances": TOLERANCES,
            "rows": [row.to_dict() for row in self.rows],
            "oddities": [
                {"quantity": what, "printed": printed, "recomputed": recomputed}
                for what, printed, recomputed in oddities()
            ],
        }
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"

    def save(self, directory: str | Path) -> list[Path]:
        """Write tables, frames, pictures and results below a directory; return the main files.

        Raises:
            UserError: a file cannot be written.
        """
        from svmsim.studies import _idle_hlt_output

        return _idle_hlt_output.save(self, Path(directory))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from svmsim.studies import _idle_hlt_output

        yield _idle_hlt_output.view(self)


def study(progress: bool = False) -> Outcome:
    """Run the study, with as many simulations at once as there are CPUs.

    Args:
        progress: show a bar on standard error when it takes more than two seconds.

    Raises:
        InternalError: a simulation failed.
    """
    planned = runs()
    scenarios = [run.scenario for run in planned]
    with (
        SimulationPool(scenarios, [run.weight for run in planned]) as pool,
        ProgressBar("idle-hlt", enabled=progress) as bar,
    ):
        # Slow to import and needed for the output: at no cost of time while the workers simulate.
        importlib.import_module("svmsim.plot")
        simulated = pool.results(bar)
    results = {run.name: result for run, result in zip(planned, simulated, strict=True)}
    for name, result in results.items():
        if result.failure:
            raise InternalError(f"{name}: {result.failure}")
    return Outcome(tuple(planned), results, tuple(table_rows(results)))
