"""What the IPI study prints, draws and writes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl
import polars as pl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from rich.console import Group, RenderableType
from rich.text import Text

from svmsim._files import write_bytes, write_text
from svmsim._render import table, titled
from svmsim.plot._style import COLUMN_INCHES, PALETTE, STYLE
from svmsim.studies import ipi
from svmsim.studies._ipi_rows import IpiRow
from svmsim.studies._table import TOLERANCES, VERDICT_COLOURS, by_setup, markdown

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axis import Axis

    from svmsim.studies.ipi import Outcome

_COLUMNS = ("quantity", "published", "simulated", "ratio", "tol.", "accepted", "verdict")


def _cells(row: IpiRow) -> list[str]:
    numbers = [row.published_text, row.number(row.simulated), row.ratio_text]
    return [row.label, *numbers, row.tolerance, row.band]


def view(outcome: Outcome) -> RenderableType:
    """Return the tables for a terminal: what was published, then one fan-out of the grid."""
    parts: list[RenderableType] = [
        Text("The IPI experiment: published beside simulated", "bold"),
        Text(),
    ]
    for setup, rows in by_setup(outcome.rows).items():
        body = table(list(_COLUMNS), left=1)
        for row in rows:
            body.add_row(*_cells(row), Text(row.verdict, VERDICT_COLOURS[row.verdict]))
        parts += [titled(setup, body), Text()]
    marks = "; ".join(f"{mark}: {text}" for mark, text in TOLERANCES.items())
    parts += [Text(f"Tolerance {marks}."), Text()]
    for target in ipi.TARGETS:
        parts += [titled(f"One target, {target}", _single(outcome.grid, target)), Text()]
    failed = [row for row in outcome.rows if not row.holds]
    summary = f"{len(failed)} verdicts fail" if failed else "every verdict holds"
    parts.append(Text(summary, "bold red" if failed else "bold green"))
    return Group(*parts)


def _single(grid: pl.DataFrame, target: str) -> RenderableType:
    columns = [
        "APIC driver",
        "interrupts",
        "IPI by",
        "exits of sender",
        "of target",
        "call (ns)",
        "p50",
        "p99",
    ]
    body = table(columns, left=3)
    shown = grid.filter((pl.col("target") == target) & (pl.col("fan_out") == 1))
    for row in shown.iter_rows(named=True):
        body.add_row(
            row["driver"],
            row["path"],
            row["method"],
            f"{row['sender_exits']:.2f}",
            f"{row['receiver_exits']:.2f}",
            f"{row['total_ns']:,.0f}",
            f"{row['latency_p50_ns']:,.0f}",
            f"{row['latency_p99_ns']:,.0f}",
        )
    return body


def _markdown(outcome: Outcome) -> str:
    text = "# The IPI experiment: published beside simulated\n"
    for setup, rows in by_setup(outcome.rows).items():
        lines = [[*_cells(row), row.verdict] for row in rows]
        text += f"\n## {setup}\n\n" + markdown(list(_COLUMNS), lines)
        text += "".join(
            f"\nSource: {source}.\n" for source in dict.fromkeys(r.source for r in rows)
        )
    marks = "; ".join(f"{mark}: {meaning}" for mark, meaning in TOLERANCES.items())
    text += f"\nTolerance {marks}.\n\n## The grid\n\n"
    text += "Exits and cost of one call of `ipi_benchmark`, profile turin, `no_ipi_broadcast`.\n\n"
    columns = [
        "driver",
        "interrupts",
        "IPI by",
        "targets",
        "state",
        "exits of sender",
        "of a target",
    ]
    columns += ["call (ns)", "p50 (ns)", "p99 (ns)"]
    lines = [
        [
            row["driver"],
            row["path"],
            row["method"],
            str(row["fan_out"]),
            row["target"],
            f"{row['sender_exits']:.2f}",
            f"{row['receiver_exits']:.2f}",
            f"{row['total_ns']:,.0f}",
            f"{row['latency_p50_ns']:,.0f}",
            f"{row['latency_p99_ns']:,.0f}",
        ]
        for row in outcome.grid.iter_rows(named=True)
    ]
    return text + markdown(columns, lines, left=3)


def _configurations(grid: pl.DataFrame) -> list[tuple[str, str]]:
    return grid.select("path", "method").unique(maintain_order=True).rows()


def _panels(columns: int, rows: int) -> tuple[Figure, list[list[mpl.axes.Axes]]]:
    figure = Figure(figsize=(2 * COLUMN_INCHES, 1.75 * rows + 1.6), dpi=300, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(rows, columns, squeeze=False, sharex=True)
    return figure, [list(row) for row in axes]


def _style(index: int, method: str) -> dict[str, object]:
    return {
        "color": PALETTE[index // 2 % len(PALETTE)],
        "linestyle": "-" if method == "ICR" else "--",
        "marker": "o" if method == "ICR" else "s",
        "markersize": 2.2,
        "linewidth": 0.9,
    }


def against_fan_out(grid: pl.DataFrame, column: str, ylabel: str, title: str) -> Figure:
    """Draw a column of the grid against the fan-out: a panel for each driver and target state."""
    configurations = _configurations(grid)
    with mpl.rc_context(STYLE):
        figure, panels = _panels(len(ipi.DRIVERS), len(ipi.TARGETS))
        for line, target in enumerate(ipi.TARGETS):
            for place, driver in enumerate(ipi.DRIVERS):
                axes = panels[line][place]
                part = grid.filter((pl.col("driver") == driver) & (pl.col("target") == target))
                for index, (path, method) in enumerate(configurations):
                    mine = part.filter((pl.col("path") == path) & (pl.col("method") == method))
                    mine = mine.sort("fan_out")
                    if mine.is_empty():
                        continue
                    label = f"{path}, {method}"
                    known = figure.axes[0].get_legend_handles_labels()[1]
                    axes.plot(
                        mine["fan_out"],
                        mine[column],
                        label=label if label not in known else None,
                        **_style(index, method),  # type: ignore[arg-type]
                    )
                axes.set_xscale("log", base=2)
                axes.xaxis.set_major_formatter("{x:g}")
                if column == "total_ns":
                    axes.set_yscale("log")
                    _plain_decades(axes.yaxis)
                else:
                    axes.set_yscale("symlog", linthresh=1, base=2)
                    axes.yaxis.set_major_formatter("{x:g}")
                if line == 0:
                    axes.set_title(driver)
                if line == len(ipi.TARGETS) - 1:
                    axes.set_xlabel("targets")
                if place == 0:
                    axes.set_ylabel(f"{target}\n{ylabel}")
        _legend(figure)
        figure.suptitle(title, fontsize=8, fontweight="bold")
    # Laid out once: written anew, the marks of a logarithmic axis may leave the axes no room.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    return figure


def _plain_decades(axis: Axis) -> None:
    """Label a logarithmic axis with plain numbers at 1, 2 and 5 of each decade."""
    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axis.set_minor_formatter(NullFormatter())
    # Figures that hardly differ are to look so.
    low, high = axis.get_data_interval()
    if 0 < low <= high < 1.5 * low:
        axis.axes.set(**{"ylim" if axis is axis.axes.yaxis else "xlim": (low / 2, high * 2)})


def _legend(figure: Figure) -> None:
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(str(label), handle)
    figure.legend(list(handles.values()), list(handles), loc="outside lower center", ncols=3)


def distribution(grid: pl.DataFrame) -> Figure:
    """Draw the distribution of call-to-callback times of one target, by state of the target."""
    single = grid.filter(pl.col("fan_out") == 1)
    configurations = _configurations(single)
    shares = [100 * share for share in ipi.QUANTILES.values()]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(2 * COLUMN_INCHES, 4.6), dpi=300, layout="constrained")
        FigureCanvasAgg(figure)
        panels = figure.subplots(2, 2)
        for axes, target in zip(panels.flat, ipi.TARGETS, strict=True):
            for index, (path, method) in enumerate(configurations):
                # The driver with the fewest exits for the path: what a guest would use.
                driver = "x2APIC physical" if path == "x2AVIC" else "xAPIC flat"
                mine = single.filter(
                    (pl.col("path") == path)
                    & (pl.col("method") == method)
                    & (pl.col("target") == target)
                    & (pl.col("driver") == driver)
                )
                if mine.is_empty():
                    continue
                row = mine.row(0, named=True)
                times = [row[f"latency_{name}_ns"] for name in ipi.QUANTILES]
                axes.plot(
                    times,
                    shares,
                    label=f"{path}, {method} ({driver})",
                    drawstyle="steps-post",
                    **_style(index, method),
                )
            axes.set_xscale("log")
            _plain_decades(axes.xaxis)
            axes.set_title(target)
            axes.set_xlabel("call to callback (ns)")
            axes.set_ylabel("calls within it (%)")
        _legend(figure)
        figure.suptitle("Latency of a call to one CPU", fontsize=8, fontweight="bold")
    return figure


def save(outcome: Outcome, directory: Path) -> list[Path]:
    """Write everything below `directory`; return the files worth opening."""
    import io

    from svmsim import plot

    table_md, table_json = directory / "table.md", directory / "table.json"
    write_text(table_md, _markdown(outcome))
    write_text(table_json, outcome.to_json())
    for run in outcome.runs:
        outcome.results[run.name].save(directory / "runs" / f"{run.name}.json")
    grid = outcome.grid
    buffer = io.BytesIO()
    grid.write_parquet(buffer)
    parquet = directory / "grid.parquet"
    write_bytes(parquet, buffer.getvalue())
    figures = {
        "cost": against_fan_out(
            grid, "total_ns", "call (ns)", "Cost of a call against its targets"
        ),
        "sender-exits": against_fan_out(
            grid, "sender_exits", "exits", "Exits of the sender for each call"
        ),
        "receiver-exits": against_fan_out(
            grid, "receiver_exits", "exits", "Exits of a target for each call"
        ),
        "latency": distribution(grid),
    }
    pictures: list[Path] = []
    for name, figure in figures.items():
        pictures += plot.save(figure, directory / name)
    return [table_md, table_json, parquet, *(file for file in pictures if file.suffix == ".png")]
