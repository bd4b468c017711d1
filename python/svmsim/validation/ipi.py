"""Rows 1.3, C-05 to C-08, C-17, C-18, C-20 and C-21: IPIs between vCPUs."""

from __future__ import annotations

from functools import cache

from svmsim.result import Result
from svmsim.scenario import Scenario
from svmsim.studies import ipi
from svmsim.validation.guests import cycles, program
from svmsim.validation.measure import Less, Plan, Run, measures


@cache
def _published() -> dict[str, Run]:
    return {run.name: Run(run.scenario, weight=10 * run.weight) for run in ipi.published_runs()}


def published(name: str) -> Run:
    """Return a set-up of the study of IPIs."""
    return _published()[name]


def total_ns(result: Result) -> float:
    """Return the mean time of a call, by the sender's clock."""
    return float(result.metrics["vm0.0.total_ns"])


def all_exits(result: Result, vcpu: int) -> int:
    """Return how often a vCPU left the guest."""
    rows = result.to_dict()["vcpus"][vcpu]["exits"]
    return sum(int(row["count"]) for row in rows.values())


@measures(
    {
        "1.3.ratio": ("round-trip-avic", "round-trip-pv"),
        "C-06.ratio": ("round-trip-avic", "round-trip-pv"),
        "C-05.ratio": ("send-avic", "send-pv"),
        "C-07.gain": ("broadcast-icr", "broadcast-pv"),
        "C-08.ratio": ("cluster-pv", "cluster-icr"),
        "C-18.ratio": ("hardware-no-exit", "hardware-exit"),
    }
)
def time_ratio(above: str, below: str) -> Plan:
    """Time of a call in one set-up, by that in another one."""
    first, second = yield [published(above), published(below)]
    return total_ns(first) / total_ns(second)


@measures({"C-05.pv": ("send-pv",), "C-05.avic": ("send-avic",)})
def send_cycles(name: str) -> Plan:
    """TSC cycles of a send, by the sender's clock."""
    (result,) = yield [published(name)]
    return cycles(result, total_ns(result))


def _counted(scenario: Scenario, iterations: int) -> Scenario:
    """Return a set-up for counting: no tick of the host, no exits for the PAUSEs of the waiting."""
    return scenario.with_(
        host={"hz": 0}, vm={"disable_exits": ["pause"], "workload": {"iterations": iterations}}
    )


@measures(
    {
        "1.3.sender-pv": ("round-trip-pv", 0),
        "1.3.sender-avic": ("round-trip-avic", 0),
        "1.3.target-pv": ("round-trip-pv", 1),
        "1.3.target-avic": ("round-trip-avic", 1),
        "1.3.self": ("self", 0),
        "C-07.icr-exits": ("broadcast-icr", 0),
        "C-07.pv-exits": ("broadcast-pv", 0),
        "C-20.sender": ("no-ipiv", 0),
        "C-20.target": ("no-ipiv", 1),
    }
)
def exits_of_call(name: str, vcpu: int) -> Plan:
    """All exits of a vCPU for a call: two runs that differ in their number alone."""
    if name == "no-ipiv":
        scenario = without_ipiv()
    elif name == "self":
        pair = published("round-trip-avic").scenario
        scenario = pair.with_(vm={"workload": {"test": "self"}})
    else:
        scenario = published(name).scenario
    few, many = yield [_counted(scenario, n) for n in (50, 100)]
    return (all_exits(many, vcpu) - all_exits(few, vcpu)) / 50


def _apart(scenario: Scenario, seed: int) -> Scenario:
    """Return a scenario of the benchmark that differs from seed to seed: it draws no numbers."""
    workload = {"iterations": 1000 + seed, "gap_cycles": 10_007 * seed}
    return scenario.with_(vm={"workload": workload})


def without_ipiv() -> Scenario:
    """Return two vCPUs of a Zen 2 host whose AVIC does not carry out IPIs."""
    pair = published("round-trip-avic").scenario
    return pair.with_(kvm={"enable_ipiv": False}, vm={"pv": [], "apic_driver": "physical"})


@measures({"C-20.sign": ()})
def without_ipiv_or_avic(seed: int) -> Plan:
    """Round trip without AVIC, and with AVIC that does not carry out IPIs."""
    avic = _apart(without_ipiv(), seed)
    none, some = yield [avic.set("kvm.avic", False), avic]
    return Less(total_ns(none), total_ns(some))


@measures({"C-20.self": ()})
def exits_of_self_ipi() -> Plan:
    """All exits for a self-IPI by shorthand, AVIC without IPI virtualization."""
    scenario = Scenario.from_dict(
        {
            "host": {"profile": "zen2", "hz": 0},
            "kvm": {"avic": True, "enable_ipiv": False},
            "vm": [{"apic": "xapic", "pin": [0], "workload": {"kind": program("self_ipi_xapic")}}],
        }
    )
    few, many = yield [scenario.with_(vm={"workload": {"rounds": n}}) for n in (50, 100)]
    return (all_exits(many, 0) - all_exits(few, 0)) / 50


@measures({"C-08.sign": ()})
def pv_is_not_faster(seed: int) -> Plan:
    """A unicast by ICR write, and by a guest that has the hypercall."""
    icr, pv = yield [
        _apart(published(name).scenario, seed) for name in ("cluster-icr", "cluster-pv")
    ]
    return Less(total_ns(icr), total_ns(pv))


def _fastpath() -> list[Scenario]:
    """Return IPIs that leave the inner loop of KVM, and IPIs that do not: 6.12, no AVIC."""
    pair = published("hardware-exit").scenario.set("kvm.avic", False)
    return [pair.with_(vm={"apic_driver": driver}) for driver in ("cluster", "physical")]


def _latency_ns(result: Result) -> float:
    return float(result.metrics["vm0.0.latency_mean_ns"])


@measures({"C-17.sign": ()})
def fastpath_is_faster(seed: int) -> Plan:
    """Call to callback without the ICR fastpath, and with it."""
    slow, fast = yield [_apart(scenario, seed) for scenario in _fastpath()]
    return Less(_latency_ns(slow), _latency_ns(fast))


@measures({"C-17.cycles": ()})
def fastpath_cycles() -> Plan:
    """Cycles that the ICR fastpath saves from call to callback."""
    slow, fast = yield _fastpath()
    return cycles(slow, _latency_ns(slow) - _latency_ns(fast))


def _halted_target(idle_hlt: bool) -> Scenario:
    return Scenario.from_dict(
        {
            "host": {"profile": "turin", "pcpus": 2, "hz": 0},
            "kvm": {"avic": False, "idle_hlt": idle_hlt, "halt_poll_ns": 0},
            "vm": [
                {
                    "vcpus": 2,
                    "pin": [0, 1],
                    "workload": {"kind": program("ipi_to_halted")},
                }
            ],
            "run": {"duration": "20ms"},
        }
    )


@measures(
    {
        "C-21.exits": (False, "halt_exits"),
        "C-21.wakeups": (False, "halt_wakeup"),
        "C-21.idle-hlt": (True, "halt_exits"),
    }
)
def halts_of_target(idle_hlt: bool, statistic: str) -> Plan:
    """A statistic of KVM of a vCPU that executes HLT ten times and is woken nine times."""
    (result,) = yield [_halted_target(idle_hlt)]
    return float(result.to_dict()["vcpus"][1]["stats"][statistic])


@measures({"C-21.pending": ()})
def halts_with_pending() -> Plan:
    """Halt exits of a guest that executes HLT ten times, each with an interrupt pending."""
    scenario = Scenario.from_dict(
        {
            "host": {"profile": "turin", "hz": 0},
            "vm": [{"pin": [0], "workload": {"kind": "svm_idle_hlt_test", "rounds": 10}}],
        }
    )
    (result,) = yield [scenario]
    return float(result.to_dict()["vcpus"][0]["stats"]["halt_exits"])
