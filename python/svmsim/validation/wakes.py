"""Rows C-12, C-13 and C-14: idle states, what they declare and what leaving them takes."""

from __future__ import annotations

from statistics import median
from typing import Any

from svmsim.result import Result
from svmsim.scenario import Scenario
from svmsim.validation.guests import program
from svmsim.validation.measure import Less, Plan, Run, measures

WAKES = 20
IDLE_EXIT = 0xFFFFFFFF
"""State of the event cpu_idle at the end of an idle time."""
FIRMWARE = (
    {"name": "C1", "latency": "1us", "residency": "2us", "wake": "1us"},
    {"name": "C2", "latency": "350us", "residency": "700us", "wake": "21us"},
    {"name": "C3", "latency": "400us", "residency": "800us", "wake": "21us"},
)
"""The idle states of C-13, with the wake-up of C-12."""


def _halting(gap_us: int, **host: Any) -> Scenario:
    """Return a vCPU that halts, woken by another one on another pCPU with a pause between."""
    profile = {"profile": "zen2", "pcpus": 2, "kernel": "6.12", "hz": 0, **host}
    cycles = 2250 * gap_us
    workload = {"kind": program("ipi_to_halted"), "ipis": WAKES, "gap_cycles": cycles}
    return Scenario.from_dict(
        {
            "host": profile,
            "kvm": {"avic": False, "halt_poll_ns": 0},
            "vm": [{"vcpus": 2, "pin": [0, 1], "workload": workload}],
            "run": {"duration": f"{(WAKES + 2) * gap_us}us"},
        }
    )


def _only(state: str) -> list[dict[str, Any]]:
    """Return the profile's idle state of a name alone, as if the others were disabled."""
    states = _halting(1000).resolved["host"]["cstate"]
    return [entry for entry in states if entry["name"] == state]


def look_wakes(result: Result) -> float:
    """Return the median of ns from sched_waking to the end of the target's idle time."""
    assert result.events is not None
    times, waking = [], None
    for row in result.events.frame.iter_rows(named=True):
        if row["event"] == "sched_waking":
            waking = row["time_ns"]
        elif row["event"] == "cpu_idle" and (row["cpu"], row["field_0"]) == (1, IDLE_EXIT):
            times += [] if waking is None else [row["time_ns"] - waking]
            waking = None
    return float(median(times))


@measures({"C-12.C1": ("C1",), "C-12.C2": ("C2",)})
def wake_of_state(state: str) -> Plan:
    """From the waker to the end of the idle time, median, in us."""
    (ns,) = yield [Run(_halting(5000, cstate=_only(state)), look_wakes)]
    return float(ns) / 1000


def look_state(result: Result) -> int:
    """Return the idle state that the target's governor takes in the end."""
    assert result.events is not None
    states = [
        int(row["field_0"])
        for row in result.events.frame.iter_rows(named=True)
        if row["event"] == "cpu_idle" and row["cpu"] == 1 and row["field_0"] != IDLE_EXIT
    ]
    return states[WAKES - 1]


@measures({"C-13.short": (500,), "C-13.long": (2000,)})
def state_taken(gap_us: int) -> Plan:
    """Number of the idle state that the governor takes for idle times of a length."""
    (state,) = yield [Run(_halting(gap_us, cstate=list(FIRMWARE)), look_state)]
    return float(state)


@measures({"C-14.sign": ()})
def guest_hlt_is_deeper() -> Plan:
    """IPI latency to a guest that halts in guest mode, deep; and to one whose host is in C1."""
    in_host = _halting(500, cstate=_only("C1"))
    in_guest = _halting(500, guest_hlt_depth="C2").with_(vm={"disable_exits": ["hlt"]})
    deep, shallow = yield [in_guest, in_host]
    return Less(*(float(r.to_dict()["latency"]["ipi"]["mean_ns"]) for r in (deep, shallow)))
