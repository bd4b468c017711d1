"""Rows 1.1, C-01 and C-02: the idle-HLT thread of 2024."""

from __future__ import annotations

from typing import Any

from svmsim.result import Result
from svmsim.scenario import Scenario
from svmsim.validation.measure import Plan, Run, measures

RECORDED = ("kvm_entry", "kvm_exit", "kvm_msr", "kvm_pio")
"""What `perf kvm stat` records, as far as it happens here."""
EXITS = ("msr", "hlt", "vintr")
ITERATIONS = 262_080
"""Of all batches of the published runs, for the runs that do not find it out themselves."""
ORDER_ITERATIONS = 100
ICR = 0x830
HLT, EOI_RIP = 0x4004AD, 0x406A74
"""Of the published traces."""
_CODES = {0x78: "hlt", 0x64: "vintr", 0x7C: "msr"}
_WORDS = ("apic_ipi", "apic_accept_irq", "entry", "inj_virq", "eoi")


def scenario(idle_hlt: bool, kernel: str = "6.1", iterations: int = 0) -> Scenario:
    """Return the guest of the thread; 0 iterations: it doubles until a batch takes long enough."""
    return Scenario.from_dict(
        {
            "host": {"profile": "turin", "pcpus": 1, "kernel": kernel},
            "kvm": {"avic": False, "idle_hlt": idle_hlt},
            "vm": [
                {
                    "name": "vm0",
                    "pin": [0],
                    "apic": "x2apic",
                    "workload": {"kind": "idle_hlt_test", "iterations": iterations},
                }
            ],
        }
    )


def recorded(idle_hlt: bool) -> Run:
    """Return the run under `perf kvm stat`."""
    run = scenario(idle_hlt).with_(host={"tracepoints": list(RECORDED)})
    return Run(run, weight=4 * ITERATIONS)


def given(idle_hlt: bool, kernel: str = "6.12") -> Run:
    """Return the run with the number of iterations given, without the host's tick."""
    run = scenario(idle_hlt, kernel, ITERATIONS).set("host.hz", 0)
    return Run(run, weight=4 * ITERATIONS)


def count(result: Result, name: str) -> int:
    """Return how many exits of a name there were."""
    return int(result.exit_totals.get(name, {}).get("count", 0))


def total(result: Result) -> int:
    """Return how many exits there were."""
    return sum(count(result, name) for name in result.exit_totals)


def mean_ns(result: Result, name: str) -> float:
    """Return perf's mean time of an exit."""
    return float(result.exit_totals[name]["mean_ns"])


@measures(
    {
        "1.1.hlt-off": (False, "hlt"),
        "1.1.vintr-off": (False, "vintr"),
        "1.1.msr-off": (False, "msr"),
        "1.1.hlt-on": (True, "hlt"),
        "1.1.vintr-on": (True, "vintr"),
        "1.1.msr-on": (True, "msr"),
    }
)
def recorded_exits(idle_hlt: bool, name: str) -> Plan:
    """Exits of a name in the recorded run."""
    (result,) = yield [recorded(idle_hlt)]
    return count(result, name)


@measures({"1.1.exits-off": (False,), "1.1.exits-on": (True,)})
def exits_of_iteration(idle_hlt: bool) -> Plan:
    """Exits of one iteration: two runs that differ in their iterations alone."""
    short, long = yield [scenario(idle_hlt, iterations=n) for n in (100, 200)]
    return (total(long) - total(short)) / 100


def look_order(result: Result) -> int:
    """Return how many iterations of the run have their events in the published order."""
    assert result.events is not None
    words = (_word(row) for row in result.events.frame.iter_rows(named=True))
    text = " ".join(word for word in words if word)
    pair = "" if result.scenario["kvm"]["idle_hlt"] else f"hlt@{HLT:x} entry "
    return text.count(
        f"apic_ipi apic_accept_irq msr_write@{ICR:x} entry {pair}"
        f"vintr@{HLT + 1:x} inj_virq entry msr@{EOI_RIP:x} eoi"
    )


def _word(row: dict[str, Any]) -> str:
    event = str(row["event"]).removeprefix("kvm_")
    if event == "exit":
        return f"{_CODES.get(row['field_0'], 'other')}@{row['field_1']:x}"
    if event == "msr":
        return f"msr_write@{row['field_1']:x}" if row["field_1"] == ICR else ""
    return event if event in _WORDS else ""


@measures({"1.1.order-off": (False,), "1.1.order-on": (True,)})
def ordered_iterations(idle_hlt: bool) -> Plan:
    """Iterations whose events come in the published order."""
    run = scenario(idle_hlt, iterations=ORDER_ITERATIONS)
    (found,) = yield [Run(run, look_order)]
    return float(found)


@measures({"1.1.gap": (False,), "C-02.gap": (True,)})
def icr_eoi_gap(idle_hlt: bool) -> Plan:
    """What an ICR write costs more than an EOI write, by the EOI write."""
    (result,) = yield [given(idle_hlt, "6.1")]
    eoi = float(result.metrics["eoi_cycles"])
    return (float(result.metrics["ipi_cycles"]) - eoi) / eoi


@measures({"C-02.icr": ("ipi_cycles",), "C-02.eoi": ("eoi_cycles",)})
def guest_cycles(metric: str) -> Plan:
    """Cycles of an MSR write as the guest sees it."""
    (result,) = yield [given(True, "6.1")]
    return float(result.metrics[metric])


@measures({"1.1.host-time": ()})
def host_time() -> Plan:
    """Change of perf's time of the loop's exits, in per cent."""
    results = yield [recorded(False), recorded(True)]
    off, on = (
        sum(r.exit_totals[name]["time_ns"] for name in EXITS if name in r.exit_totals)
        for r in results
    )
    return float(100 * (on - off) / off)


@measures(
    {
        "1.1.hlt-msr": (False, "hlt"),
        "1.1.vintr-msr-off": (False, "vintr"),
        "1.1.vintr-msr-on": (True, "vintr"),
    }
)
def time_by_msr(idle_hlt: bool, name: str) -> Plan:
    """Perf's mean time of an exit, by that of an msr exit."""
    (result,) = yield [recorded(idle_hlt)]
    return mean_ns(result, name) / mean_ns(result, "msr")


@measures({"1.1.io": ()})
def io_by_msr() -> Plan:
    """Perf's mean time of an exit to user space, by that of an msr exit."""
    io = scenario(False).with_(
        host={"tracepoints": list(RECORDED)},
        vm={"workload": {"kind": "user_io", "iterations": 4096}},
    )
    user, loop = yield [io, recorded(False)]
    return mean_ns(user, "io") / mean_ns(loop, "msr")


@measures(
    {
        "C-01.hlt-off": (False, "hlt"),
        "C-01.hlt-on": (True, "hlt"),
        "C-01.total-off": (False, ""),
        "C-01.total-on": (True, ""),
    }
)
def exits_of_given(idle_hlt: bool, name: str) -> Plan:
    """Exits of a name, or all, where the number of iterations is given."""
    (result,) = yield [given(idle_hlt)]
    return count(result, name) if name else total(result)
