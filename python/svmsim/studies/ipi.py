"""The IPI experiment: ICR writes, PV_SEND_IPI, AVIC and x2AVIC, by APIC driver, target and fan-out.

Norov's IPI benchmark as a guest. The published set-ups come first, each beside its figures; then
the grid of {no AVIC, AVIC, x2AVIC} x {ICR, PV_SEND_IPI} x APIC driver x target x fan-out.
"""

from __future__ import annotations

import importlib
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
from svmsim.studies._ipi_rows import IpiRow, judged_rows
from svmsim.studies._table import TOLERANCES

if TYPE_CHECKING:
    import polars as pl
    from rich.console import Console, ConsoleOptions, RenderResult

PATHS = ("no AVIC", "AVIC", "x2AVIC")
METHODS = ("ICR", "PV_SEND_IPI")
DRIVERS = ("xAPIC flat", "xAPIC physical", "x2APIC physical", "x2APIC cluster")
TARGETS = ("running", "polling", "halted", "preempted")
FAN_OUTS = (1, 3, 7, 15, 31, 63)
FULL_FAN_OUTS = (1, 2, 3, 4, 5, 6, 7, 8, 15, 16, 31, 32, 63, 64, 127, 128, 191, 254, 255)
MOST = {"xAPIC flat": 7, "xAPIC physical": 253, "x2APIC physical": 255, "x2APIC cluster": 255}
"""Targets that a driver can address; the preempted ones need as many vCPUs again."""
GAP_CYCLES = 200_000
"""Between two calls where the targets halt: enough for each to block."""
PREEMPTED_GAP_CYCLES = 13_500_000
"""Between two calls where the targets are preempted: 5 ms, which lie in the competitor's slice."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One point of the grid."""

    path: str
    method: str
    driver: str
    target: str
    fan_out: int

    @property
    def name(self) -> str:
        """File name of its result."""
        words = (self.path, self.method, self.driver, self.target, str(self.fan_out))
        return "-".join(words).replace(" ", "_").lower()


@dataclass(frozen=True, slots=True)
class Run:
    """One simulation: a cell of the grid, or a published set-up."""

    name: str
    scenario: Scenario
    weight: float
    """A guess of the work, in deliveries."""
    cell: Cell | None = None


def cells(full: bool = False) -> Iterator[Cell]:
    """Give the points of the grid, in a fixed order; all of them, or a sensible part."""
    for path in PATHS:
        for driver in DRIVERS:
            # x2AVIC is AVIC for a guest in x2APIC mode; in xAPIC mode it is AVIC.
            if path == "x2AVIC" and not driver.startswith("x2APIC"):
                continue
            for method in METHODS:
                for target in TARGETS:
                    fan_outs: tuple[int, ...] = FULL_FAN_OUTS if full else FAN_OUTS
                    if target == "preempted" and not full:
                        fan_outs = FAN_OUTS[:3]
                    for fan_out in fan_outs:
                        if fan_out <= MOST[driver]:
                            yield Cell(path, method, driver, target, fan_out)


def _guest(driver: str, method: str) -> dict[str, Any]:
    apic, _, kind = driver.partition(" ")
    return {
        "apic": apic.lower(),
        "apic_driver": kind,
        "pv": ["send_ipi"] if method == "PV_SEND_IPI" else [],
        "pit": "discard",
    }


def _host(path: str, profile: str, pcpus: int) -> dict[str, Any]:
    features = {"AVIC": ["+avic", "-x2avic"], "x2AVIC": ["+avic", "+x2avic"]}
    return {
        "profile": profile,
        "pcpus": pcpus,
        "kernel": "6.12",
        "features": features.get(path, []),
    }


def _cell_run(cell: Cell) -> Run:
    preempted = cell.target == "preempted"
    halts = cell.target in ("polling", "halted")
    iterations = 100_000 if preempted else max(20, 2000 // cell.fan_out)
    workload: dict[str, Any] = {
        "kind": "ipi_benchmark",
        "test": "normal" if cell.fan_out == 1 else "broadcast",
        "fan_out": cell.fan_out,
        "target": "halt" if halts else "busy",
        "iterations": iterations,
        "gap_cycles": PREEMPTED_GAP_CYCLES if preempted else GAP_CYCLES if halts else 0,
    }
    vcpus = cell.fan_out + 1
    guest = _guest(cell.driver, cell.method) | {
        "name": "vm0",
        "vcpus": vcpus,
        "pin": list(range(vcpus)),
        "no_ipi_broadcast": True,
        "workload": workload,
    }
    vms = [guest]
    run: dict[str, Any] = {}
    if preempted:
        # A competitor beside each target; the run ends by time, since it never does.
        load = {"name": "load", "vcpus": cell.fan_out, "pin": list(range(1, vcpus))}
        vms.append(load | {"workload": {"kind": "busy"}})
        run = {"duration": "400ms"}
    scenario = Scenario.from_dict(
        {
            # Without the host's tick every exit is the guest's; preemption needs it.
            "host": _host(cell.path, "turin", vcpus) | {"hz": 250 if preempted else 0},
            "kvm": {
                "avic": cell.path != "no AVIC",
                "halt_poll_ns": 0 if cell.target == "halted" else 200_000,
            },
            "vm": vms,
            "run": run,
        }
    )
    weight = 200 * cell.fan_out if preempted else iterations * cell.fan_out
    return Run(cell.name, scenario, weight, cell)


def published_runs() -> list[Run]:
    """Return the published set-ups, in a fixed order."""
    zen2 = {
        "host": _host("AVIC", "zen2", 2),
        "kvm": {"avic": True},
        "vm": [
            _guest("xAPIC flat", "ICR")
            | {
                "name": "vm0",
                "vcpus": 2,
                "pin": [0, 1],
                "workload": {"kind": "ipi_benchmark", "target": "poll", "iterations": 20_000},
            }
        ],
    }
    base = Scenario.from_dict(zen2)
    send = base.with_(vm={"workload": {"test": "send", "gap_cycles": 20_000, "iterations": 5000}})
    pv = {"pv": ["send_ipi"]}
    skylake = Scenario.from_dict(
        {
            "host": _host("x2AVIC", "skylake", 80),
            "kvm": {"avic": True, "enable_ipiv": False},
            "vm": [
                _guest("x2APIC physical", "ICR")
                | {
                    "name": "vm0",
                    "vcpus": 80,
                    "pin": list(range(80)),
                    "no_ipi_broadcast": True,
                    "workload": {
                        "kind": "ipi_benchmark",
                        "target": "poll",
                        "test": "broadcast",
                        "iterations": 100,
                    },
                }
            ],
        }
    )
    single = skylake.with_(vm={"workload": {"test": "normal", "iterations": 2000}})
    cluster = single.with_(vm={"apic_driver": "cluster"})
    pair = single.with_(
        host={"pcpus": 2}, vm={"vcpus": 2, "pin": [0, 1], "workload": {"iterations": 5000}}
    )
    return [
        Run("round-trip-avic", base, 20_000),
        Run("round-trip-pv", base.with_(vm=pv), 20_000),
        Run("send-avic", send, 5000),
        Run("send-pv", send.with_(vm=pv), 5000),
        Run("broadcast-icr", skylake, 7900),
        Run("broadcast-pv", skylake.with_(vm=pv), 7900),
        Run("unicast-icr", single, 2000),
        Run("cluster-icr", cluster, 2000),
        Run("cluster-pv", cluster.with_(vm=pv), 2000),
        Run("hardware-exit", pair, 5000),
        Run("hardware-no-exit", pair.with_(kvm={"enable_ipiv": True}), 5000),
    ]


def runs(full: bool = False) -> list[Run]:
    """Return every simulation of the study."""
    return published_runs() + [_cell_run(cell) for cell in cells(full)]


def exits_per_call(result: Result, vcpu: int) -> float:
    """Return exits of a vCPU of vm0 for each call of the benchmark.

    Left out: those for PAUSE, and interrupts at the sender, which are the host's tick.
    """
    import polars as pl

    mine = result.exits.filter((pl.col("vm") == "vm0") & (pl.col("vcpu") == vcpu))
    left_out = ["pause", "interrupt"] if vcpu == 0 else ["pause"]
    counted = mine.filter(~pl.col("exit").is_in(left_out))
    calls = max(1.0, float(result.metrics.get("vm0.0.iterations", 0)))
    return float(counted["count"].sum()) / calls


QUANTILES = {"min": 0.0, "p5": 0.05, "p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9}
QUANTILES |= {"p95": 0.95, "p99": 0.99, "p999": 0.999, "max": 1.0}


def grid_frame(runs: tuple[Run, ...], results: Mapping[str, Result]) -> pl.DataFrame:
    """Return one row for each cell: exits of sender and first receiver, cost, latency quantiles."""
    import polars as pl

    rows = []
    for run in runs:
        if run.cell is None:
            continue
        result, cell = results[run.name], run.cell
        metrics = result.metrics
        row: dict[str, Any] = {
            "path": cell.path,
            "method": cell.method,
            "driver": cell.driver,
            "target": cell.target,
            "fan_out": cell.fan_out,
            "iterations": int(metrics["vm0.0.iterations"]),
            "sender_exits": exits_per_call(result, 0),
            "receiver_exits": exits_per_call(result, 1),
            "total_ns": metrics.get("vm0.0.total_ns"),
            "latency_mean_ns": metrics.get("vm0.0.latency_mean_ns"),
        }
        row |= {f"latency_{q}_ns": metrics.get(f"vm0.0.latency_{q}_ns") for q in QUANTILES}
        rows.append(row)
    return pl.DataFrame(rows)


@dataclass(frozen=True)
class Outcome:
    """What the study found."""

    runs: tuple[Run, ...]
    results: dict[str, Result]
    rows: tuple[IpiRow, ...]

    @property
    def holds(self) -> bool:
        """Whether every verdict holds."""
        return all(row.holds for row in self.rows)

    @property
    def grid(self) -> pl.DataFrame:
        """The grid, one row for each cell."""
        return grid_frame(self.runs, self.results)

    def to_json(self) -> str:
        """Return the table and the grid as JSON text."""
        data = {
            "study": "ipi",
            "version": next(iter(self.results.values())).version,
            "holds": self.holds,
            "tolerances": TOLERANCES,
            "rows": [row.to_dict() for row in self.rows],
            "grid": self.grid.to_dicts(),
        }
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"

    def save(self, directory: str | Path) -> list[Path]:
        """Write tables, frames, pictures and results below a directory; return the main files.

        Raises:
            UserError: a file cannot be written.
        """
        from svmsim.studies import _ipi_output

        return _ipi_output.save(self, Path(directory))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from svmsim.studies import _ipi_output

        yield _ipi_output.view(self)


def study(progress: bool = False, full: bool = False) -> Outcome:
    """Run the study, with as many simulations at once as there are CPUs.

    Args:
        progress: show a bar on standard error when it takes more than two seconds.
        full: every fan-out of the grid, up to 255 targets, instead of a part.

    Raises:
        InternalError: a simulation failed.
    """
    planned = runs(full)
    scenarios = [run.scenario for run in planned]
    with (
        SimulationPool(scenarios, [run.weight for run in planned]) as pool,
        ProgressBar("ipi", enabled=progress) as bar,
    ):
        importlib.import_module("svmsim.plot")
        simulated = pool.results(bar)
    results = {run.name: result for run, result in zip(planned, simulated, strict=True)}
    for name, result in results.items():
        if result.failure:
            raise InternalError(f"{name}: {result.failure}")
    return Outcome(tuple(planned), results, tuple(judged_rows(results)))
