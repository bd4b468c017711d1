"""The tables of a campaign's results: every column declared once, with unit, meaning and formula.

Reading, writing, documentation (docs/results.md) and the analyses' checks all come from here. The
statistics of vCPUs are declared in C++ and taken from there.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

__all__ = ["TABLES", "Column", "TableSchema", "schema_markdown", "table_schema", "table_schemas"]

SCHEMA = 1
"""Version of the tables; it changes when a column changes its meaning."""

Type = Literal["integer", "unsigned", "real", "text", "list of integers", "of the values"]


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    type: Type
    unit: str
    """Empty for texts, names and counts without a unit."""
    doc: str
    """What it says, in one sentence."""
    formula: str = ""
    """How it follows from other columns or from the events of the simulation; empty for keys."""


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One table, which is the file NAME.parquet of a campaign's directory."""

    name: str
    row: str
    """What a row stands for."""
    columns: tuple[Column, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns."""
        return tuple(column.name for column in self.columns)


_RUN = Column("run", "integer", "", "Number of the run in the campaign's order; joins all tables.")
_VM = Column("vm", "text", "", "Name of the VM.")
_VCPU = Column("vcpu", "integer", "", "Index of the vCPU in its VM.")


def _time(name: str, doc: str, formula: str = "") -> Column:
    return Column(name, "integer", "ns", doc, formula)


def _count(name: str, doc: str, formula: str = "") -> Column:
    return Column(name, "integer", "1", doc, formula)


def _real(name: str, unit: str, doc: str, formula: str = "") -> Column:
    return Column(name, "real", unit, doc, formula)


def _text(name: str, doc: str, formula: str = "") -> Column:
    return Column(name, "text", "", doc, formula)


_SPLIT = (
    _time(
        "handling_ns",
        "Time in which the host worked for the exit.",
        "time_ns - polling_ns - blocked_ns - runqueue_ns - cstate_ns",
    ),
    _time(
        "polling_ns", "Time of host halt polling.", "vcpu_halt: from the first check to the last"
    ),
    _time("blocked_ns", "Time scheduled out, until something woke the vCPU.", "block to wake-up"),
    _time(
        "runqueue_ns",
        "Time runnable on a pCPU that did something else.",
        "wake-up to scheduled in, less cstate_ns",
    ),
    _time("cstate_ns", "Time in which the pCPU left its idle state for this vCPU.", "exit latency"),
)
_SWEPT = Column(
    "<parameter>",
    "of the values",
    "that of the parameter",
    "One column for each swept parameter, named by its full key (`kvm.halt_poll_ns`), with the"
    " resolved value; a variant's label under the name of its axis (`workload`).",
)

_RUNS = TableSchema(
    "runs",
    "a run: one configuration with one seed",
    (
        _RUN,
        _text(
            "run_id",
            "Name of the run: the same for the same simulation, in every campaign.",
            "first 20 hex digits of SHA-256 over the resolved scenario, the contents of the files"
            " that it names, version and build, and the seed",
        ),
        Column("configuration", "integer", "", "Number of the configuration; runs of one differ in"
               " their seed alone."),
        Column("seed", "integer", "", "run.seed; the same seeds in every configuration, so that"
               " runs can be paired."),
        _SWEPT,
        _text("status", "ok, failed (with an error), time_limit or killed.", "ok where error is"
              " null"),
        _text("error", "What went wrong; null when nothing did. Then no other table has the run."),
        _text("failure", "Why the workload ended early (its own check failed); null otherwise."),
        _time("sim_time_ns", "Simulated time that the statistics cover.", "end - warm-up"),
        _count("exits", "VM exits of all vCPUs.", "sum of exits.count"),
        _time("exit_time_ns", "Time from exits to entries.", "sum of exits.time_ns"),
        *(
            Column(c.name, c.type, c.unit, c.doc, f"sum of exits.{c.name}") for c in _SPLIT
        ),
        _time("guest_ns", "Time of pCPUs in guest mode.", "sum of pcpus.guest_ns"),
        _time("host_ns", "Time of pCPUs in the host, without polling.", "sum of pcpus.host_ns"),
        _time("poll_ns", "Time of pCPUs in halt polling.", "sum of pcpus.poll_ns"),
        _time("idle_ns", "Idle time of pCPUs.", "sum of pcpus.idle_ns"),
        _time("busy_ns", "CPU time burnt.", "guest_ns + host_ns + poll_ns"),
        _count("migrations", "How often a thread of the host moved to another pCPU."),
        _text("busy_reason", "Why the host is busy while its guests are idle; empty when it is"
              " not."),
        _text("version", "Version of svmsim that simulated."),
        _text("build", "Build of the extension module that simulated.", "first 16 hex digits of"
              " the SHA-256 of its file"),
    ),
)  # fmt: skip
_CONFIGURATIONS = TableSchema(
    "configurations",
    "a configuration: what all its runs have in common",
    (
        Column("configuration", "integer", "", "Number of the configuration."),
        _text("label", "The swept values in words.", "key=value, key=value, ..."),
        _SWEPT,
        _text(
            "scenario", "The resolved scenario as JSON; the seed in it is 1, whatever the run's."
        ),
        _text("inputs", "SHA-256 of each file that the scenario names, as JSON."),
    ),
)
_EXITS = TableSchema(
    "exits",
    "a reason for VM exits of one vCPU; a reason that did not occur has no row",
    (
        _RUN,
        _VM,
        _VCPU,
        _text("exit", "The kernel's name of the exit reason."),
        _count("count", "How many there were.", "number of kvm_exit with this reason"),
        _time(
            "time_ns",
            "Time as `perf kvm stat` counts it, with the cost of recording what lies between.",
            "sum over exits of (next kvm_entry - kvm_exit)",
        ),
        _time("min_ns", "The shortest.", "minimum of (next kvm_entry - kvm_exit)"),
        _time("max_ns", "The longest.", "maximum of (next kvm_entry - kvm_exit)"),
        _real("mean_ns", "ns", "The mean.", "time_ns / count"),
        *_SPLIT,
        _real("error_pct", "%", "Standard error of the mean, in per cent of it, as perf prints it.",
              "100 * stddev / sqrt(count) / mean_ns"),
    ),
)  # fmt: skip
_LATENCIES = TableSchema(
    "latencies",
    "a kind of latency of one run; percentiles are at most 1/128 too large",
    (
        _RUN,
        _text(
            "kind",
            "wakeup (an event for a blocked vCPU until it runs) or ipi (ICR write until the"
            " vector's handler).",
        ),
        _count("count", "How many were measured."),
        _real("mean_ns", "ns", "The mean.", "sum / count"),
        _time("p50_ns", "The median.", "value that 50 % do not exceed"),
        _time("p99_ns", "The 99th percentile.", "value that 99 % do not exceed"),
        _time("max_ns", "The longest."),
    ),
)
_PCPUS = TableSchema(
    "pcpus",
    "a physical CPU of one run",
    (
        _RUN,
        Column("pcpu", "integer", "", "Index of the physical CPU."),
        _time("guest_ns", "Time in guest mode.", "sum over VMRUN to #VMEXIT"),
        _time("host_ns", "Time in the host, without polling.", "the rest"),
        _time("poll_ns", "Time in halt polling.", "sum over polling windows"),
        _time("idle_ns", "Time in the idle loop.", "sum of idle_states.idle_ns"),
        _time("task_ns", "Time of the host's own threads.", "sum over their turns"),
        _count("context_switches", "How often the running task changed.", "number of sched_switch"),
        _count(
            "timer_interrupts",
            "Host timers that expired: those of vCPUs, of answers of devices, of sleeping threads;"
            " without the tick.",
            "number of expiries",
        ),
    ),
)
_IDLE_STATES = TableSchema(
    "idle_states",
    "an idle state of a physical CPU",
    (
        _RUN,
        Column("pcpu", "integer", "", "Index of the physical CPU."),
        _text("state", "Name of the idle state (`C1`)."),
        _time("idle_ns", "Time in this state.", "sum over cpu_idle enter to exit"),
    ),
)
_TASKS = TableSchema(
    "tasks",
    "a thread of the host beside the vCPUs",
    (
        _RUN,
        _text("name", "Name of the thread; several may have it."),
        Column("tid", "integer", "", "Its thread ID."),
        _time("run_ns", "Time that it ran.", "sum over its turns"),
        _count("loops", "How often it went through all its phases."),
        _count("wakeup_count", "How often a sleep of it ended."),
        _real("wakeup_mean_ns", "ns", "From the end of a sleep to its running, mean."),
        _time("wakeup_p50_ns", "Median of it."),
        _time("wakeup_p99_ns", "99th percentile of it."),
        _time("wakeup_max_ns", "Maximum of it."),
    ),
)
_METRICS = TableSchema(
    "metrics",
    "something that the workload measured",
    (
        _RUN,
        _text("metric", "Name of the metric, as the workload's description has it."),
        _real("value", "as the metric", "Its value; cycles where the name says so."),
    ),
)
_INHIBITS = TableSchema(
    "apicv_inhibits",
    "a reason for which AVIC was inhibited in a VM",
    (
        _RUN,
        _VM,
        _text("reason", "KVM's name of the inhibit reason."),
        _count("count", "How often it was set."),
        _time("time_ns", "How long it was set.", "sum over set to clear"),
    ),
)
_ADVICE = TableSchema(
    "advice",
    "a setting that could be better",
    (
        _RUN,
        _text("id", "Name of the advice."),
        _text("text", "The advice in a sentence."),
        _text("setting", "The setting that it is about."),
    ),
)
_TIMING = TableSchema(
    "timing",
    "a run's cost on the machine that simulated it; the one table that differs between equal"
    " campaigns",
    (
        _RUN,
        _real("wall_time_s", "s", "Wall time of the simulation alone; null for a failed run."),
        _real("elapsed_s", "s", "Wall time of the run in its worker, with set-up and result."),
        _text("host", "Name of the machine."),
        Column("pid", "integer", "", "Process of the worker."),
    ),
)
_EVENTS = TableSchema(
    "events",
    "an event of the simulation, in the order of time; only with `events = true`, a file for each"
    " run",
    (
        _RUN,
        _time("time_ns", "Simulated time.", "TSC cycles rounded half up to ns"),
        _text("event", "Name of the tracepoint (`kvm_exit`)."),
        Column("cpu", "integer", "", "Physical CPU."),
        Column("tid", "integer", "", "The host's thread that ran there."),
        _text("task", "Its name (`CPU 0/KVM`)."),
        _text("vm", "VM of a vCPU's thread, null for other threads."),
        Column("vcpu", "integer", "", "Its vCPU, null for other threads."),
        *(
            Column(f"field_{index}", "unsigned", "that of the field", f"Field {index + 1} of the"
                   " event, in the order of its trace point; 0 where it has none.")
            for index in range(8)
        ),
    ),
)  # fmt: skip


def _statistics(name: str, row: str, halts: bool) -> TableSchema:
    """Return the table of those KVM statistics whose name begins with `halt_`, or of the rest."""
    from svmsim import _core

    columns = [_RUN, _VM, _VCPU]
    for item in json.loads(_core.describe())["statistics"]:
        if item["name"].startswith("halt_") is not halts:
            continue
        histogram = bool(item["histogram"])
        columns.append(
            Column(
                item["name"],
                "list of integers" if histogram else "integer",
                item["unit"] or "1",
                item["doc"],
                "element i counts values of 2^(i-1) to 2^i - 1, element 0 the value 0"
                if histogram
                else "KVM's statistic of this name",
            )
        )
    return TableSchema(name, row, tuple(columns))


@functools.cache
def table_schemas() -> dict[str, TableSchema]:
    """Return every table by name, in a fixed order."""
    halts = _statistics("halts", "the halts of one vCPU", True)
    vcpus = _statistics("vcpus", "KVM's other statistics of one vCPU", False)
    tables = (
        _RUNS,
        _CONFIGURATIONS,
        _EXITS,
        halts,
        vcpus,
        _LATENCIES,
        _PCPUS,
        _IDLE_STATES,
        _TASKS,
        _METRICS,
        _INHIBITS,
        _ADVICE,
        _TIMING,
        _EVENTS,
    )
    return {table.name: table for table in tables}


TABLES = (
    "runs",
    "configurations",
    "exits",
    "halts",
    "vcpus",
    "latencies",
    "pcpus",
    "idle_states",
    "tasks",
    "metrics",
    "apicv_inhibits",
    "advice",
    "timing",
    "events",
)
"""The names of all tables."""


def table_schema(name: str) -> TableSchema:
    """Return the declaration of one table.

    Raises:
        UserError: there is no such table.
    """
    import difflib

    from svmsim.errors import UserError, problem

    tables = table_schemas()
    if name not in tables:
        close = difflib.get_close_matches(name, TABLES, n=1)
        text = "there is no such table of results"
        raise UserError([problem(text, path=name, nearest=close[0] if close else "")])
    return tables[name]


def _cells(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def schema_markdown() -> str:
    """Return the documentation of all tables, which docs/results.md holds."""
    text = ""
    for table in table_schemas().values():
        text += f"### {table.name}\n\nA row is {table.row}.\n\n"
        text += _cells(["column", "type", "unit", "meaning", "formula"])
        text += _cells([":--"] * 5)
        for column in table.columns:
            formula = f"`{column.formula}`" if column.formula else ""
            name = f"`{column.name}`"
            text += _cells([name, column.type, column.unit, column.doc, formula])
        text += "\n"
    return text.rstrip("\n") + "\n"
