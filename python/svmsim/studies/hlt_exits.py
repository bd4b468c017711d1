"""The experiment on HLT exits: disabled on no, half and all vCPUs, on a quiet and a busy host.

A CPU-bound guest as Windows is one: a clock of 64 Hz on every vCPU, and workers that core parking
has packed on half of them. docs/hlt-exits.md describes it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svmsim.result import Result
from svmsim.scenario import Scenario
from svmsim.studies._hlt_exits_rows import DISABLED, HOSTS, judged_rows, measured
from svmsim.studies._seeds import SEEDS, Run, SeedRow, simulate
from svmsim.studies._table import TOLERANCES

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console, ConsoleOptions, RenderResult

VCPUS = 8
PARKED_FROM = 4
"""The guest's workers run on the vCPUs below this one."""
STRESS = {"name": "stress", "count": 4, "phases": [{"run": "3ms", "sleep": "1ms"}]}


def disabled_exits(which: str) -> list[Any]:
    """Return `vm.disable_exits` for `none`, `half` (the per-vCPU proposal) or `all` (VM-wide)."""
    if which == "all":
        return ["hlt"]
    vcpus = range(PARKED_FROM if which == "half" else 0)
    return [{"vcpu": vcpu, "exits": ["hlt"]} for vcpu in vcpus]


def runs(quick: bool = False) -> list[Run]:
    """Return every simulation of the study, in a fixed order; `quick` makes them short."""
    result = []
    for host in HOSTS:
        for which in DISABLED:
            scenario = Scenario.from_dict(
                {
                    "host": {
                        "profile": "turin",
                        "pcpus": VCPUS,
                        "task": [STRESS] if host == "stress" else [],
                    },
                    "kvm": {"avic": False},
                    "vm": [
                        {
                            "name": "vm0",
                            "vcpus": VCPUS,
                            "guest_hz": 64,
                            "disable_exits": disabled_exits(which),
                            "workload": {"tasks": "windows"},
                        }
                    ],
                    "run": {"duration": "200ms" if quick else "1s"},
                }
            )
            result.append(Run(f"{host}-{which}", scenario))
    return result


@dataclass(frozen=True)
class Outcome:
    """What the study found."""

    runs: tuple[Run, ...]
    results: dict[str, list[Result]]
    """By name of the run; one for each seed."""
    rows: tuple[SeedRow, ...]

    @property
    def holds(self) -> bool:
        """Whether every verdict holds."""
        return all(row.holds for row in self.rows)

    @property
    def frame(self) -> pl.DataFrame:
        """A row for each run and seed: score, host threads' latency, switches, preemptions."""
        return measured(self.results)

    def to_json(self) -> str:
        """Return the table and the measurements as JSON text."""
        data = {
            "study": "hlt-exits",
            "version": next(iter(self.results.values()))[0].version,
            "holds": self.holds,
            "tolerances": TOLERANCES,
            "rows": [row.to_dict() for row in self.rows],
            "measurements": self.frame.to_dicts(),
        }
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"

    def save(self, directory: str | Path) -> list[Path]:
        """Write tables, frames, pictures and results below a directory; return the main files.

        Raises:
            UserError: a file cannot be written.
        """
        from svmsim.studies import _hlt_exits_output

        return _hlt_exits_output.save(self, Path(directory))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from svmsim.studies import _hlt_exits_output

        yield _hlt_exits_output.view(self)


def study(progress: bool = False, quick: bool = False, seeds: int = SEEDS) -> Outcome:
    """Run the study, with as many simulations at once as there are CPUs.

    Args:
        progress: show a bar on standard error when it takes more than two seconds.
        quick: shorter runs.
        seeds: how often each configuration is simulated.

    Raises:
        InternalError: a simulation failed.
    """
    planned = runs(quick)
    results = simulate("hlt-exits", planned, seeds, progress)
    return Outcome(tuple(planned), results, tuple(judged_rows(results)))
