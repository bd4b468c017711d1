"""Rows C-22 and C-23: more vCPUs than pCPUs."""

from __future__ import annotations

from typing import Any

from svmsim.result import Result
from svmsim.scenario import Scenario
from svmsim.validation.guests import program, tasks
from svmsim.validation.measure import Less, Plan, Run, measures

FILTER = 3000
PAUSES = 30_000


@measures({"C-22.pauses": ()})
def pauses_of_exit() -> Plan:
    """PAUSEs for each exit: two runs that differ in their number alone, the window fixed."""
    scenario = Scenario.from_dict(
        {
            "host": {"profile": "zen2", "hz": 0},
            "kvm": {"pause_filter_count": FILTER, "pause_filter_count_grow": 0},
            "vm": [{"pin": [0], "workload": {"kind": program("pause_loop")}}],
        }
    )
    few, many = yield [
        scenario.with_(vm={"workload": {"pauses": count}}) for count in (PAUSES, 2 * PAUSES)
    ]
    exits = [result.exit_totals["pause"]["count"] for result in (few, many)]
    return float(PAUSES / (exits[1] - exits[0]))


def _kernbench(pause_filter: int, seed: int) -> Run:
    """Return four guests of 16 vCPUs on 24 pCPUs, whose vCPUs wait for each other by spinning."""
    workload = {
        "kind": program("spin_barrier"),
        "rounds": 40,
        "work_cycles": 2_000_003 + 10_007 * seed,
    }
    scenario = Scenario.from_dict(
        {
            "host": {"profile": "zen2", "pcpus": 24, "kernel": "6.1"},
            "kvm": {"avic": False, "pause_filter_count": pause_filter},
            "vm": [{"name": "vm", "count": 4, "vcpus": 16, "workload": workload}],
        }
    )
    return Run(scenario, weight=2e6)


@measures({"C-22.sign": ()})
def pause_filter_helps(seed: int) -> Plan:
    """Time of all four guests without pause-loop exits, and with them and directed yield."""
    without, with_ = yield [_kernbench(count, seed) for count in (0, FILTER)]
    return Less(without.sim_time_ns, with_.sim_time_ns)


def _shootdowns(kvm: dict[str, Any], pv: list[str]) -> Run:
    """Return two guests of twelve vCPUs on eight pCPUs, whose threads shoot down TLBs."""
    guest = {"vcpus": 12, "pv": pv, "workload": {"tasks": tasks("shootdown")}}
    scenario = Scenario.from_dict(
        {
            "host": {"profile": "turin", "pcpus": 8, "kernel": "6.12"},
            "kvm": kvm,
            "vm": [{"name": "vm", "count": 2, **guest}],
            "run": {"duration": "200ms"},
        }
    )
    return Run(scenario, weight=1e6)


def _rounds(result: Result) -> float:
    return sum(float(v) for name, v in result.metrics.items() if name.endswith("thread_rounds"))


@measures({"C-23.yield": ()})
def yield_to_preempted() -> Plan:
    """Time of a round of all threads without PV sched yield, and with it."""
    without, with_ = yield [
        _shootdowns({"avic": False}, ["steal_time", *pv]) for pv in ([], ["sched_yield"])
    ]
    return Less(1 / _rounds(without), 1 / _rounds(with_))


@measures({"C-23.boost": ()})
def boosted_targets() -> Plan:
    """Time of a round of all threads without the boost of targets in user mode, and with it."""
    without, with_ = yield [
        _shootdowns({"avic": True, "boosts_interrupt_target": boost}, []) for boost in (False, True)
    ]
    return Less(1 / _rounds(without), 1 / _rounds(with_))
