"""From the facts of a capture to findings, subject by subject."""

from __future__ import annotations

from typing import Any

from svmsim.diagnosis.apic import apicv, interrupts
from svmsim.diagnosis.facts import HALTS, Facts
from svmsim.diagnosis.halting import busy, halt, polling, windows
from svmsim.diagnosis.words import Item, duration, finding, number, percent, times

FEW_EXITS = 100
"""Below as many exits a share says little: its standard error is up to 5 percentage points."""
FAULTS = ("npf", "EPT_VIOLATION", "EPT_MISCONFIG")
ERRNO = {1: "EPERM", 4: "EINTR", 12: "ENOMEM", 14: "EFAULT", 22: "EINVAL", 5: "EIO"}

# From here on a rate is called a storm: events a second and vCPU. A guest that works takes some ten
# thousand exits a second at most; a tick is 1000, a busy 10-Gbit NIC with moderation some 8000.
STORM_EXITS = 100_000
STORM_TIMERS = 5_000
STORM_IPIS = 10_000
STORM_SPINS = 1_000


def judge(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    """Return the figures by subject, and what they say."""
    summary: dict[str, Any] = {}
    found: list[Item] = []
    for name, rule in (
        ("isa", _isa),
        ("samples", _samples),
        ("dominates", _dominates),
        ("livelock", _livelock),
        ("halt", halt),
        ("polling", polling),
        ("windows", windows),
        ("busy", busy),
        ("storm", _storm),
        ("apicv", apicv),
        ("interrupts", interrupts),
        ("scheduling", _scheduling),
        ("userspace", _userspace),
    ):
        figures, items = rule(facts)
        if figures:
            summary[name] = figures
        found += items
    return summary, found


def _isa(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    report = facts.report
    isa, why = report["isa"], report["refused"] or report["no_workload"]
    figures = {"isa": isa, "evidence": report["isa_evidence"], "no_replay": why}
    if report["refused"]:
        return figures, [finding("isa", f"nothing here can be replayed: {why}", warning=True)]
    if why:
        return figures, [finding("isa", f"no replay: {why}")]
    return figures, []


def _samples(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    total = sum(facts.counts.values())
    figures: dict[str, Any] = {"exits": total}
    items: list[Item] = []
    if facts.timed and facts.seconds:
        figures["vcpu_seconds"] = facts.seconds
    if 0 < total < FEW_EXITS:
        text = (
            f"too few samples: {times(total, 'exit')}"
            + (f" in {duration(facts.seconds * 1e9)}" if facts.seconds else "")
            + ". They show what happens, not how often: shares and rates of them mean little"
        )
        items.append(finding("samples", text, warning=True))
    lost = facts.report["lost_events"]
    if lost:
        text = (
            f"the recorder lost {times(lost, 'event')}: counts are too low, and pairs across a "
            "gap wrong"
        )
        items.append(finding("samples", text, warning=True))
    if facts.report["problem_count"]:
        text = f"{times(facts.report['problem_count'], 'line')} cannot be read and do not count"
        items.append(finding("samples", text, warning=True))
    unpaired = facts.report["unpaired"]
    figures["unpaired"] = unpaired
    if unpaired["exits_overwritten"] > max(2, total // 50):
        text = (
            f"{times(unpaired['exits_overwritten'], 'exit')} of {total:,} have no kvm_entry "
            "before the "
            "next exit: their durations are unknown (fastpath re-entries of older kernels, or "
            "lost lines)"
        )
        items.append(finding("samples", text))
    return figures, items


def _top(values: dict[str, float], most: int = 5) -> list[dict[str, Any]]:
    total = sum(values.values())
    ranked = sorted(values.items(), key=lambda item: (-item[1], item[0]))[:most]
    return [
        {"exit": name, "value": value, "share": value / total} for name, value in ranked if total
    ]


def _dominates(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    by_count = _top({name: float(count) for name, count in facts.counts.items()})
    by_time = _top({name: time for name, time in facts.times.items() if time > 0})
    shares = {
        row["name"]: 0.0
        for table in facts.report["tables"]
        if table["content"] == "other"
        for row in table["rows"]
        if row.get("share_percent") is not None
    }
    for table in facts.report["tables"]:
        for row in table["rows"]:
            if table["content"] == "other" and row.get("share_percent") is not None:
                shares[row["name"]] += row["share_percent"]
    figures: dict[str, Any] = {"by_count": by_count, "by_time_ns": by_time}
    items: list[Item] = []
    if by_count:
        text = "by count: " + ", ".join(
            f"{row['exit']} {percent(row['share'], 1)} ({row['value']:,.0f})"
            for row in by_count[:3]
        )
        items.append(finding("dominates", text))
    elif shares:
        rows = sorted(shares.items(), key=lambda item: (-item[1], item[0]))[:3]
        figures["by_sample_percent"] = dict(rows)
        text = "by share of the samples: " + ", ".join(
            f"{name} {share:.1f} %" for name, share in rows
        )
        items.append(finding("dominates", text))
    if by_time:
        text = "by time from exit to entry: " + ", ".join(
            f"{row['exit']} {percent(row['share'], 1)} ({duration(row['value'])})"
            for row in by_time[:3]
        )
        rest = {name: time for name, time in facts.times.items() if name not in HALTS and time > 0}
        if by_time[0]["exit"] in HALTS and rest:
            first = _top(rest, 1)[0]
            text += (
                f". perf's time of a halt is mostly waiting; of the time of all other exits "
                f"{first['exit']} takes {percent(first['share'], 1)}"
            )
        items.append(finding("dominates", text))
    elif facts.counts and not facts.timed and not facts.report["tables"]:
        text = "the lines carry no time in a known unit: durations are unknown"
        items.append(finding("dominates", text))
    return figures, items


def _livelock(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    rows: list[dict[str, Any]] = []
    items: list[Item] = []
    for vcpu in facts.vcpus:
        repeat = vcpu["repeat"]
        if repeat is None or repeat["count"] < 2:
            continue
        fault = repeat["exit"] in FAULTS or repeat["exit"].endswith("excp")
        certain = repeat["returns_known"] and (repeat["reinjections"] >= 2 or repeat["count"] >= 10)
        if not certain and not fault:
            continue
        rows.append({"vm": vcpu["vm"], "vcpu": vcpu["vcpu"], "certain": certain, **repeat})
        text = (
            f"vCPU {vcpu['vcpu']}: {repeat['exit']} {repeat['count']:,} times in a row at rip "
            f"{repeat['rip']}, address {repeat['address']} (lines {repeat['first_line']} to "
            f"{repeat['last_line']}"
        )
        if facts.timed and repeat["time"]:
            text += f", every {duration(repeat['time'] / (repeat['count'] - 1))}"
        text += ")"
        if repeat["reinjections"]:
            text += (
                f", and each time the delivery of vector 0x{repeat['vector']:x} is cut short and "
                f"re-injected ({repeat['reinjections']} times)"
            )
        if certain:
            text = (
                f"livelock: {text}. The guest makes no progress: what the fault asks for is not "
                "put right"
            )
        else:
            text += (
                ". Perhaps a livelock; the recording is too short to tell, or does not say where "
            )
            text += "the guest went on"
        items.append(finding("livelock", text, warning=certain))
    return {"runs": rows} if rows else {}, items


def _storm(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    total = sum(facts.counts.values())
    rates: dict[str, float] = {}
    if facts.seconds >= 0.001 and total >= FEW_EXITS:
        timers = facts.sum("deadline_writes") + facts.sum("tmict_writes")
        rates = {
            "exits": facts.sum("exits") / facts.seconds,
            "timers": timers / facts.seconds,
            "ipis": facts.sum("icr_writes") / facts.seconds,
            "pauses": sum(facts.counts.get(n, 0) for n in ("pause", "PAUSE_INSTRUCTION"))
            / facts.seconds,
            "halts": sum(facts.counts.get(name, 0) for name in HALTS) / facts.seconds,
        }
    else:
        for table in facts.report["tables"]:
            for row in table["rows"]:
                if row["name"] in ("kvm_exit", "exits") and row.get("rate_per_s"):
                    rates = {"exits_of_all_vcpus": row["rate_per_s"]}
    items: list[Item] = []
    if rates.get("timers", 0) >= STORM_TIMERS:
        text = (
            f"timer storm: a vCPU arms its timer {number(rates['timers'])} times a second, an "
            "exit each; "
            "neither AVIC nor idle HLT removes them. Look for a guest with periodic work or "
            "nohz=off"
        )
        items.append(finding("storm", text, warning=True))
    if rates.get("ipis", 0) >= STORM_IPIS:
        text = (
            f"IPI storm: a vCPU writes its ICR {number(rates['ipis'])} times a second, an exit each"
        )
        items.append(finding("storm", text, warning=True, replay=facts.replay("kvm.avic=true")))
    if rates.get("pauses", 0) >= STORM_SPINS:
        text = (
            f"spinning: {number(rates['pauses'])} PAUSE exits a second and vCPU: vCPUs wait for "
            "locks whose "
            "holders do not run"
        )
        more = len([vcpu for vcpu in facts.vcpus if vcpu["entries"]])
        items.append(
            finding("storm", text, warning=True, replay=facts.replay(f"host.pcpus={more}"))
        )
    if rates.get("exits", 0) >= STORM_EXITS:
        first = max(facts.counts, key=lambda name: facts.counts[name])
        text = (
            f"exit storm: {number(rates['exits'])} exits a second and vCPU, of which "
            f"{percent(facts.counts[first], total)} are {first}"
        )
        items.append(finding("storm", text, warning=True))
    peak = max((vcpu["max_exits_per_ms"] for vcpu in facts.vcpus), default=0)
    if peak:
        rates["most_in_one_ms"] = peak
    return {"per_second_and_vcpu": rates} if rates else {}, items


def _scheduling(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    known = [vcpu["sched"] for vcpu in facts.report["vcpus"] if vcpu["sched"] is not None]
    if not known or not facts.timed:
        return {}, []
    sums = {name: sum(one[name] for one in known) for name in known[0]}
    total = sums["run_ns"] + sums["queue_ns"] + sums["block_ns"]
    if not total:
        return sums, []
    text = (
        f"vCPU threads run {percent(sums['run_ns'], total)} of the time, sleep "
        f"{percent(sums['block_ns'], total)} and wait {percent(sums['queue_ns'], total)} for a CPU "
        f"({times(sums['preempted'], 'preemption')})"
    )
    crowded = sums["queue_ns"] > 0.1 * (sums["run_ns"] + sums["queue_ns"])
    replay = None
    if crowded:
        text += ". They share their CPUs with something"
        replay = facts.replay(f"host.pcpus={len(facts.report['vcpus'])}")
    return sums, [finding("scheduling", text, warning=crowded, replay=replay)]


def _userspace(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    reasons: dict[str, int] = facts.raw["userspace"]
    items: list[Item] = []
    for name, count in reasons.items():
        if name.startswith("errno ") and name != "errno 4":
            code = int(name.split()[1])
            text = (
                f"KVM_RUN fails with {ERRNO.get(code, name)} {times(count, 'time')}: KVM hands "
                "the fault "
                "to user space instead of the guest"
            )
            items.append(finding("userspace", text, warning=True))
        elif name == "KVM_EXIT_HLT":
            text = (
                f"{times(count, 'HLT')} went to user space: the VM has no in-kernel irqchip, so "
                "neither "
                "halt polling nor AVIC can work"
            )
            items.append(finding("userspace", text, warning=True))
        elif name in ("KVM_EXIT_SHUTDOWN", "KVM_EXIT_INTERNAL_ERROR", "KVM_EXIT_FAIL_ENTRY"):
            what = "a triple fault" if name == "KVM_EXIT_SHUTDOWN" else "an error of KVM or the VMM"
            items.append(finding("userspace", f"the guest ends in {name}: {what}", warning=True))
    exits = sum(facts.counts.values())
    leaving = sum(count for name, count in reasons.items() if not name.startswith("errno "))
    if exits >= FEW_EXITS and leaving > exits / 4:
        text = f"{percent(leaving, exits)} of the exits go on to user space ({', '.join(reasons)})"
        items.append(finding("userspace", text))
    return dict(reasons), items
