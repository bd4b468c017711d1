"""What the study on HLT exits prints, draws and writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from rich.console import Group, RenderableType
from rich.text import Text

from svmsim._render import table, titled
from svmsim.plot._style import PAGE_INCHES, PALETTE, STYLE
from svmsim.studies._hlt_exits_rows import DISABLED, HOSTS
from svmsim.studies._seeds_output import (
    judged_markdown,
    judged_view,
    save_frame,
    save_judged,
    summary,
)
from svmsim.studies._table import markdown

if TYPE_CHECKING:
    import polars as pl

    from svmsim.studies.hlt_exits import Outcome

_TITLE = "HLT exits disabled on none, half and all of the vCPUs"
_MEASURES = {
    "score": ("score (rounds/s)", "{:,.2f}"),
    "host_latency_us": ("host threads: wake-up (us)", "{:,.1f}"),
    "host_latency_p99_us": ("p99 (us)", "{:,.1f}"),
    "host_run_ms": ("ran (ms)", "{:,.0f}"),
    "context_switches": ("switches", "{:,.0f}"),
    "forced_preemptions": ("forced preemptions", "{:,.0f}"),
    "hlt_exits": ("hlt exits", "{:,.0f}"),
    "interrupt_exits": ("interrupt exits", "{:,.0f}"),
}
_HOST_WORDS = {"quiet": "quiet host", "stress": "stressed host"}
_COLUMNS = ("host", "disabled", *(words for words, _ in _MEASURES.values()))


def _lines(frame: pl.DataFrame) -> list[list[str]]:
    """The mean over the seeds, a line for each host and setting."""
    means = frame.group_by("host", "disabled", maintain_order=True).mean()
    return [
        [
            row["host"],
            row["disabled"],
            *(form.format(row[name]) for name, (_, form) in _MEASURES.items()),
        ]
        for row in means.iter_rows(named=True)
    ]


def view(outcome: Outcome) -> RenderableType:
    """Return the tables for a terminal: verdicts, then what was measured."""
    body = table(list(_COLUMNS), left=2)
    for line in _lines(outcome.frame):
        body.add_row(*line)
    parts = judged_view(_TITLE, outcome.rows)
    parts += [titled("Measured, mean over the seeds", body), Text()]
    return Group(*parts, summary(outcome.rows))


def _markdown(outcome: Outcome) -> str:
    text = judged_markdown(_TITLE, outcome.rows) + "\n## Measured, mean over the seeds\n\n"
    return text + markdown(list(_COLUMNS), _lines(outcome.frame), left=2)


def picture(frame: pl.DataFrame) -> Figure:
    """Draw score, host threads' latency, switches and forced preemptions by setting."""
    panels = (
        ("score", "score (rounds/s)", False),
        ("host_latency_us", "host wake-up (µs)", True),
        ("context_switches", "context switches", False),
        ("forced_preemptions", "forced preemptions", False),
    )
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(PAGE_INCHES, 2.3), dpi=300, layout="constrained")
        FigureCanvasAgg(figure)
        for axes, (name, words, logarithmic) in zip(
            figure.subplots(1, len(panels)), panels, strict=True
        ):
            for index, host in enumerate(HOSTS):
                if name == "host_latency_us" and host == "quiet":
                    continue
                for place, disabled in enumerate(DISABLED):
                    values = frame.filter(host=host, disabled=disabled)[name].to_list()
                    where = place + 0.36 * (index - 0.5)
                    first = place == 0 and name == "score"
                    axes.bar(
                        where,
                        sum(values) / len(values),
                        0.34,
                        color=PALETTE[index],
                        label=_HOST_WORDS[host] if first else None,
                    )
                    axes.plot([where] * len(values), values, "_", color="black", markersize=4)
            axes.set_xticks(range(len(DISABLED)), DISABLED)
            axes.set_xlabel("HLT exits disabled")
            axes.set_title(words)
            if logarithmic:
                axes.set_yscale("log")
                axes.set_ylim(bottom=1)
                axes.yaxis.set_minor_formatter(NullFormatter())
            axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
        figure.legend(loc="outside lower center", ncols=2)
        figure.suptitle(_TITLE, fontsize=8, fontweight="bold")
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def save(outcome: Outcome, directory: Path) -> list[Path]:
    """Write everything below `directory`; return the files worth opening."""
    from svmsim import plot

    files = save_judged(
        directory, _markdown(outcome), outcome.to_json(), outcome.rows, outcome.results
    )
    files += save_frame(outcome.frame, directory, "measurements")
    pictures = plot.save(picture(outcome.frame), directory / "hlt-exits")
    pngs = [file for file in pictures if file.suffix == ".png"]
    return [*files, *pngs]
