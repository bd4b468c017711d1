"""What `svmsim diagnose` prints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text

from svmsim._render import facts_view
from svmsim.errors import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from svmsim.diagnosis import CaptureDiagnosis, Diagnosis

_TITLES = {
    "isa": "Recording",
    "samples": "Samples",
    "dominates": "What dominates",
    "livelock": "Livelock",
    "halt": "Halts",
    "polling": "Polling",
    "windows": "Polling windows",
    "busy": "Time",
    "storm": "Storms",
    "apicv": "Interrupt delivery",
    "interrupts": "Interrupts",
    "scheduling": "Host scheduling",
    "userspace": "User space",
}


def diagnosis_view(diagnosis: Diagnosis) -> list[RenderableType]:
    """Return what a person reads, the most pressing first."""
    view: list[RenderableType] = []
    for capture in diagnosis.captures:
        if view:
            view.append("")
        view += _capture_view(diagnosis.source, capture, several=len(diagnosis.captures) > 1)
    return view


def _capture_view(source: str, capture: CaptureDiagnosis, *, several: bool) -> list[RenderableType]:
    head = printable(source)
    if several:
        head += f", capture {capture.number}"
    if capture.title:
        head += f": {printable(capture.title)}"
    view: list[RenderableType] = [Text(head, "bold")]
    exits = capture.summary.get("samples", {}).get("exits")
    view.append(facts_view({"format": capture.format, "isa": capture.isa, "exits": exits}))
    done: set[str] = set()
    order = sorted(capture.findings, key=lambda finding: finding.level != "warning")
    for finding in order:
        if finding.id in done:
            continue
        done.add(finding.id)
        view += ["", Text(_TITLES.get(finding.id, finding.id), "bold")]
        for one in capture.findings:
            if one.id == finding.id:
                mark = "! " if one.level == "warning" else "  "
                view.append(Text(mark + printable(one.text)))
    replays = list(dict.fromkeys(f.replay for f in order if f.replay is not None))
    if replays:
        view += ["", Text("To see what would change", "bold")]
        view += [Text("  " + printable(replay)) for replay in replays]
    return view
