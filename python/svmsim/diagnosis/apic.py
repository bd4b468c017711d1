"""AVIC and APICv, and who sent the interrupts."""

from __future__ import annotations

from typing import Any

from svmsim.diagnosis.facts import Facts
from svmsim.diagnosis.words import Item, duration, finding, percent, times

AVIC_EXITS = ("avic_incomplete_ipi", "avic_unaccelerated_access", "avic_noaccel")
APICV_EXITS = ("APIC_WRITE", "EOI_INDUCED")
"""Exits that only a guest with APICv takes; APIC_ACCESS comes without it, too."""
AVIC_EVENTS = (
    "kvm_avic_incomplete_ipi",
    "kvm_avic_unaccelerated_access",
    "kvm_avic_ga_log",
    "kvm_avic_kick_vcpu_slowpath",
    "kvm_avic_doorbell",
)
INHIBITS = {
    "DISABLED": "it is off (kvm_amd avic=0, kvm_intel enable_apicv=0, or no such hardware)",
    "HYPERV": "the guest uses Hyper-V's SynIC with AutoEOI",
    "ABSENT": "the VM has no in-kernel APIC",
    "BLOCKIRQ": "the guest is debugged with KVM_GUESTDBG_BLOCKIRQ",
    "PHYSICAL_ID_ALIASED": "two vCPUs have the same APIC ID",
    "APIC_ID_MODIFIED": "the guest changed an APIC ID",
    "APIC_BASE_MODIFIED": "the guest moved the APIC's page",
    "NESTED": "the guest runs guests itself",
    "IRQWIN": "an interrupt window for an ExtINT of the PIC",
    "PIT_REINJ": "the PIT re-injects lost ticks (-global kvm-pit.lost_tick_policy=discard)",
    "SEV": "an SEV guest",
    "LOGICAL_ID_ALIASED": "two vCPUs have the same logical APIC ID",
    "X2APIC": "the guest uses x2APIC, which needs x2AVIC (Zen 4)",
}


def apicv(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    """Say whether hardware delivers interrupts, and if not, why probably not."""
    events, exits, raw = facts.report["events"], facts.counts, facts.raw["apicv"]
    name = {"svm": "AVIC", "vmx": "APICv"}.get(facts.report["isa"], "AVIC or APICv")
    accepted = events.get("kvm_apic_accept_irq", 0)
    by_hardware = events.get("kvm_apicv_accept_irq", 0)
    active = [n for n in (*AVIC_EXITS, *APICV_EXITS) if exits.get(n)]
    active += [n for n in AVIC_EVENTS if events.get(n)]
    eois = facts.sum("eoi_writes") or sum(v["msrs"].get("0x80b", 0) for v in facts.vcpus)
    against: list[str] = []
    if accepted and not by_hardware:
        against.append(f"none of {times(accepted, 'accepted interrupt')} is a kvm_apicv_accept_irq")
    if events.get("kvm_inj_virq"):
        against.append(f"KVM injects {times(events['kvm_inj_virq'], 'interrupt')} itself")
    if eois:
        against.append(f"{times(eois, 'EOI')} exit")
    windows = exits.get("vintr", 0) + exits.get("INTERRUPT_WINDOW", 0)
    if windows:
        against.append(times(windows, "interrupt-window exit"))
    inhibits = raw["inhibits_at_end"]
    figures: dict[str, Any] = {
        "name": name,
        "accepted": accepted,
        "accepted_by_hardware": by_hardware,
        "evidence_for": active,
        "evidence_against": against,
        "inhibits_set": raw["inhibit_reasons"],
        "inhibits_at_end": inhibits,
    }
    state = _state(accepted, by_hardware, active, against, inhibits)
    figures["state"] = state
    if state == "unknown":
        return figures if accepted or active or inhibits is not None else {}, []
    if state != "inactive":
        text = (
            f"{name} is active" if state == "active" else f"{name} is active for part of the time"
        )
        if by_hardware and accepted:
            text += (
                f": {by_hardware:,} of {times(accepted, 'accepted interrupt')} "
                f"({percent(by_hardware, accepted)}) go to the hardware (kvm_apicv_accept_irq)"
            )
        elif active:
            text += ": " + ", ".join(active)
        if state == "partly":
            text += f". Against it: {'; '.join(against)}"
            text += "".join(f"; {_inhibit_text(one)}" for one in raw["inhibit_reasons"])
        return figures, [finding("apicv", text, warning=state == "partly")]
    likely, certain = _likely_inhibit(facts, inhibits)
    figures["likely_inhibit"] = likely
    text = f"{name} is not active: {'; '.join(against)}" if against else f"{name} is not active"
    text += f". {'The inhibit' if certain else 'Likely'}: " + "; ".join(map(_inhibit_text, likely))
    removed = eois + windows
    total = sum(exits.values())
    if removed and total and facts.report["isa"] != "vmx":
        text += (
            f". With AVIC the EOI and window exits would go ({percent(removed, total)} of all), "
            "and IPIs to "
            "running vCPUs"
        )
    figures["eoi_and_window_exits"] = removed
    return figures, [finding("apicv", text, replay=facts.replay("kvm.avic=true"))]


def _state(
    accepted: int,
    by_hardware: int,
    active: list[str],
    against: list[str],
    inhibits: list[str] | None,
) -> str:
    if by_hardware or active:
        mixed = accepted and by_hardware and by_hardware < 0.9 * accepted
        return "partly" if mixed or (inhibits and not by_hardware) else "active"
    if against or inhibits:
        return "inactive"
    return "unknown"


def _inhibit_text(name: str) -> str:
    return f"{name}, {INHIBITS[name]}" if name in INHIBITS else name


def _likely_inhibit(facts: Facts, inhibits: list[str] | None) -> tuple[list[str], bool]:
    raw = facts.raw["apicv"]
    if inhibits:
        return list(inhibits), True
    if raw["inhibit_reasons"] and inhibits is None:
        return list(raw["inhibit_reasons"]), True
    likely: list[str] = []
    if raw["pit_thread"]:
        likely.append("PIT_REINJ")
    if raw["hyperv_msrs"]:
        likely.append("HYPERV")
    if raw["nested"]:
        likely.append("NESTED")
    if raw["x2apic_msrs"] and facts.report["isa"] == "svm":
        likely.append("X2APIC")
    if raw["pic_lines"]:
        likely.append("IRQWIN")
    return [*likely, "DISABLED"] if len(likely) < 2 else likely, False


def interrupts(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    """Pair injected interrupts with what caused them."""
    raw = facts.raw["interrupts"]
    causes = raw["causes"]
    rows = raw["injections"]
    total = sum(one["count"] for one in causes.values())
    if not total:
        return {}, []
    parts: list[str] = []
    for name, one in sorted(causes.items(), key=lambda item: (-item[1]["count"], item[0])):
        part = f"{name} {one['count']:,}"
        latency = one["latency"]
        if latency["count"] and facts.timed:
            part += f" ({duration(latency['total'] / latency['count'])} from cause to injection)"
        parts.append(part)
    items = [finding("interrupts", f"causes of {times(total, 'interrupt')}: " + ", ".join(parts))]
    if len(rows) <= 8:
        items += [finding("interrupts", _pair_text(row, timed=facts.timed)) for row in rows]
    figures = {"causes": causes, "injections": rows}
    unknown = causes.get("unknown", {}).get("count", 0)
    if unknown and unknown < total:
        text = (
            f"of {percent(unknown, total)} of the injected interrupts the recording does not show "
            "the cause; "
            "a replay lets them strike where they stand"
        )
        items.append(finding("interrupts", text))
    return figures, items


def _pair_text(row: dict[str, Any], *, timed: bool) -> str:
    text = f"line {row['line']}: vector {row['vector']} (0x{row['vector']:x}) from {row['cause']}"
    if row["cause"] == "ipi" and row["sender"] >= 0:
        text += f" of vCPU {row['sender']}"
    if row["source_line"]:
        text += f" at line {row['source_line']}"
    if row["accept_line"] and row["accept_line"] != row["source_line"]:
        text += f", accepted at line {row['accept_line']}"
    if row["latency"] is not None and timed:
        text += f", {duration(row['latency'])} later"
    return text
