"""Pictures of latency: where a wake-up spends its time, and what a shorter one costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from svmsim.errors import UserError, problem
from svmsim.plot._data import (
    BUSY,
    By,
    Results,
    choose,
    events_of,
    grouped,
    interval,
    parameters,
    spoken,
    unit_of,
)
from svmsim.plot._style import (
    COLUMN_INCHES,
    MARKERS,
    OTHER,
    STYLE,
    axes_of,
    colour_of,
    headline,
    legend,
    log_time_axis,
    new_figure,
    thousands,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STAGES = (
    ("woken_ns", "KVM wakes the vCPU, or its poll sees the cause"),
    ("awake_ns", "... its pCPU has left the idle state"),
    ("running_ns", "... its thread runs"),
    ("entry_ns", "... VMRUN: the guest takes the interrupt"),
)


def df_wakeup_stages(results: Results, by: By = None) -> pl.DataFrame:
    """Return how long after its cause each stage of a wake-up from a halt was reached.

    Args:
        results: results by label, a sequence of them, or a single one, made by `run(events=True)`.
        by: parameter or parameters that tell configurations apart; their results are pooled.

    Returns:
        Frame of configuration, vm, vcpu, waited, and woken_ns, awake_ns, running_ns, entry_ns since
        the cause reached the IRR. Where the events do not tell the cause, since the wake-up.

    Raises:
        UserError: a result has no events.
    """
    frames = []
    for label, group in grouped(results, by).items():
        for result in group:
            halts = events_of(result).halts
            cause = pl.coalesce("cause_ns", "woken_ns")
            frames.append(
                halts.select(
                    pl.lit(label).alias("configuration"),
                    "vm",
                    "vcpu",
                    "waited",
                    *(pl.col(name) - cause for name, _ in _STAGES),
                )
            )
    return pl.concat(frames)


def wakeup_cdf(results: Results, by: By = None, *, title: str | None = None) -> Figure:
    """Draw the distribution of wake-up latency up to each of its stages, a panel a configuration.

    The distance between two curves is what the stage between them takes. A stage that takes no time
    in any wake-up is left out.

    Args:
        results: as for `df_wakeup_stages`.
        by: as for `df_wakeup_stages`.
        title: the picture's message.

    Raises:
        UserError: a result has no events, or no vCPU halted.
    """
    frame = df_wakeup_stages(results, by)
    if frame.is_empty():
        raise UserError([problem("no vCPU halted in these runs", path="events")])
    labels = frame["configuration"].unique(maintain_order=True).to_list()
    names = [name for name, _ in _STAGES]
    shown = [
        (index, name, text)
        for index, (name, text) in enumerate(_STAGES)
        if name == names[-1]
        or bool(
            (
                frame[name]
                > (frame[names[index - 1]] if index else pl.zeros(len(frame), eager=True))
            ).any()
        )
    ]
    lowest = max(1.0, float(min(_positive(frame[name]) for _, name, _ in shown)))
    with mpl.rc_context({**STYLE, "axes.grid.axis": "both"}):
        figure = new_figure(0.9 + 0.16 * len(shown) + 1.35 * len(labels))
        panels = figure.subplots(len(labels), 1, sharex=True, squeeze=False)[:, 0]
        for panel, label in zip(panels, labels, strict=True):
            part = frame.filter(configuration=label)
            for index, name, _ in shown:
                values = np.sort(part[name].to_numpy())
                x = np.maximum(values, lowest / 2)
                y = 100 * np.arange(1, len(values) + 1) / len(values)
                panel.step(
                    np.concatenate([x[:1], x]),
                    np.concatenate([[0.0], y]),
                    where="post",
                    color=colour_of(index),
                    linestyle=("-", "--", "-.", "-")[index],
                    linewidth=1.6 if name == names[-1] else 1.1,
                )
            panel.set_xscale("log")
            panel.set_ylim(0, 101)
            panel.set_ylabel("wake-ups (%)")
            note = f"{label}, " if len(labels) > 1 or by is not None else ""
            panel.set_title(f"{note}{len(part):,} wake-ups", fontweight="normal")
        panels[-1].set_xlabel("time since the interrupt reached the IRR (logarithmic)")
        log_time_axis(panels[-1].xaxis, *panels[-1].get_xlim())
        headline(figure, title or "Wake-up latency, by stage")
        lines = list(panels[0].lines)
        legend(panels[0], [text for _, _, text in shown], lines)
    return figure


def _positive(values: pl.Series) -> float:
    positive = values.filter(values > 0)
    return float(positive.min()) if len(positive) else 1.0  # type: ignore[arg-type]


def df_frontier(
    results: Results,
    by: By = None,
    *,
    latency: str = "latency.wakeup.p99_ns",
    cpu: str = BUSY,
) -> pl.DataFrame:
    """Return latency and CPU burnt of each configuration, with intervals over its results.

    Args:
        results: a table of results, results by label, a sequence of them, or a single one.
        by: parameter or parameters that tell configurations apart.
        latency: the number on the vertical axis; see `ResultTable.metric`.
        cpu: the number on the horizontal axis.

    Returns:
        Frame of configuration, runs, cpu, cpu_low, cpu_high, latency, latency_low, latency_high
        (95 % bootstrap intervals of the mean; equal to it for a single run) and on_frontier: no
        other configuration is better in one and no worse in the other.
    """
    chosen = choose(results, by)
    values = {"cpu": chosen.values(cpu), "latency": chosen.values(latency)}
    rows: list[dict[str, Any]] = []
    for label in chosen.configurations:
        if not all(found[label] for found in values.values()):
            continue
        row: dict[str, Any] = {"configuration": label, "runs": chosen.runs[label]}
        for name, found in values.items():
            mean, low, high = interval(found[label])
            row |= {name: mean, f"{name}_low": low, f"{name}_high": high}
        rows.append(row)
    if not rows:
        raise UserError([problem("no run has a value", path=latency)])
    for row in rows:
        row["on_frontier"] = not any(_dominates(other, row) for other in rows)
    return pl.DataFrame(rows)


def _dominates(one: dict[str, Any], other: dict[str, Any]) -> bool:
    pairs = [(one[name], other[name]) for name in ("cpu", "latency")]
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def frontier(
    results: Results,
    by: By = None,
    *,
    latency: str = "latency.wakeup.p99_ns",
    cpu: str = BUSY,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw latency against the CPU time burnt for it; the best configurations are joined by a line.

    Args:
        results: as for `df_frontier`.
        by: as for `df_frontier`.
        latency: as for `df_frontier`.
        cpu: as for `df_frontier`.
        title: the picture's message.
        ax: where to draw; by default a new figure of column width.
    """
    frame = df_frontier(results, by, latency=latency, cpu=cpu)
    in_us = unit_of(latency) == "ns"
    scale = 1e3 if in_us else 1.0
    with mpl.rc_context({**STYLE, "axes.grid.axis": "both"}):
        axes = axes_of(ax, 2.2 + 0.14 * (len(frame) // 2))
        best = frame.filter("on_frontier").sort("cpu", "latency")
        axes.plot(best["cpu"], best["latency"] / scale, color=OTHER, linewidth=1.0, zorder=1)
        handles = []
        for index, row in enumerate(frame.iter_rows(named=True)):
            y = row["latency"] / scale
            handles.append(
                axes.errorbar(
                    row["cpu"],
                    y,
                    xerr=[[row["cpu"] - row["cpu_low"]], [row["cpu_high"] - row["cpu"]]],
                    yerr=[[y - row["latency_low"] / scale], [row["latency_high"] / scale - y]],
                    fmt=MARKERS[(index + index // len(MARKERS)) % len(MARKERS)],
                    markersize=7.0 - 3.5 * index / max(1, len(frame) - 1),  # equal ones stay seen
                    color=colour_of(index),
                    markerfacecolor=colour_of(index) if row["on_frontier"] else "white",
                    capsize=2,
                    elinewidth=0.7,
                ).lines[0]
            )
        axes.set_ylabel(spoken(latency, "µs" if in_us else None))
        axes.set_xlabel(spoken(cpu))
        axes.margins(0.1)
        axes.set_title(title or "Latency against CPU burnt (filled: on the frontier)")
        legend(axes, frame["configuration"].to_list(), handles)
    return axes


def df_ipi_cost(
    results: Results,
    *,
    fanout: str,
    cost: str = "latency.ipi.mean_ns",
    by: By = None,
) -> pl.DataFrame:
    """Return what an IPI costs by the number of its targets.

    Args:
        results: a table of results, results by label, a sequence of them, or a single one.
        fanout: parameter with the number of targets (`vm.vcpus`, or one of the workload's).
        cost: the number that an IPI costs; see `ResultTable.metric`.
        by: parameter or parameters that tell the lines apart.

    Returns:
        Frame of configuration, fanout, runs, cost, cost_low, cost_high (95 % bootstrap interval of
        the mean), in the order of the fan-out.
    """
    chosen = choose(results, [fanout, *([by] if isinstance(by, str) else by or ())])
    targets = dict(parameters(chosen.table, [fanout]).iter_rows())
    lines = choose(results, by).labels if by else chosen.labels.with_columns(label=pl.lit(""))
    values = chosen.values(cost)
    places: dict[tuple[str, float], list[float]] = {}
    whole = dict(chosen.labels.iter_rows())
    for run, line in lines.iter_rows():
        number = targets[run]
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise UserError([problem("is no number of targets", path=fanout)])
        places[line, float(number)] = values[whole[run]]
    rows = [
        (line, number, len(found), *interval(found))
        for (line, number), found in sorted(places.items(), key=lambda place: place[0][1])
        if found
    ]
    order = lines["label"].unique(maintain_order=True).to_list()
    rows.sort(key=lambda row: order.index(row[0]))
    schema: dict[str, Any] = {"configuration": pl.String, "fanout": pl.Float64, "runs": pl.Int64}
    schema |= dict.fromkeys(("cost", "cost_low", "cost_high"), pl.Float64)
    return pl.DataFrame(rows, schema=schema, orient="row")


def ipi_cost(
    results: Results,
    *,
    fanout: str,
    cost: str = "latency.ipi.mean_ns",
    by: By = None,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what an IPI costs against the number of its targets, a line a configuration.

    Args:
        results: as for `df_ipi_cost`.
        fanout: as for `df_ipi_cost`.
        cost: as for `df_ipi_cost`.
        by: as for `df_ipi_cost`.
        title: the picture's message.
        ax: where to draw; by default a new figure of column width.
    """
    frame = df_ipi_cost(results, fanout=fanout, cost=cost, by=by)
    labels = frame["configuration"].unique(maintain_order=True).to_list()
    with mpl.rc_context({**STYLE, "axes.grid.axis": "both"}):
        axes = axes_of(ax, 2.3, COLUMN_INCHES)
        handles = []
        for index, label in enumerate(labels):
            part = frame.filter(configuration=label)
            handles.append(
                axes.errorbar(
                    part["fanout"],
                    part["cost"],
                    yerr=[part["cost"] - part["cost_low"], part["cost_high"] - part["cost"]],
                    marker=MARKERS[index % len(MARKERS)],
                    color=colour_of(index),
                    capsize=2,
                    elinewidth=0.7,
                )
            )
        targets = sorted(set(frame["fanout"]))
        if len(targets) > 2 and targets[-1] / max(targets[0], 1) >= 8:
            axes.set_xscale("log", base=2)
        axes.xaxis.set_major_locator(FixedLocator(targets[:: max(1, -(-len(targets) // 9))]))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_ylim(bottom=0)
        axes.yaxis.set_major_formatter(FuncFormatter(thousands))
        axes.set_xlabel(f"targets ({fanout})")
        axes.set_ylabel(spoken(cost))
        axes.set_title(title or "Cost of an IPI by fan-out")
        if by:
            legend(axes, labels, handles)
    return axes
