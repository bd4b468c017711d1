"""Row 1.4: HLT exits disabled on none, half or all of the vCPUs of a guest that is busy on half."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from svmsim.result import Result
from svmsim.scenario import Scenario
from svmsim.validation.guests import tasks
from svmsim.validation.measure import Less, Plan, Run, measures

VCPUS = 4
STRESS = {"name": "stress", "count": VCPUS, "phases": [{"run": "200us", "sleep": "1ms"}]}
"""Threads of the host on the vCPUs' pCPUs."""


def _passmark(disabled: int, *, stressed: bool = False) -> Run:
    """Return the guest with HLT exits disabled on its first vCPUs."""
    host: dict[str, Any] = {"profile": "turin", "pcpus": VCPUS, "kernel": "6.12"}
    if stressed:
        host["task"] = [STRESS]
    guest = {
        "name": "vm0",
        "vcpus": VCPUS,
        "pin": list(range(VCPUS)),
        "workload": {"tasks": tasks("passmark")},
        "disable_exits": [{"vcpu": vcpu, "exits": ["hlt"]} for vcpu in range(disabled)],
    }
    scenario = Scenario.from_dict(
        {
            "host": host,
            "kvm": {"avic": False},
            "vm": [guest],
            "run": {"duration": "400ms"},
        }
    )
    return Run(scenario, weight=2e4)


def _work(result: Result) -> float:
    """Return what the guest has computed: its score."""
    return sum(float(v) for name, v in result.metrics.items() if name.endswith("_computed_ns"))


@measures({"1.4.half": (VCPUS // 2,), "1.4.all": (VCPUS,)})
def score(disabled: int) -> Plan:
    """Time for the same work with all HLT exits, and with some disabled."""
    none, some = yield [_passmark(0), _passmark(disabled)]
    return Less(1 / _work(none), 1 / _work(some))


@measures({"1.4.share": ()})
def gain_of_half() -> Plan:
    """Gain with half of the vCPUs, by that with all."""
    none, half, every = yield [_passmark(count) for count in (0, VCPUS // 2, VCPUS)]
    return (_work(half) - _work(none)) / (_work(every) - _work(none))


@measures({"1.4.starved": (VCPUS,), "1.4.not-starved": (VCPUS // 2,)})
def host_latency(disabled: int) -> Plan:
    """Wake-up latency of the host's threads with HLT exits disabled, by that without."""
    none, some = yield [_passmark(count, stressed=True) for count in (0, disabled)]
    before, behind = (
        fmean(task["wakeup"]["mean_ns"] for task in result.to_dict()["tasks"])
        for result in (none, some)
    )
    return behind / before
