"""From events to times on tracks: who ran what on which pCPU, and what each vCPU waited for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from svmsim import _core

_IDLE_EXIT = 4294967295  # cpu_idle prints (u32)-1 when the idle state is left
_BLOCKED = ord("S")


@dataclass(slots=True)
class Slice:
    """A time on the track of a pCPU (`track` "pcpu") or a vCPU ("vcpu")."""

    track: str
    vm: str
    index: int
    begin_ns: int
    end_ns: int
    state: str
    name: str
    complete: bool = True
    """Whether its end is in the events; a vCPU's last slice ends with the run."""


@dataclass(slots=True)
class Halt:
    """One halt in KVM and the moments of its end; see `Events.halts`."""

    vm: str
    vcpu: int
    begin_ns: int
    waited: bool
    cause_ns: int | None
    woken_ns: int
    awake_ns: int
    running_ns: int
    entry_ns: int


@dataclass(slots=True)
class Flow:
    """An IPI, from the exit of its sender to the entry that injects it."""

    vm: str
    sender: int
    target: int
    vector: int
    sent_ns: int
    handled_ns: int


@dataclass
class Timeline:
    """What the events of a run say; each list in the order of its end."""

    pcpus: list[Slice] = field(default_factory=list)
    vcpus: list[Slice] = field(default_factory=list)
    halts: list[Halt] = field(default_factory=list)
    flows: list[Flow] = field(default_factory=list)
    poll_windows: list[tuple[str, int, int, int, int]] = field(default_factory=list)
    """(vm, vcpu, time_ns, old_ns, new_ns)"""


@cache
def _exit_names() -> dict[int, str]:
    codes = json.loads(_core.describe())["exit_codes"]
    return {int(code["code"]) % 2**64: str(code["name"]) for code in codes}


def exit_name(code: int) -> str:
    """Return the kernel's name of an exit code, or the code as the kernel prints an unknown one."""
    return _exit_names().get(code, f"{code:#x}")


@dataclass
class _Pcpu:
    index: int
    state: str = ""
    name: str = ""
    begin_ns: int = 0
    awake_ns: int = -1
    """When it left its idle state last."""


@dataclass
class _Vcpu:
    vm: str
    index: int
    exit_: str = ""
    begin_ns: int = -1
    in_guest: bool = False
    window_ns: int = 0
    """Its halt_poll_ns as the events tell it: 0 until it changes."""
    next_window_ns: int | None = None
    """The window after the halt that ends now, whose event comes in front of the halt's own."""
    cause_ns: int | None = None
    woken_ns: int = -1
    awake_ns: int = -1
    running_ns: int = -1
    out_ns: int = -1
    """When its thread was switched out last."""
    out_state: str = ""
    host_slice: Slice | None = None
    """The pCPU's host time in front of that."""
    halt: tuple[int, bool, int] | None = None
    """Begin, whether the thread slept, and when KVM saw the end, of a halt before its entry."""
    injected: dict[int, tuple[_Vcpu, int]] = field(default_factory=dict)


class _Walk:
    def __init__(self, vcpus: Mapping[int, tuple[str, int]], threads: Mapping[int, str]) -> None:
        self.result = Timeline()
        self.threads = threads
        self.by_tid = {tid: _Vcpu(vm, index) for tid, (vm, index) in vcpus.items()}
        self.by_name = {(v.vm, v.index): v for v in self.by_tid.values()}
        self.pcpus: dict[int, _Pcpu] = {}
        self.sending: dict[int, tuple[int, int]] = {}  # by tid: vector, time
        self.sent: dict[tuple[str, int, int], tuple[_Vcpu, int]] = {}

    def pcpu(self, index: int) -> _Pcpu:
        found = self.pcpus.get(index)
        if found is None:
            found = self.pcpus[index] = _Pcpu(index)
        return found

    def change(self, index: int, now: int, state: str, name: str) -> Slice | None:
        """End what the pCPU was doing, and return that."""
        cpu = self.pcpu(index)
        ended = None
        if cpu.state and now > cpu.begin_ns:
            ended = Slice("pcpu", "", index, cpu.begin_ns, now, cpu.state, cpu.name)
            self.result.pcpus.append(ended)
        cpu.state, cpu.name, cpu.begin_ns = state, name, now
        return ended

    def on_vcpu(
        self, v: _Vcpu, begin: int, end: int, state: str, name: str, complete: bool = True
    ) -> None:
        if end > begin >= 0:
            self.result.vcpus.append(
                Slice("vcpu", v.vm, v.index, begin, end, state, name, complete)
            )

    # A method for each event, named as it is: now, cpu, tid, fields.

    def kvm_entry(self, now: int, cpu: int, tid: int, _f: Any) -> None:
        v = self.by_tid.get(tid)
        if v is None:
            return
        if v.exit_:
            self.on_vcpu(v, v.begin_ns, now, "exit", v.exit_)
        if v.halt is not None:
            begin, waited, seen = v.halt
            woken = v.woken_ns if waited and v.woken_ns >= 0 else seen
            running = v.running_ns if waited and v.running_ns >= 0 else woken
            awake = min(max(v.awake_ns, woken), running) if waited else woken
            cause = v.cause_ns if v.cause_ns is None else min(v.cause_ns, woken)
            halt = Halt(v.vm, v.index, begin, waited, cause, woken, awake, running, now)
            self.result.halts.append(halt)
            v.halt = None
        for vector, (sender, sent_at) in v.injected.items():
            self.result.flows.append(Flow(v.vm, sender.index, v.index, vector, sent_at, now))
        v.injected.clear()
        v.exit_, v.begin_ns, v.in_guest, v.cause_ns, v.woken_ns = "", now, True, None, -1
        self.sending.pop(tid, None)
        self.change(cpu, now, "guest", f"{v.vm}/{v.index}")

    def kvm_exit(self, now: int, cpu: int, tid: int, f: Any) -> None:
        v = self.by_tid.get(tid)
        if v is None:
            return
        if v.in_guest:
            self.on_vcpu(v, v.begin_ns, now, "guest", "guest")
        v.exit_, v.begin_ns, v.in_guest = exit_name(int(f[0])), now, False
        self.change(cpu, now, "host", v.exit_)

    def sched_switch(self, now: int, cpu: int, _tid: int, f: Any) -> None:
        previous, following = self.by_tid.get(int(f[0])), self.by_tid.get(int(f[3]))
        if following is not None:
            name = following.exit_ or f"{following.vm}/{following.index}"
            ended = self.change(cpu, now, "host", name)
        elif int(f[3]) == 0:
            ended = self.change(cpu, now, "host", "idle")
        else:
            name = self.threads.get(int(f[3]), "thread")
            ended = self.change(cpu, now, "task", name)
        if previous is not None:
            if previous.in_guest:  # the thread ended there
                self.on_vcpu(previous, previous.begin_ns, now, "guest", "guest")
                previous.in_guest = False
            previous.out_ns = now
            previous.out_state = "blocked" if int(f[2]) & 0xFF == _BLOCKED else "runqueue"
            previous.host_slice = ended
            previous.woken_ns = -1
        if following is not None:
            self._switched_in(following, now, self.pcpu(cpu).awake_ns)

    def _switched_in(self, v: _Vcpu, now: int, awake_ns: int) -> None:
        if v.out_ns >= 0 and v.exit_:
            woken = v.woken_ns if v.woken_ns >= 0 else now
            if v.out_state == "blocked":
                self.on_vcpu(v, v.out_ns, woken, "blocked", "blocked")
                self.on_vcpu(v, woken, now, "runqueue", "run queue")
            else:
                self.on_vcpu(v, v.out_ns, now, "runqueue", "run queue")
        v.running_ns, v.awake_ns = now, awake_ns

    def sched_wakeup(self, now: int, _cpu: int, _tid: int, f: Any) -> None:
        v = self.by_tid.get(int(f[0]))
        if v is not None and v.woken_ns < 0:
            v.woken_ns = now

    sched_waking = sched_wakeup

    def cpu_idle(self, now: int, cpu: int, _tid: int, f: Any) -> None:
        state = int(f[0])
        if state == _IDLE_EXIT:
            self.change(cpu, now, "host", "idle exit")
            self.pcpu(cpu).awake_ns = now
        else:
            self.change(cpu, now, "idle", f"idle state {state}")

    def kvm_halt_poll_ns(self, now: int, _cpu: int, tid: int, f: Any) -> None:
        v = self.by_tid.get(tid)
        if v is not None:
            self.result.poll_windows.append((v.vm, v.index, now, int(f[2]), int(f[1])))
            v.window_ns, v.next_window_ns = int(f[2]), int(f[1])

    def kvm_vcpu_wakeup(self, now: int, cpu: int, tid: int, f: Any) -> None:
        v = self.by_tid.get(tid)
        if v is None:
            return
        begin, waited = now - int(f[0]), bool(f[1])
        v.halt = (begin, waited, now)
        if v.window_ns > 0:
            self._polled(v, begin, min(begin + v.window_ns, v.out_ns if waited else now), cpu)
        if v.next_window_ns is not None:
            v.window_ns, v.next_window_ns = v.next_window_ns, None

    def _polled(self, v: _Vcpu, begin: int, end: int, cpu: int) -> None:
        """Cut polling out of the pCPU's host time, of which the events tell only afterwards."""
        if end <= begin:
            return
        self.on_vcpu(v, begin, end, "poll", "halt polling")
        poll = Slice("pcpu", "", cpu, begin, end, "poll", f"{v.vm}/{v.index}")
        current, before = self.pcpu(cpu), v.host_slice
        if current.begin_ns <= begin and current.state == "host":
            self.change(cpu, begin, "host", current.name)
            current.begin_ns = end
            self.result.pcpus.append(poll)
        elif before is not None and before.begin_ns <= begin and end <= before.end_ns:
            poll.index = before.index
            self.result.pcpus.append(poll)
            if before.end_ns > end:
                rest = Slice("pcpu", "", before.index, end, before.end_ns, "host", before.name)
                self.result.pcpus.append(rest)
            before.end_ns = begin
            v.host_slice = None

    def kvm_apic_ipi(self, now: int, _cpu: int, tid: int, f: Any) -> None:
        self.sending[tid] = (int(f[0]) & 0xFF, now)

    def kvm_apic_accept_irq(self, now: int, _cpu: int, tid: int, f: Any) -> None:
        apic_id, vector = int(f[0]), int(f[3])
        sender = self.by_tid.get(tid)
        if sender is None:
            # An interrupt from outside: without the VM's name it can only be one of a single VM.
            names = {v.vm for v in self.by_tid.values()}
            vm = names.pop() if len(names) == 1 else ""
        else:
            vm = sender.vm
        target = self.by_name.get((vm, apic_id))
        if target is None:
            return
        if target.cause_ns is None:
            target.cause_ns = now
        sending = self.sending.get(tid)
        if sender is not None and sending is not None and sending[0] == vector:
            self.sent[vm, apic_id, vector] = (sender, sending[1])

    kvm_apicv_accept_irq = kvm_apic_accept_irq

    def kvm_inj_virq(self, _now: int, _cpu: int, tid: int, f: Any) -> None:
        v = self.by_tid.get(tid)
        if v is None:
            return
        vector = int(f[0])
        sent = self.sent.pop((v.vm, v.index, vector), None)
        if sent is not None:
            v.injected[vector] = sent

    def finish(self, now: int) -> None:
        for cpu in self.pcpus:
            self.change(cpu, now, "", "")
        for v in self.by_tid.values():
            if v.in_guest or v.exit_:
                state, name = ("guest", "guest") if v.in_guest else ("exit", v.exit_)
                self.on_vcpu(v, v.begin_ns, now, state, name, complete=False)


def timeline(columns: Mapping[str, Any], vcpus: Mapping[int, tuple[str, int]]) -> Timeline:
    """Walk over the events once."""
    walk = _Walk(vcpus, dict(columns["threads"]))
    handlers = [getattr(walk, kind, None) for kind in columns["kinds"]]
    kinds, cpus, tids = (columns[name].tolist() for name in ("kind", "cpu", "tid"))
    times, fields = columns["time_ns"].tolist(), columns["fields"]
    for index, kind in enumerate(kinds):
        handler = handlers[kind] if kind < len(handlers) else None
        if handler is not None:
            handler(times[index], cpus[index], tids[index], fields[index])
    if times:
        walk.finish(times[-1])
    return walk.result
