"""What the halt-polling study prints, draws and writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from rich.console import Group, RenderableType
from rich.text import Text

from svmsim._render import table, titled
from svmsim.plot._style import MARKERS, OTHER, PAGE_INCHES, PALETTE, STYLE
from svmsim.studies._halt_polling_rows import TRANSACTIONS, published
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

    from svmsim.studies.halt_polling import Outcome

_TITLE = "The halt-polling experiment: published beside simulated"
_SWEEP_COLUMNS = (
    "gap (us)",
    "host tasks",
    "host window (us)",
    "guest window (us)",
    "latency (us)",
    "CPU (%)",
)


def _sweep_lines(frame: pl.DataFrame) -> list[list[str]]:
    """The configurations on a frontier; of those that do the same, the one with least windows."""
    import polars as pl

    best = (
        frame.filter("on_frontier")
        .with_columns(
            windows=pl.col("guest_window_us") + pl.col("host_window_us"),
            latency=pl.col("latency_us").round(1),
            cpu=pl.col("cpu_pct").round(0),
        )
        .sort("windows", maintain_order=True)
        .unique(["host_tasks", "gap_us", "latency", "cpu"], keep="first", maintain_order=True)
        .sort("host_tasks", "gap_us", "cpu_pct")
    )
    return [
        [
            str(row["gap_us"]),
            str(row["host_tasks"]),
            str(row["host_window_us"]),
            str(row["guest_window_us"]),
            f"{row['latency_us']:,.2f}",
            f"{row['cpu_pct']:.1f}",
        ]
        for row in best.iter_rows(named=True)
    ]


def view(outcome: Outcome) -> RenderableType:
    """Return the tables for a terminal: what was published, then the sweep's frontiers."""
    parts = judged_view(_TITLE, outcome.rows)
    body = table(list(_SWEEP_COLUMNS), left=0)
    for line in _sweep_lines(outcome.sweep.frame):
        body.add_row(*line)
    parts += [titled("Sweep: windows that no others beat in latency and CPU", body), Text()]
    for name, results in outcome.results.items():
        if results[0].busy_reason:
            parts.append(Text(f"{name}: {results[0].busy_reason}"))
    return Group(*parts, Text(), summary(outcome.rows))


def _markdown(outcome: Outcome) -> str:
    text = judged_markdown(_TITLE, outcome.rows)
    text += "\n## Sweep: windows that no others beat in latency and CPU\n\n"
    return text + markdown(list(_SWEEP_COLUMNS), _sweep_lines(outcome.sweep.frame), left=0)


def frontier(frame: pl.DataFrame) -> Figure:
    """Draw latency against CPU burnt: a panel for each wake gap and number of host tasks."""
    gaps = frame["gap_us"].unique(maintain_order=True).sort().to_list()
    tasks = frame["host_tasks"].unique(maintain_order=True).sort().to_list()
    windows = frame["host_window_us"].unique().sort().to_list()
    # Points that coincide stay seen: the later ones are smaller.
    sizes = [6.5 - 1.4 * index for index in range(len(windows))]
    with mpl.rc_context({**STYLE, "axes.grid.axis": "both"}):
        figure = Figure(
            figsize=(PAGE_INCHES, 1.6 * len(tasks) + 1.0), dpi=300, layout="constrained"
        )
        FigureCanvasAgg(figure)
        panels = figure.subplots(len(tasks), len(gaps), squeeze=False, sharey="row", sharex=True)
        for line, count in enumerate(tasks):
            for place, gap in enumerate(gaps):
                axes = panels[line][place]
                part = frame.filter(gap_us=gap, host_tasks=count)
                best = part.filter("on_frontier").sort("cpu_pct")
                axes.plot(best["cpu_pct"], best["latency_us"], color=OTHER, linewidth=0.9, zorder=1)
                for row in part.iter_rows(named=True):
                    colour = PALETTE[windows.index(row["guest_window_us"]) % len(PALETTE)]
                    host = windows.index(row["host_window_us"])
                    axes.plot(
                        row["cpu_pct"],
                        row["latency_us"],
                        marker=MARKERS[host % len(MARKERS)],
                        color=colour,
                        markerfacecolor=colour if row["on_frontier"] else "white",
                        markersize=sizes[host],
                        markeredgewidth=0.8,
                        linestyle="",
                    )
                axes.set_yscale("log")
                axes.yaxis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
                axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
                axes.yaxis.set_minor_formatter(NullFormatter())
                axes.set_xlim(-4, 104)
                if line == 0:
                    axes.set_title(f"wake gap {gap} µs")
                if line == len(tasks) - 1:
                    axes.set_xlabel("CPU burnt (% of a pCPU)")
                if place == 0:
                    axes.set_ylabel(f"{_host_tasks(count)}\nadded latency (µs)")
        for row in panels:
            low, high = row[0].get_ylim()
            if high < 3 * low:
                row[0].set_ylim(low / 1.5, high * 1.5)
        handles = [
            Line2D([], [], color=PALETTE[i % len(PALETTE)], marker="o", linestyle="", markersize=4)
            for i in range(len(windows))
        ]
        texts = [f"guest polls {window} µs" if window else "guest halts" for window in windows]
        handles += [
            Line2D(
                [], [], color="black", marker=MARKERS[i], linestyle="", markersize=4,
                markerfacecolor="white",
            )
            for i in range(len(windows))
        ]  # fmt: skip
        texts += [f"host polls {window} µs" if window else "host blocks" for window in windows]
        figure.legend(handles, texts, loc="outside lower center", ncols=4)
        figure.suptitle(
            "Latency against CPU burnt (filled: nothing else is better in both)",
            fontsize=8,
            fontweight="bold",
        )
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def _host_tasks(count: int) -> str:
    return {0: "no host task", 1: "1 host task"}.get(count, f"{count} host tasks")


def transactions(outcome: Outcome) -> Figure:
    """Draw the change of each transaction's time against the base, published and by seed."""
    data = published()["transactions"]
    bars = (("guest_spin_pct", "guest spin"), ("host_poll_pct", "host window 800"))
    names = [data[tasks]["test"] for tasks in TRANSACTIONS]
    with mpl.rc_context({**STYLE, "axes.grid.axis": "x"}):
        figure = Figure(figsize=(PAGE_INCHES, 2.8), dpi=300, layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots()
        for index, (key, words) in enumerate(bars):
            colour = PALETTE[index]
            for line, tasks in enumerate(TRANSACTIONS):
                row = next(
                    row
                    for row in outcome.rows
                    if row.setup.startswith(data[tasks]["test"]) and row.quantity.startswith(words)
                )
                place = line + 0.38 * index
                first = line == 0
                axes.barh(place, row.simulated, 0.34, color=colour, label=words if first else None)
                axes.plot(row.values, [place] * len(row.values), "|", color="black", markersize=5)
                axes.plot(
                    data[tasks][key],
                    place,
                    marker="D",
                    color="white",
                    markeredgecolor="black",
                    markersize=4,
                    linestyle="",
                    label="published" if first and index == 1 else None,
                )
        axes.axvline(0, color="black", linewidth=0.6)
        axes.set_yticks([line + 0.19 for line in range(len(names))], names)
        axes.invert_yaxis()
        axes.set_xlabel("change of the time against the base (%); ticks: seeds")
        axes.set_title("Transactions: who polls, and how long")
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def save(outcome: Outcome, directory: Path) -> list[Path]:
    """Write everything below `directory`; return the files worth opening."""
    from svmsim import plot

    files = save_judged(
        directory, _markdown(outcome), outcome.to_json(), outcome.rows, outcome.results
    )
    files += save_frame(outcome.sweep.frame, directory, "sweep")
    files += save_frame(plot.df_halt_poll_growth(outcome.growth), directory, "growth")
    growth = plot.halt_poll_growth(
        outcome.growth, title="halt_poll_ns: idles of 50 µs, then of 300 µs"
    )
    figures = {
        "frontier": frontier(outcome.sweep.frame),
        "transactions": transactions(outcome),
        "growth": growth.figure,
    }
    pictures: list[Path] = []
    for name, figure in figures.items():
        pictures += plot.save(figure, directory / name)
    pngs = [file for file in pictures if file.suffix == ".png"]
    return [*files, *pngs]
