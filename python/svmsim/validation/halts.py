"""Rows C-09, C-10, C-11 and C-24: host halt polling, its gain, its price and its window."""

from __future__ import annotations

from typing import Any

from svmsim import _core
from svmsim.result import Result
from svmsim.scenario import Scenario
from svmsim.validation.guests import tasks
from svmsim.validation.measure import Plan, measures

US = 1000
FIXED = {"halt_poll_ns_grow_start": 500 * US, "halt_poll_ns_shrink": 1}
"""A window that is 500 us or nothing, as before it adapted: the kernel of C-09."""


def guest(
    task_set: str,
    halt_poll_us: int,
    *,
    profile: str = "skylake",
    kvm: dict[str, Any] | None = None,
    **vm: Any,
) -> Scenario:
    """Return a guest of one pinned vCPU with a task set, under a largest polling window."""
    return Scenario.from_dict(
        {
            "host": {"profile": profile, "pcpus": 1, "kernel": "6.12"},
            "kvm": {"avic": False, "halt_poll_ns": halt_poll_us * US, **(kvm or {})},
            "vm": [
                {"name": "vm0", "pin": [0], "workload": {"tasks": tasks(task_set)}, **vm},
            ],
        }
    )


def _round_ns(result: Result, task: str) -> float:
    return float(result.metrics[f"{task}_round_mean_ns"])


def _dsync() -> dict[str, Scenario]:
    return {
        "none": guest("dsync_write", 0),
        "poll": guest("dsync_write", 500, kvm=FIXED),
        "idle=poll": guest("dsync_write", 0, idle="poll"),
    }


@measures({"C-09.idle-poll": ("idle=poll",), "C-09.no-poll": ("none",)})
def polling_throughput(against: str) -> Plan:
    """Writes a second with host polling, by those of another way to wait."""
    ways = _dsync()
    other, poll = yield [ways[against], ways["poll"]]
    return _round_ns(other, "writer") / _round_ns(poll, "writer")


@measures({"C-09.idle-cost": ()})
def polling_idle_cost() -> Plan:
    """Host time of an idle guest under polling, in per cent of a core."""
    scenario = guest("housekeeping", 500, kvm=FIXED)
    (result,) = yield [scenario.with_(run={"duration": "1s"})]
    (pcpu,) = result.to_dict()["pcpus"]
    return float(100 * (pcpu["host_ns"] + pcpu["poll_ns"]) / result.sim_time_ns)


def _tcp_rr() -> dict[str, Scenario]:
    always = {"halt_poll_ns_grow_start": 300 * US, "halt_poll_ns_shrink": 1}
    return {
        "none": guest("tcp_rr", 0),
        "always": guest("tcp_rr", 300, kvm=always),
        "dynamic": guest("tcp_rr", 200),
    }


@measures({"C-10.ratio": ("always", "none"), "C-10.dynamic": ("dynamic", "always")})
def transaction_ratio(above: str, below: str) -> Plan:
    """Time of a transaction under one way of polling, by that under another one."""
    ways = _tcp_rr()
    first, second = yield [ways[above], ways[below]]
    return _round_ns(first, "client") / _round_ns(second, "client")


@measures({"C-10.saving": ()})
def transaction_saving() -> Plan:
    """What polling saves of a transaction, in us."""
    ways = _tcp_rr()
    none, always = yield [ways["none"], ways["always"]]
    return (_round_ns(none, "client") - _round_ns(always, "client")) / US


@measures(
    {
        "C-11.start": ([50, 50], 1, {}),
        "C-11.double": ([50, 50, 50], 2, {}),
        "C-11.cap": ([10.5, 10.5, 10.5], 2, {"halt_poll_ns": 11 * US}),
        "C-11.max": ([150, 150, 150, 150, 190, 190, 190], 6, {}),
        "C-11.shrink": ([50, 50, 1000, 50], 3, {"shrink": 0}),
    }
)
def host_window(halts: list[float], at: int, parameters: dict[str, int]) -> Plan:
    """KVM's window at a halt of a sequence, in us."""
    yield []
    blocks = [round(halt * US) for halt in halts]
    return _core.halt_poll_windows(blocks, **parameters)[at] / US


@measures(
    {
        "C-11.guest-start": ([150], 1),
        "C-11.guest-double": ([150, 150], 2),
        "C-11.guest-max": ([150, 150, 150, 190], 4),
        "C-11.guest-shrink": ([150, 150, 300], 3),
    }
)
def guest_limit(blocks: list[int], at: int) -> Plan:
    """Haltpoll's limit behind a sequence of halts, in us."""
    yield []
    return _core.guest_halt_poll_limits([block * US for block in blocks])[at] / US


def _nanosleep() -> Scenario:
    scenario = guest("nanosleep", 500, profile="turin")
    return scenario.with_(run={"duration": "200ms"})


@measures({"C-24.guest": ("guest",), "C-24.busy": ("busy",)})
def nanosleep_share(what: str) -> Plan:
    """Share of the core's time, in per cent: in the guest, or busy at all."""
    (result,) = yield [_nanosleep()]
    (pcpu,) = result.to_dict()["pcpus"]
    busy = pcpu["guest_ns"] + pcpu["host_ns"] + pcpu["poll_ns"]
    share = pcpu["guest_ns"] / busy if what == "guest" else busy / result.sim_time_ns
    return 100 * float(share)
