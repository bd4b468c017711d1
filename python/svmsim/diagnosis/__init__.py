"""What a recording or table of KVM says: `diagnose` and what it returns."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from svmsim import _core
from svmsim.diagnosis.facts import Facts
from svmsim.diagnosis.rules import judge

__all__ = ["CaptureDiagnosis", "Diagnosis", "Finding", "diagnose"]


@dataclass(frozen=True)
class Finding:
    """One statement about a capture."""

    id: str
    """What it is about: ``dominates``, ``halt``, ``polling``, ``windows``, ``apicv``, ``busy``,
    ``storm``, ``livelock``, ``interrupts``, ``scheduling``, ``samples``, ``userspace``, ``isa``."""
    text: str
    """One or a few sentences with the figures."""
    level: Literal["info", "warning"] = "info"
    """``warning``: something is probably wrong, or costs a lot."""
    replay: str | None = None
    """The command that answers the next question, where the capture can be replayed."""


@dataclass(frozen=True)
class CaptureDiagnosis:
    """What one capture of a file says."""

    number: int
    """From 1, as `--capture` takes it."""
    title: str
    format: str
    isa: str
    summary: dict[str, Any]
    """The figures behind the findings, by subject."""
    findings: list[Finding] = field(default_factory=list)

    def about(self, id_: str) -> list[Finding]:
        """Return the findings about a subject."""
        return [finding for finding in self.findings if finding.id == id_]


@dataclass(frozen=True)
class Diagnosis:
    """What a file says, capture by capture."""

    source: str
    captures: list[CaptureDiagnosis]
    refused: str | None
    """Why nothing of the file can be used, or None."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, as `svmsim diagnose --json` writes it."""
        return {"schema": 1, **asdict(self)}

    def to_json(self) -> str:
        """Return JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"


def diagnose(
    traces: str | Path | Iterable[str | Path], *, capture: int = 0, isa: str = ""
) -> Diagnosis:
    """Say what recordings or tables of KVM hold: what dominates, why the host is busy, and so on.

    Args:
        traces: a file of any kind that `svmsim import` reads, or several that belong together.
        capture: which capture of a file with several, from 1; 0 = all.
        isa: of bare exit numbers, ``svm`` or ``vmx``.

    Raises:
        TraceError: a file cannot be read, or has no such capture.
    """
    many = [traces] if isinstance(traces, (str, Path)) else list(traces)
    paths = [str(path) for path in many]
    data = json.loads(_core.diagnosis(paths, capture, isa))
    captures: list[CaptureDiagnosis] = []
    refusals: list[str] = []
    several = len(data["captures"]) > 1 or capture > 1
    for one in data["captures"]:
        facts = Facts.of(one, paths[0], several=several)
        summary, findings = judge(facts)
        if facts.report["refused"] and not facts.counts:
            refusals.append(str(facts.report["refused"]))
        captures.append(
            CaptureDiagnosis(
                number=one["number"],
                title=one["title"],
                format=facts.report["format"],
                isa=facts.report["isa"],
                summary=summary,
                findings=[Finding(**item) for item in findings],
            )
        )
    refused = refusals[0] if refusals and len(refusals) == len(captures) else None
    if not captures:
        refused = "it holds nothing that is known here"
    return Diagnosis(source=data["source"], captures=captures, refused=refused)
