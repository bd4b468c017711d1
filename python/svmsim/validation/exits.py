"""Rows C-03, C-04, C-15, C-16 and C-19: what exits cost, and how many there are."""

from __future__ import annotations

from typing import Any

from svmsim.result import Result
from svmsim.scenario import Scenario
from svmsim.validation.guests import cycles, program
from svmsim.validation.idle_hlt import total
from svmsim.validation.measure import Plan, measures

HLT_LOOPS = 4096
T_INSN = 1
"""Cycles that HLT itself takes in the guest, of the round trip."""


def one_vcpu(profile: str, workload: dict[str, Any], kernel: str = "6.12", **vm: Any) -> Scenario:
    """Return a guest of one vCPU on its own pCPU, AVIC off, without the host's tick."""
    return Scenario.from_dict(
        {
            "host": {"profile": profile, "pcpus": 2, "kernel": kernel, "hz": 0},
            "kvm": {"avic": False},
            "vm": [{"name": "vm0", "pin": [0], "workload": workload, **vm}],
        }
    )


def _round_trip(result: Result) -> float:
    return float(result.metrics["cycles_per_iteration"])


def _software(result: Result) -> float:
    """Return cycles of an exit between kvm_exit and kvm_entry."""
    return cycles(result, float(result.exit_totals["hlt"]["mean_ns"]))


@measures(
    {
        "C-03.world": ("world",),
        "C-03.software": ("software",),
        "C-03.total": ("total",),
        "C-03.share": ("share",),
    }
)
def hlt_in_user_space(part: str) -> Plan:
    """The parts of an exit to user space for HLT, in cycles."""
    workload = {"kind": program("hlt_loop"), "iterations": HLT_LOOPS}
    (result,) = yield [one_vcpu("zen2", workload, irqchip="user")]
    software, whole = _software(result), _round_trip(result)
    world = whole - software
    parts: dict[str, float] = {
        "world": world,
        "software": software,
        "total": whole,
        "share": world / whole,
    }
    return parts[part]


@measures({"C-04.ratio": ()})
def user_by_kernel() -> Plan:
    """Round trip of an I/O exit that user space completes, by one that the kernel completes."""
    user, kernel = yield [
        one_vcpu("skylake", {"kind": kind, "iterations": 4096})
        for kind in ("inl_from_qemu", "outl_to_kernel")
    ]
    return _round_trip(user) / _round_trip(kernel)


@measures({"C-15.ratio": ()})
def deadline_fastpath() -> Plan:
    """Round trip of a deadline in the past, with the fastpath of 6.18 by that without."""
    without, with_ = yield [
        one_vcpu("skylake", {"kind": "tscdeadline_immed", "iterations": 4096}, kernel).with_(
            kvm={"avic": True}
        )
        for kernel in ("6.12", "6.18")
    ]
    return _round_trip(with_) / _round_trip(without)


@measures({"C-16.latency": ()})
def deadline_latency() -> Plan:
    """Cycles from a TSC deadline to the handler's look at the TSC, the timer never early."""
    workload = {"kind": program("tscdeadline_latency")}
    scenario = one_vcpu("skylake", workload).set("kvm.lapic_timer_advance", False)
    (result,) = yield [scenario]
    delay = int(result.scenario["vm"][0]["workload"]["delay"])
    return float(result.metrics["timer_cycles"]) - delay


def _device(pv_eoi: bool, interrupts: int) -> Scenario:
    workload = {
        "kind": program("device_interrupts"),
        "interrupts": interrupts,
        "pv_eoi": pv_eoi,
    }
    device = {"kind": "msi", "vector": 0x30, "first": "100us", "period": "100us", "pcpu": 1}
    return one_vcpu("turin", workload, device=[device])


@measures(
    {
        "C-19.eoi-off": (False, "msr"),
        "C-19.eoi-on": (True, "msr"),
        "C-19.exits-off": (False, ""),
        "C-19.exits-on": (True, ""),
    }
)
def exits_of_interrupt(pv_eoi: bool, name: str) -> Plan:
    """Exits for a device interrupt: two runs that differ in their number alone."""
    few, many = yield [_device(pv_eoi, count) for count in (100, 200)]
    counts = [
        result.exit_totals.get(name, {}).get("count", 0) if name else total(result)
        for result in (few, many)
    ]
    return (counts[1] - counts[0]) / 100
