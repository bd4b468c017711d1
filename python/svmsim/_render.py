"""What results look like on a terminal. Every function returns a rich renderable."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from svmsim import _core

if TYPE_CHECKING:
    from svmsim.result import Result

_UNITS = ((1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns"))
_SPLIT = (
    ("total", "time_ns"),
    ("handling", "handling_ns"),
    ("polling", "polling_ns"),
    ("blocked", "blocked_ns"),
    ("run queue", "runqueue_ns"),
    ("C-state", "cstate_ns"),
)


def rendered(*renderables: RenderableType) -> str:
    """Return what standard output shall get; for a file or pipe plain text of up to 130 columns."""
    terminal = sys.stdout.isatty()
    text = io.StringIO()
    console = Console(
        file=text,
        force_terminal=True if terminal else None,
        width=None if terminal or "COLUMNS" in os.environ else 130,
        highlight=False,
    )
    for renderable in renderables:
        console.print(renderable)
    return text.getvalue()


def titled(title: str, body: RenderableType) -> RenderableType:
    """Put a title above; rich's own table titles wrap at the width of the table."""
    return Group(Text(title, "bold"), body)


def table(columns: Iterable[str], *, left: int = 1) -> Table:
    """Return an empty table; the first `left` columns hold text, the others numbers."""
    result = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for index, name in enumerate(columns):
        result.add_column(name, justify="left" if index < left else "right", no_wrap=index > 0)
    return result


def _unit(values_ns: Iterable[float]) -> tuple[float, str]:
    largest = max((abs(value) for value in values_ns), default=0.0)
    return next(((scale, name) for scale, name in _UNITS if largest >= scale), _UNITS[-1])


def split_table(exits: Mapping[str, Mapping[str, Any]]) -> RenderableType:
    """Where the time between kvm_exit and kvm_entry went, by exit reason."""
    rows = {name: [float(e.get(key) or 0) for _, key in _SPLIT] for name, e in exits.items()}
    scale, unit = _unit(value for row in rows.values() for value in row)
    result = table(["exit", *(name for name, _ in _SPLIT)])
    for name, row in sorted(rows.items(), key=lambda item: (-item[1][0], item[0])):
        result.add_row(name, *(f"{value / scale:,.3f}" if value else "-" for value in row))
    return titled(f"Exit to entry, by what the host did ({unit})", result)


_MOST_HALT_ROWS = 16


def halt_table(
    vcpus: Iterable[Mapping[str, Any]], total: Mapping[str, Any]
) -> RenderableType | None:
    """Where the time of halts went, by vCPU and in all; None when nothing halted with an exit."""
    halting = [vcpu for vcpu in vcpus if vcpu.get("halt", {}).get("count")]
    if not halting:
        return None
    rows = {f"{vcpu['vm']} vCPU {vcpu['vcpu']}": vcpu["halt"] for vcpu in halting[:_MOST_HALT_ROWS]}
    if len(halting) > _MOST_HALT_ROWS:
        rows[f"... {len(halting) - _MOST_HALT_ROWS} more"] = {}
    rows["all"] = total
    scale, unit = _unit(float(total.get(key) or 0) for _, key in _SPLIT)
    result = table(["halts of", "count", *(name for name, _ in _SPLIT)])
    for name, values in rows.items():
        if not values:
            result.add_row(name)
            continue
        times = [float(values.get(key) or 0) for _, key in _SPLIT]
        cells = (f"{time / scale:,.3f}" if time else "-" for time in times)
        result.add_row(name, f"{values['count']:,}", *cells)
    return titled(f"Halts, by where their time went ({unit})", result)


def share_table(pcpus: Iterable[Mapping[str, Any]]) -> RenderableType:
    """What share of its time each physical CPU spent in guest, host, polling, tasks and idle."""
    result = table(["pCPU", "guest", "host", "polling", "tasks", "idle", "switches"])
    for pcpu in pcpus:
        idle = sum(pcpu["idle_ns"].values())
        tasks = pcpu.get("task_ns", 0)
        times = (pcpu["guest_ns"], pcpu["host_ns"], pcpu["poll_ns"], tasks, idle)
        total = sum(times) or 1
        shares = (f"{100 * value / total:.2f}%" for value in times)
        result.add_row(str(pcpu["pcpu"]), *shares, f"{pcpu['context_switches']:,}")
    return titled("Physical CPUs, share of time", result)


def latency_table(latency: Mapping[str, Mapping[str, Any]]) -> RenderableType | None:
    """Latencies that occurred, or None."""
    kinds = {name: values for name, values in latency.items() if values.get("count")}
    if not kinds:
        return None
    names = ("mean_ns", "p50_ns", "p99_ns", "max_ns")
    result = table(["kind", "count", *(name.removesuffix("_ns") for name in names)])
    for kind, values in kinds.items():
        numbers = (f"{values[name]:,.0f}" for name in names)
        result.add_row(kind, f"{values['count']:,}", *numbers)
    return titled("Latency (ns)", result)


def metrics_line(workload: Mapping[str, Any]) -> Text:
    """One line of what the workload measured."""
    parts = [f"{name} {value_text(value)}" for name, value in workload.get("metrics", {}).items()]
    return Text.assemble((str(workload.get("kind", "workload")), "bold"), "  ", ", ".join(parts))


def value_text(value: Any) -> str:
    """A parameter's or metric's value as a person writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return f"{value:,}" if abs(value) >= 10_000 else str(value)
    if isinstance(value, float):
        return f"{value:.6g}"
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return ", ".join(value_text(item) for item in value)
    return json.dumps(value, ensure_ascii=False)


def perf_text(result: Result, layout: str = "wide") -> str:
    """The exit table in one of the layouts of `perf kvm stat report`; see `Result.perf_table`."""
    return _core.perf_table(result.to_json(), layout).strip("\n") + "\n"


def result_view(result: Result) -> RenderableType:
    """How the time of the exits splits, and what else was measured."""
    data = result.to_dict()
    parts: list[RenderableType] = [
        split_table(data["exits"]),
        Text(),
    ]
    halts = halt_table(data["vcpus"], data.get("halt", {}))
    if halts is not None:
        parts += [halts, Text()]
    parts += [share_table(data["pcpus"])]
    latency = latency_table(data["latency"])
    if latency is not None:
        parts += [Text(), latency]
    parts += [Text(), metrics_line(data["workload"])]
    if data.get("busy_reason"):
        parts += [Text(f"busy host: {data['busy_reason']}")]
    parts += [Text(f"advice: {item['text']} ({item['setting']})") for item in result.advice]
    return Group(*parts)


def counts_table(
    title: str, columns: Mapping[str, Mapping[str, int] | None], *, change: bool = False
) -> RenderableType:
    """Exit counts side by side, a column for each of `columns`.

    With `change`, one more column has the last column minus the one before it.
    """
    shown = {name: counts for name, counts in columns.items() if counts is not None}
    names = list(dict.fromkeys(exit_ for counts in shown.values() for exit_ in counts))
    result = table(["exit", *shown, *(["change"] if change else [])])
    for name in names:
        values = [counts.get(name, 0) for counts in shown.values()]
        cells = [f"{value:,}" for value in values]
        if change:
            cells.append(f"{values[-1] - values[-2]:+,}")
        result.add_row(name, *cells)
    return titled(title, result)


_DETAILS = {"source", "minimum", "maximum", "choices", "default_note", "features"}


def _is_table(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def records_table(
    title: str, records: Iterable[Mapping[str, Any]], *, details: bool = False
) -> RenderableType:
    """Records of any kind, a column for each key that some record fills.

    Without `details` only what tells one record from another is shown.
    """
    rows = list(records)
    names = list(dict.fromkeys(name for row in rows for name in row))
    names = [name for name in names if any(row.get(name) not in (None, "", []) for row in rows)]
    if not details:
        names = [
            name
            for name in names
            if name not in _DETAILS and not any(_is_table(row.get(name)) for row in rows)
        ]
    result = table(names, left=len(names))
    for column in result.columns:
        column.no_wrap = False
        column.overflow = "fold"
    if result.columns:
        result.columns[0].no_wrap = True
    for row in rows:
        result.add_row(*(Text(value_text(row.get(name))) for name in names))
    return titled(title, result)


def facts_view(facts: Mapping[str, Any]) -> Table:
    """Names and values, a line each; what is empty is left out."""
    result = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    result.add_column(no_wrap=True)
    result.add_column(overflow="fold")
    for name, value in facts.items():
        if value not in (None, "", []):
            result.add_row(name, Text(value_text(value)))
    return result


def record_view(title: str, record: Mapping[str, Any]) -> RenderableType:
    """One record in full, a line for each key; lists of records as tables below."""
    tables = {name: value for name, value in record.items() if _is_table(value)}
    facts = {name: value for name, value in record.items() if name not in tables}
    below: list[RenderableType] = []
    for name, value in tables.items():
        below += [Text(), records_table(name, value, details=True)]
    return Group(titled(title, facts_view(facts)), *below)
