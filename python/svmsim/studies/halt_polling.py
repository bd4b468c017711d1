"""The halt-polling experiment: who polls, host or guest, how long, and what it gains and costs.

The founding ping-pong and transactions of the guest halt polling thread, TCP_RR, nanosleep and
block I/O, each beside its published figures; then a sweep of host window x guest window x wake gap
x runnable host tasks. docs/halt-polling.md describes every part.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svmsim.result import Result
from svmsim.scenario import Scenario
from svmsim.studies._halt_polling_rows import TRANSACTIONS, judged_rows
from svmsim.studies._halt_polling_sweep import Sweep, run_sweep
from svmsim.studies._seeds import SEEDS, Run, SeedRow, simulate
from svmsim.studies._table import TOLERANCES

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

PROFILE = "turin"
PCPUS = 32
"""Of the host of the transactions; its VM has as many vCPUs."""
IO_THREADS = {"name": "iothread", "count": 8, "phases": [{"run": "20us", "sleep": "60us"}]}
"""Beside the vCPUs of the transactions: more threads than pCPUs."""
HOST_WINDOWS = {"base": 200_000, "guest-spin": 0, "host-poll": 800_000}
GROWTH_KERNELS = ("6.1", "6.12")


def idle_scenario(tasks: str, **sections: Mapping[str, Any]) -> Scenario:
    """Return a task set on one pinned vCPU as a scenario; `sections` add to host, kvm, vm, run."""
    guest = {"name": "vm0", "vcpus": 1, "pin": [0], "workload": {"tasks": tasks}}
    return Scenario.from_dict(
        {
            "host": {"profile": PROFILE, "pcpus": 1, **sections.get("host", {})},
            "kvm": {"avic": False, **sections.get("kvm", {})},
            "vm": [guest | dict(sections.get("vm", {}))],
            "run": dict(sections.get("run", {})),
        }
    )


def _guest_polls(window_ns: int) -> dict[str, Any]:
    return {"idle": "cpuidle_kvm", "guest_halt_poll_ns": window_ns}


def _ping_pong(duration: str) -> list[Run]:
    def run(name: str, host_window: int, **vm: Any) -> Run:
        kvm, length = {"halt_poll_ns": host_window}, {"duration": duration}
        return Run(
            f"ping-pong-{name}", idle_scenario("pingpong", kvm=kvm, vm=vm, run=length), weight=2
        )

    window = 300_000
    return [
        run("host", 0, native=True),
        run("guest-poll", 0, **_guest_polls(window)),
        run("host-poll", window),
        run("no-poll", 0),
    ]


def _transactions(one: str, many: str) -> list[Run]:
    runs = []
    for tasks in TRANSACTIONS:
        for setting, window in HOST_WINDOWS.items():
            vm = {"vcpus": PCPUS, "pin": []}
            if setting == "guest-spin":
                vm |= _guest_polls(800_000)
            scenario = idle_scenario(
                tasks,
                host={"pcpus": PCPUS, "task": [IO_THREADS]},
                kvm={"halt_poll_ns": window},
                vm=vm,
                run={"duration": many if tasks.endswith("_100") else one},
            )
            weight = 20 if tasks.endswith("_100") else 4
            runs.append(Run(f"{tasks}-{setting}", scenario, weight))
    return runs


def _others(duration: str) -> list[Run]:
    length = {"duration": duration}
    c1 = {"cstate": [{"name": "C1", "latency": "1us", "residency": "2us", "wake": "1us"}]}
    # A fixed window: the first growth is to the largest one at once.
    windows: dict[str, dict[str, int]] = {
        "no-poll": {"halt_poll_ns": 0},
        "always": {"halt_poll_ns_grow_start": 200_000},
        "dynamic": {},
    }
    runs = [
        Run(f"tcp-rr-{name}", idle_scenario("pingpong", host=c1, kvm=kvm, run=length))
        for name, kvm in windows.items()
    ]
    half_ms = {"halt_poll_ns": 500_000}
    slack = {"timer_slack_ns": "50us"}
    runs.append(Run("nanosleep", idle_scenario("nanosleep", kvm=half_ms, vm=slack, run=length)))
    block: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
        "no-poll": ({"halt_poll_ns": 0}, {}),
        "poll": (half_ms, {}),
        "idle-poll": ({"halt_poll_ns": 0}, {"idle": "poll"}),
    }
    runs += [
        Run(f"block-io-{name}", idle_scenario("block_io", kvm=kvm, vm=vm, run=length))
        for name, (kvm, vm) in block.items()
    ]
    return runs


def published_runs(quick: bool = False) -> list[Run]:
    """Return the published set-ups, in a fixed order; `quick` makes them short."""
    length, one, many = ("20ms", "60ms", "15ms") if quick else ("100ms", "300ms", "100ms")
    return [*_ping_pong(length), *_transactions(one, many), *_others(length)]


def growth_results() -> dict[str, Result]:
    """Simulate short and long idles in turn, with events, by the host's kernel."""
    return {
        f"Linux {kernel}": idle_scenario(
            "wake_steps", host={"kernel": kernel}, run={"duration": "12ms"}
        ).run(events=True)
        for kernel in GROWTH_KERNELS
    }


@dataclass(frozen=True)
class Outcome:
    """What the study found."""

    runs: tuple[Run, ...]
    results: dict[str, list[Result]]
    """By name of the run; one for each seed."""
    rows: tuple[SeedRow, ...]
    sweep: Sweep
    growth: dict[str, Result]

    @property
    def holds(self) -> bool:
        """Whether every verdict holds."""
        return all(row.holds for row in self.rows)

    def to_json(self) -> str:
        """Return the table and the sweep as JSON text."""
        data = {
            "study": "halt-polling",
            "version": next(iter(self.results.values()))[0].version,
            "holds": self.holds,
            "tolerances": TOLERANCES,
            "rows": [row.to_dict() for row in self.rows],
            "sweep": self.sweep.frame.to_dicts(),
        }
        return json.dumps(data, indent=2, ensure_ascii=False) + "\n"

    def save(self, directory: str | Path) -> list[Path]:
        """Write tables, frames, pictures and results below a directory; return the main files.

        Raises:
            UserError: a file cannot be written.
        """
        from svmsim.studies import _halt_polling_output

        return _halt_polling_output.save(self, Path(directory))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from svmsim.studies import _halt_polling_output

        yield _halt_polling_output.view(self)


def study(progress: bool = False, quick: bool = False, seeds: int = SEEDS) -> Outcome:
    """Run the study, with as many simulations at once as there are CPUs.

    Args:
        progress: show a bar on standard error when it takes more than two seconds.
        quick: shorter runs and a small sweep.
        seeds: how often each published set-up is simulated.

    Raises:
        InternalError: a simulation failed.
    """
    planned = published_runs(quick)
    results = simulate("halt-polling", planned, seeds, progress)
    rows: Sequence[SeedRow] = judged_rows(results)
    return Outcome(tuple(planned), results, tuple(rows), run_sweep(quick), growth_results())
