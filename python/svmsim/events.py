"""The events of a run as a frame, and what they mean: times on tracks, halts, exits, IPIs.

An event is one line of a KVM trace. Everything here is derived from what the kernel's trace points
say and from nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from svmsim._timeline import Flow, Slice, Timeline, timeline
from svmsim.errors import InternalError

if TYPE_CHECKING:  # polars is imported when a frame is asked for, since it is slow and large
    import polars as pl

__all__ = ["Events"]

FIELDS = 8


class Events:
    """What happened in a run, in the order of time.

    `Scenario.run(events=True)` gives a result that has it. Times are in ns of simulated time from
    the start of the run. Frames are made anew at each call.
    """

    def __init__(self, columns: Mapping[str, Any], vcpus: Mapping[int, tuple[str, int]]) -> None:
        """Take columns as `_core.run` gives them, and VM and vCPU by host thread."""
        self._columns = columns
        self._vcpus = dict(vcpus)

    @classmethod
    def of_run(cls, columns: Mapping[str, Any], scenario: Mapping[str, Any]) -> Events:
        """Take the events of a run of a resolved scenario."""
        names = [(vm["name"], index) for vm in scenario["vm"] for index in range(vm["vcpus"])]
        # The machine makes the vCPU threads first, one after the other; others may follow.
        tids = [tid for tid, _ in columns["threads"]][: len(names)]
        if len(tids) < len(names):
            raise InternalError("a vCPU without a thread")
        return cls(columns, dict(zip(tids, names, strict=True)))

    def __len__(self) -> int:
        return len(self._columns["time_ns"])

    def __repr__(self) -> str:
        return f"Events({len(self):,})"

    @property
    def vcpus(self) -> dict[int, tuple[str, int]]:
        """VM and vCPU by host thread."""
        return dict(self._vcpus)

    @property
    def threads(self) -> dict[int, str]:
        """Names of the host's threads."""
        return dict(cast("Sequence[tuple[int, str]]", self._columns["threads"]))

    @property
    def frame(self) -> pl.DataFrame:
        """Frame of time_ns, event, cpu, tid, vm, vcpu, field_0 .. field_7.

        What a field holds depends on the event, as its trace point says; `vm` and `vcpu` are those
        of the thread, null for other threads.
        """
        import polars as pl

        kinds = [*self._columns["kinds"], "other"]
        tids = pl.Series("tid", self._columns["tid"])
        names = pl.DataFrame(
            {
                "tid": pl.Series(list(self._vcpus), dtype=pl.Int32),
                "vm": pl.Series([vm for vm, _ in self._vcpus.values()], dtype=pl.String),
                "vcpu": pl.Series([vcpu for _, vcpu in self._vcpus.values()], dtype=pl.Int32),
            }
        )
        fields = self._columns["fields"]
        frame = pl.DataFrame(
            {
                "time_ns": pl.Series(self._columns["time_ns"]).cast(pl.Int64),
                "event": pl.Series(kinds, dtype=pl.Enum(kinds)).gather(self._columns["kind"]),
                "cpu": pl.Series(self._columns["cpu"]),
                "tid": tids,
            }
        )
        frame = frame.join(names, on="tid", how="left", maintain_order="left")
        return frame.with_columns(
            [pl.Series(f"field_{i}", fields[:, i].copy()) for i in range(FIELDS)]
        )

    @cached_property
    def timeline(self) -> Timeline:
        """The events as slices of pCPUs and vCPUs, halts, IPIs and poll windows."""
        return timeline(self._columns, self._vcpus)

    @property
    def slices(self) -> pl.DataFrame:
        """Frame of track ("pcpu", "vcpu"), vm, index, begin_ns, end_ns, state, name.

        `state` of a pCPU is guest, host, poll, task (another thread) or idle; of a vCPU guest,
        exit, poll, blocked or runqueue, of which the last three lie within an exit.
        """
        import polars as pl

        return pl.DataFrame(
            [(s.track, s.vm, s.index, s.begin_ns, s.end_ns, s.state, s.name) for s in self._all()],
            schema={
                "track": pl.String,
                "vm": pl.String,
                "index": pl.Int64,
                "begin_ns": pl.Int64,
                "end_ns": pl.Int64,
                "state": pl.String,
                "name": pl.String,
            },
            orient="row",
        )

    def _all(self) -> list[Slice]:
        return [*self.timeline.pcpus, *self.timeline.vcpus]

    @property
    def exits(self) -> pl.DataFrame:
        """Frame of vm, vcpu, exit, begin_ns, time_ns: each exit, up to the next entry."""
        import polars as pl

        rows = [
            (s.vm, s.index, s.name, s.begin_ns, s.end_ns - s.begin_ns)
            for s in self.timeline.vcpus
            if s.state == "exit" and s.complete
        ]
        schema = {
            "vm": pl.String,
            "vcpu": pl.Int64,
            "exit": pl.String,
            "begin_ns": pl.Int64,
            "time_ns": pl.Int64,
        }
        return pl.DataFrame(rows, schema=schema, orient="row")

    @property
    def halts(self) -> pl.DataFrame:
        """Frame of each halt in KVM that ended, with the moments of its wake-up.

        vm, vcpu, begin_ns, waited (the thread slept), cause_ns (the interrupt reached the IRR; null
        when no event says so), woken_ns (the thread was made runnable, or polling saw the cause),
        awake_ns (its pCPU left the idle state), running_ns (it runs), entry_ns (VMRUN).
        """
        import polars as pl

        rows = [
            (
                h.vm,
                h.vcpu,
                h.begin_ns,
                h.waited,
                h.cause_ns,
                h.woken_ns,
                h.awake_ns,
                h.running_ns,
                h.entry_ns,
            )
            for h in self.timeline.halts
        ]
        schema: dict[str, Any] = {"vm": pl.String, "vcpu": pl.Int64, "begin_ns": pl.Int64}
        schema["waited"] = pl.Boolean
        moments = ("cause_ns", "woken_ns", "awake_ns", "running_ns", "entry_ns")
        schema |= dict.fromkeys(moments, pl.Int64)
        return pl.DataFrame(rows, schema=schema, orient="row")

    @property
    def poll_windows(self) -> pl.DataFrame:
        """Frame of vm, vcpu, time_ns, old_ns, new_ns: every change of a vCPU's halt_poll_ns."""
        import polars as pl

        schema = {"vm": pl.String, "vcpu": pl.Int64, "time_ns": pl.Int64}
        schema |= {"old_ns": pl.Int64, "new_ns": pl.Int64}
        return pl.DataFrame(self.timeline.poll_windows, schema=schema, orient="row")

    @property
    def ipis(self) -> pl.DataFrame:
        """Frame of vm, sender, target, vector, sent_ns, handled_ns: IPIs that KVM carried.

        From the exit in which KVM emulates the write of the ICR to the entry that injects the
        vector. IPIs that AVIC delivers without an exit leave no event and are not here.
        """
        import polars as pl

        rows = [
            (f.vm, f.sender, f.target, f.vector, f.sent_ns, f.handled_ns)
            for f in self.timeline.flows
        ]
        schema = {"vm": pl.String, "sender": pl.Int64, "target": pl.Int64, "vector": pl.Int64}
        schema |= {"sent_ns": pl.Int64, "handled_ns": pl.Int64}
        return pl.DataFrame(rows, schema=schema, orient="row")

    @property
    def flows(self) -> list[Flow]:
        """What `ipis` is made of."""
        return list(self.timeline.flows)
