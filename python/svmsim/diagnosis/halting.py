"""What happens while vCPUs are idle: halts, polling, and why a host is busy all the same."""

from __future__ import annotations

from typing import Any

from svmsim.diagnosis.facts import HALTS, Facts
from svmsim.diagnosis.words import Item, duration, finding, number, percent, times

IDLE_GUEST = 0.2
"""Share of guest mode below which vCPUs count as idle."""
BUSY_HOST = 0.1
"""Share of handling and polling from which their host counts as busy all the same."""
SHORT_WAIT = 200_000
"""ns; kvm.halt_poll_ns of x86."""


def halt(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    """Split the time in halts into waiting and handling, and count halts that need not exit."""
    exits = sum(facts.counts.get(name, 0) for name in HALTS)
    time = sum(facts.times.get(name, 0.0) for name in HALTS)
    polled, waited = (facts.sum("halts", kind, "total") for kind in ("polled", "waited"))
    woken = facts.sum("halts", "polled", "count") + facts.sum("halts", "waited", "count")
    pending = facts.sum("halts", "pending", "count")
    if not exits and not woken:
        return {}, []
    figures: dict[str, Any] = {
        "exits": exits,
        "woken": woken,
        "time_ns": time or None,
        "polled_ns": polled,
        "waited_ns": waited,
    }
    if not woken:
        return figures, _halts_without_wakeups(facts, exits)
    if not exits:
        text = (
            f"{times(woken, 'wake-up')}, after {duration((polled + waited) / woken)} on average; "
            "the exits "
            "are not in the recording"
        )
        return figures, [finding("halt", text)]
    figures["pending"] = pending
    items: list[Item] = []
    if facts.timed and time:
        idle = min(float(polled + waited), time)
        handling = time - idle
        figures |= {
            "idle_ns": idle,
            "handling_ns": handling,
            "handling_per_halt_ns": handling / exits,
        }
        text = (
            f"{times(exits, 'HLT exit')}: of {duration(time)} from exit to entry "
            f"{percent(idle, time)} is "
            f"idle time, the rest is handling ({duration(handling / exits)} a halt)"
        )
        items.append(finding("halt", text))
    if pending >= max(2, exits // 20):
        time_pending = facts.sum("halts", "pending", "total")
        text = (
            f"{times(pending, 'HLT exit')} of {exits:,} found an interrupt pending already and "
            "went back at "
            "once"
        )
        if facts.timed:
            text += f" ({duration(time_pending / pending)} each)"
        replay = None
        if facts.counts.get("hlt"):
            text += ": idle HLT (Zen 5) does not take those for which V_IRQ or a vIRR bit was set"
            replay = facts.replay("kvm.idle_hlt=true")
        items.append(finding("halt", text, replay=replay))
    return figures, items


def _halts_without_wakeups(facts: Facts, exits: int) -> list[Item]:
    if "kvm_vcpu_wakeup" in facts.report["events"] or not exits:
        return []
    vintr = facts.counts.get("vintr", 0)
    if facts.vcpus and facts.counts.get("hlt") and facts.sum("halts", "pending", "count") == exits:
        return [
            finding(
                "halt",
                f"{times(exits, 'HLT exit')} without a wake-up event: an interrupt was pending "
                "each time"
                + (f" ({vintr:,} vintr exits took them)" if vintr else "")
                + ", or kvm_vcpu_wakeup was not recorded. Idle HLT saves the exits of the first "
                "kind",
                replay=facts.replay("kvm.idle_hlt=true"),
            )
        ]
    text = (
        "idle time and handling inside HLT exits cannot be told apart: there are no "
        "kvm_vcpu_wakeup events"
    )
    return [finding("halt", text)]


def polling(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    """Judge halt polling by its events and by KVM's counters."""
    figures: dict[str, Any] = {}
    items: list[Item] = []
    success = facts.sum("halts", "polled", "count")
    failed = facts.sum("halts", "failed_polls")
    waited = facts.sum("halts", "waited", "count")
    unknown = facts.sum("halts", "window_unknown")
    if success or waited:
        wasted = facts.sum("halts", "wasted_ns")
        useful = facts.sum("halts", "polled", "total")
        figures["events"] = {
            "succeeded": success,
            "failed": failed,
            "blocked": waited,
            "blocked_window_unknown": unknown,
            "useful_ns": useful,
            "wasted_ns": wasted,
        }
        if success + failed:
            items.append(_poll_events(facts, success, failed, waited, unknown, useful, wasted))
        else:
            items.append(_no_polls(facts, waited))
    items += _poll_statistics(facts, figures)
    return figures, items


def _poll_events(
    facts: Facts, success: int, failed: int, waited: int, unknown: int, useful: int, wasted: int
) -> Item:
    attempts = success + failed
    text = f"halt polling: {success:,} of {attempts:,} polls succeed ({percent(success, attempts)})"
    if useful:
        text += f", {duration(useful / success)} each"
    if wasted:
        text += f"; {duration(wasted)} of polling was in vain ({percent(wasted, wasted + useful)})"
    blocked = waited - failed - unknown
    if blocked > 0:
        text += f"; {times(blocked, 'halt')} blocked without polling"
    if unknown:
        text += f"; of {times(unknown, 'halt')} that blocked the window is not recorded"
    bad = success < attempts / 2 and attempts >= 10
    if bad:
        text += ". Most polls end in vain"
    setting = "kvm.halt_poll_ns=0" if wasted else "kvm.halt_poll_ns=50000"
    return finding("polling", text, warning=bad, replay=facts.replay(setting))


def _no_polls(facts: Facts, waited: int) -> Item:
    short = facts.sum("halts", "short_waits")
    mean = facts.sum("halts", "waited", "total") / waited
    text = f"no poll succeeds: {times(waited, 'halt')} blocked for {duration(mean)} on average"
    replay = None
    if short:
        text += f", {short:,} of them for at most {duration(SHORT_WAIT)}, which a poll could cover"
        replay = facts.replay("kvm.halt_poll_ns=200000")
    return finding("polling", text, replay=replay)


def _poll_statistics(facts: Facts, figures: dict[str, Any]) -> list[Item]:
    stats = facts.statistics
    success = stats.get("halt_successful_poll")
    if success is None and "cpu.haltpoll.success.time" not in stats:
        return []
    attempted = stats.get("halt_attempted_poll")
    exits = stats.get("halt_exits")
    spent = stats.get("halt_poll_success_ns", stats.get("cpu.haltpoll.success.time"))
    wasted = stats.get("cpu.haltpoll.fail.time", stats.get("halt_poll_fail_ns"))
    figures["statistics"] = {
        "attempted": attempted,
        "succeeded": success,
        "halt_exits": exits,
        "success_ns": spent,
        "fail_ns": wasted,
        "halt_wakeup": stats.get("halt_wakeup"),
        "success_ratio": success / attempted if attempted and success is not None else None,
    }
    parts: list[str] = []
    if success is not None and attempted:
        parts.append(
            f"{success:,} of {attempted:,} polls succeeded ({percent(success, attempted)})"
        )
    elif success is not None:
        parts.append(f"{success:,} polls succeeded; how many were attempted is not shown")
    if success is not None and exits:
        parts.append(f"{percent(success, exits)} of {exits:,} HLT exits ended while polling")
    if spent is not None and wasted is not None and spent + wasted:
        parts.append(
            f"{duration(wasted)} of {duration(spent + wasted)} spent polling were in vain "
            f"({percent(wasted, spent + wasted)})"
        )
    elif wasted:
        parts.append(f"{duration(wasted)} were polled in vain")
    busy_time = stats.get("cpu.time")
    if spent is not None and wasted is not None and busy_time:
        parts.append(f"polling is {percent(spent + wasted, busy_time)} of the VM's CPU time")
    bad = bool(attempted and success is not None and success < attempted / 2)
    return [finding("polling", "halt polling: " + "; ".join(parts), warning=bad)]


def windows(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    """Follow the polling window of each vCPU."""
    rows: list[dict[str, Any]] = []
    items: list[Item] = []
    for vcpu in facts.vcpus:
        window = vcpu["windows"]
        changes = window["grows"] + window["shrinks"]
        if not changes:
            continue
        path = [window["changes"][0]["before_ns"], *(one["now_ns"] for one in window["changes"])]
        rows.append(
            {
                "vm": vcpu["vm"],
                "vcpu": vcpu["vcpu"],
                "windows_ns": path,
                "grows": window["grows"],
                "shrinks": window["shrinks"],
                "turns": window["turns"],
                "max_ns": window["max_ns"],
                "last_ns": window["now_ns"],
            }
        )
        shown = ", ".join(f"{ns / 1000:g}" for ns in path[:16]) + (
            ", ..." if len(path) > 16 else ""
        )
        who = f"vCPU {vcpu['vcpu']}" if vcpu["vcpu"] >= 0 else "a vCPU"
        text = (
            f"polling window of {who}: {shown} us; {times(window['grows'], 'growth')} and "
            f"{times(window['shrinks'], 'shrink')}, {duration(window['max_ns'])} at most, "
            f"{duration(window['now_ns'])} in the end"
        )
        swings = changes >= 8 and window["turns"] >= changes / 2
        if swings:
            text += ". It swings: waits that a poll would cover alternate with longer ones"
        items.append(finding("windows", text, warning=swings))
    most = 4
    if len(items) > most:
        items = [*items[:most], finding("windows", f"and {len(items) - most} more vCPUs")]
    return {"vcpus": rows} if rows else {}, items


def busy(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    """Split the vCPUs' time, and say why a host whose guests are idle is busy."""
    if not facts.seconds or not facts.times:
        return _busy_cycles(facts)
    total = facts.seconds * 1e9
    guest = facts.sum("guest_time")
    useful, waited = (facts.sum("halts", kind, "total") for kind in ("polled", "waited"))
    wasted = facts.sum("halts", "wasted_ns")
    host = max(0.0, sum(facts.times.values()) - useful - waited)
    split = {
        "guest": guest / total,
        "handling": host / total,
        "polling": (useful + wasted) / total,
        "blocked": max(0, waited - wasted) / total,
    }
    text = "of the vCPUs' time: " + ", ".join(
        f"{name} {percent(s, 1)}" for name, s in split.items()
    )
    items = [finding("busy", text)]
    halts = sum(facts.counts.get(name, 0) for name in HALTS)
    host_share = split["handling"] + split["polling"]
    if split["guest"] >= IDLE_GUEST or host_share < BUSY_HOST or halts < 10:
        return split, items
    timers = facts.raw["interrupts"]["causes"].get("lapic_timer", {}).get("count", 0)
    rate = halts / facts.seconds
    if split["polling"] >= split["handling"]:
        text = (
            f"polling saturation: the guests are idle and halt polling keeps their host busy for "
            f"{percent(split['polling'], 1)} of the time"
        )
        replay = facts.replay("kvm.halt_poll_ns=0")
    elif 2 * timers >= halts:
        text = (
            f"timer storm: {number(timers / facts.seconds)} timer interrupts a second and vCPU "
            "wake idle "
            f"guests for next to nothing; the host is busy for {percent(host_share, 1)} of the time"
        )
        replay = facts.replay("kvm.avic=true")
    else:
        text = (
            f"halt storm: {number(rate)} halts a second and vCPU keep the host busy for "
            f"{percent(host_share, 1)} of the time with halting and waking"
        )
        setting = (
            "kvm.idle_hlt=true"
            if facts.sum("halts", "pending", "count")
            else "kvm.halt_poll_ns=50000"
        )
        replay = facts.replay(setting)
    return split, [*items, finding("busy", text, warning=True, replay=replay)]


def _busy_cycles(facts: Facts) -> tuple[dict[str, Any], list[Item]]:
    """What perf stat says: cycles of the host (H) and of the guest (G)."""
    sums: dict[str, int] = {}
    groups: list[dict[str, int]] = []
    for table in facts.report["tables"]:
        if table["format"] != "perf stat":
            continue
        sums = {}
        for row in table["rows"]:
            if row["name"].startswith("cycles:") and row.get("count"):
                sums[row["name"]] = sums.get(row["name"], 0) + row["count"]
        groups.append(sums)
    figures: dict[str, Any] = {}
    items: list[Item] = []
    for sums in groups:
        host = sums.get("cycles:H")
        guest = sums.get("cycles:G")
        if guest is None and "cycles:HG" in sums and host is not None:
            guest = sums["cycles:HG"] - host
        if host is None or guest is None or host + guest <= 0:
            continue
        share = guest / (host + guest)
        figures.setdefault("guest_share_of_cycles", []).append(share)
        text = f"{percent(share, 1)} of the cycles are the guest's"
        if share < IDLE_GUEST:
            text += (
                ", the host has the others: with an idle guest that is halt polling or a halt storm"
            )
        items.append(finding("busy", text, warning=share < IDLE_GUEST))
    return figures, items
