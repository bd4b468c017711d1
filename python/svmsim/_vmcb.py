"""Explaining VMCBs: `svmsim vmcb explain` and `svmsim.explain_vmcb`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svmsim import _core
from svmsim._files import nearest_file, unreadable
from svmsim.errors import VmcbError, problem

if TYPE_CHECKING:
    from rich.console import RenderableType


def explain_vmcb(
    path: str | PathLike[str],
    *,
    dump: int | None = None,
    features: Sequence[str] = (),
    profile: str | None = None,
    physical_address_bits: int | None = None,
) -> dict[str, Any]:
    """Decode a VMCB and judge it by VMRUN's rules.

    Args:
        path: a 4 KiB VMCB page, or a kernel log with the output of KVM's ``dump_vmcb``.
        dump: which dump of a log that has several, from 1; None is the first.
        features: CPUID features of the processor, as ``svmsim describe`` names them; with a
            profile, ``-name`` takes one away.
        profile: a host profile whose processor's features count.
        physical_address_bits: width of the processor's physical addresses, 32 to 52.

    Returns:
        The report: ``legal``, ``verdict``, ``exit``, ``violations``, ``suspicions``, ``unjudged``
        (with what each ``needs``), ``lost`` fields, ``notes`` and the decoded ``groups``.

    Raises:
        VmcbError: the file has no VMCB that can be read.
        UserError: a feature or the profile does not exist.
    """
    file = Path(fspath(path))
    reason = unreadable(file)
    if reason is not None:
        text = f"cannot be read: {reason}"
        raise VmcbError([problem(text, source=str(file), nearest=nearest_file(file))])
    report: dict[str, Any] = json.loads(
        _core.explain_vmcb(
            str(file), dump or 0, list(features), profile or "", physical_address_bits or 0
        )
    )
    return report


def _needs(report: Mapping[str, Any]) -> Iterable[tuple[str, list[str]]]:
    """What is needed, and the rules that need it."""
    needed: dict[str, list[str]] = {}
    for item in report["unjudged"]:
        needed.setdefault(", ".join(item["needs"]), []).append(item["text"])
    return needed.items()


def _findings(title: str, findings: Sequence[Mapping[str, Any]], style: str) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    from svmsim._render import titled

    parts: list[RenderableType] = []
    for finding in findings:
        where = Text(f"  [{finding['id']}, APM vol. 2 {finding['section']}]", "dim")
        parts.append(Padding(Text.assemble((finding["text"], style), where), (0, 0, 0, 2)))
        if finding.get("reason"):
            parts.append(Padding(Text(finding["reason"]), (0, 0, 0, 6)))
        if finding["because"]:
            because = "because " + ", ".join(finding["because"])
            parts.append(Padding(Text(because, "dim"), (0, 0, 0, 6)))
    return titled(title, Group(*parts))


def _bullets(title: str, lines: Iterable[str]) -> RenderableType:
    from rich.console import Group
    from rich.padding import Padding
    from rich.text import Text

    from svmsim._render import titled

    return titled(title, Group(*(Padding(Text(line), (0, 0, 0, 2)) for line in lines)))


def _fields(group: Mapping[str, Any]) -> RenderableType:
    from rich.table import Table
    from rich.text import Text

    from svmsim._render import titled

    rows = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), show_header=False)
    rows.add_column(justify="right", no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold", min_width=18)
    rows.add_column(overflow="fold", ratio=1)
    for field in group["fields"]:
        offset = f"{field['offset']:03x}" if field["offset"] or field["name"] == "cr_read" else ""
        meaning = ", ".join(field["meaning"])
        rows.add_row(Text(offset, "dim"), field["name"], field["value"], Text(meaning))
    return titled(group["title"], rows)


def report_view(report: Mapping[str, Any], *, fields: bool = True) -> RenderableType:
    """Everything a report says, the findings first."""
    from rich.console import Group
    from rich.text import Text

    from svmsim._render import facts_view

    style = "bold green" if report["legal"] else "bold red"
    facts = {"file": report["source"], "kind": report["kind"], **report["facts"]}
    exit_ = report["exit"]
    if exit_["code"]:
        kernel = f", kvm_exit {exit_['kernel_name']}" if exit_["kernel_name"] else ""
        facts["exit"] = f"{exit_['code']} {exit_['name']}{kernel}"
        facts["exit means"] = "; ".join([exit_["meaning"].rstrip("."), *exit_["details"]])
    parts: list[RenderableType] = [facts_view(facts), Text(), Text(report["verdict"], style)]

    def add(part: RenderableType) -> None:
        parts.extend([Text(), part])

    if report["violations"]:
        add(_findings("Violated rules of VMRUN", report["violations"], "red"))
    if report["suspicions"]:
        add(_findings("Suspicious settings", report["suspicions"], "yellow"))
    unjudged = [f"needs {need}: {'; '.join(rules)}" for need, rules in _needs(report)]
    if unjudged:
        add(_bullets("Cannot be judged", unjudged))
    if report["lost"]:
        add(_bullets("Missing or damaged lines", [", ".join(report["lost"])]))
    if report["notes"]:
        add(_bullets("Notes", report["notes"]))
    add(_bullets("Assumed", report["assumptions"]))
    if fields:
        for group in report["groups"]:
            add(_fields(group))
        if report["not_printed"]:
            add(_bullets("Fields that this file does not show", [", ".join(report["not_printed"])]))
    return Group(*parts)
