"""What `svmsim import` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from svmsim._render import counts_table, facts_view, table, titled
from svmsim.errors import printable

if TYPE_CHECKING:
    from rich.console import RenderableType


def import_view(report: Mapping[str, Any]) -> list[RenderableType]:
    """Return what a person reads of an import report: facts, tables of counts, remarks."""
    view: list[RenderableType] = []
    kernel = report["kernel"]
    facts = {name: report[name] for name in ("source", "format", "isa", "lines")}
    facts["events"] = sum(report["events"].values()) or None
    facts["lost events"] = report["lost_events"] or None
    facts["exit reasons of"] = f"{facts.pop('isa')} ({report['isa_evidence']})"
    if report["vcpus"]:
        facts["kernel"] = f"{kernel['generation']} ({kernel['evidence']})"
    if report["vms"]:
        facts["VMs"] = report["vms"]
    if report["no_workload"] and not report["refused"]:
        facts["not to be replayed"] = report["no_workload"]
    view.append(facts_view(facts))
    captures = report["captures"]
    if len(captures) > 1:
        rows = table(["capture", "title", "lines", "events", "exits"], left=2)
        for index, capture in enumerate(captures, 1):
            numbers = (f"{capture[name]:,}" for name in ("lines", "events", "exits"))
            rows.add_row(str(index), capture["title"], *numbers)
        view.extend(("", titled("Captures", rows)))
    columns = {"all vCPUs": report["exits"]}
    vcpus = report["vcpus"]
    if len(vcpus) > 1 and len(captures) == 1:
        columns |= {f"{vcpu['vm']}/{vcpu['vcpu']}": vcpu["exits"] for vcpu in vcpus}
    if report["exits"]:
        view.extend(("", counts_table("Exits", columns)))
    for one in report["tables"]:
        title = f"{one['format']} from line {one['first_line']}"
        view.extend(("", titled(title, _rows_table(one["rows"]))))
    if report["durations"]:
        view.extend(("", titled("Exit to entry, ns", _durations_table(report["durations"]))))
    for name, title in (
        ("events", "Events"),
        ("causes", "Causes of injected interrupts"),
        ("wakeups", "Causes of wake-ups"),
        ("polling", "Halts"),
        ("coverage", "Coverage"),
        ("unknown", "Unknown events"),
        ("dropped", "Left out"),
        ("undecidable", "What the recording hides"),
    ):
        if report[name]:
            rows = table(["", "count"])
            for text, count in report[name].items():
                rows.add_row(text, f"{count:,}")
            view.extend(("", titled(title, rows)))
    view.extend(printable(f"note: {text}") for text in report["notes"])
    return view


def _rows_table(rows: list[Mapping[str, Any]]) -> RenderableType:
    names = ("count", "share_percent", "time_ns", "min_ns", "max_ns", "mean_ns", "rate_per_s")
    shown = [name for name in names if any(name in row for row in rows)]
    result = table(["", *shown])
    for row in rows:
        vcpu = f"vCPU {row['vcpu']} " if "vcpu" in row else ""
        indent = "  " if "parent" in row else ""
        cells = (f"{row[name]:,}" if name in row else "" for name in shown)
        result.add_row(printable(indent + vcpu + row["name"]), *cells)
    return result


def _durations_table(durations: Mapping[str, Mapping[str, int]]) -> RenderableType:
    rows = table(["", "samples", "mean", "min", "max"])
    for name, one in durations.items():
        mean = round(one["total_ns"] / one["samples"]) if one["samples"] else 0
        numbers = (one["samples"], mean, one["min_ns"], one["max_ns"])
        rows.add_row(name, *(f"{number:,}" for number in numbers))
    return rows
