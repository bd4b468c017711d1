"""Pictures of halts: what polling gained and lost, and how its window grew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import blended_transform_factory

from svmsim.errors import UserError, problem
from svmsim.plot._data import By, Results, choose, events_of, grouped, has_events
from svmsim.plot._style import (
    MARKERS,
    OTHER,
    PALETTE,
    STYLE,
    axes_of,
    colour_of,
    headline,
    legend,
    new_figure,
    rows_of,
    shortened,
    thousands,
    time_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_OUTCOMES = (
    ("at_once", "no wait", OTHER),
    ("poll_success", "polling succeeded", PALETTE[2]),
    ("poll_failure", "polled in vain, then blocked", PALETTE[5]),
    ("blocked", "blocked at once", PALETTE[0]),
)


def df_halts(results: Results, by: By = None) -> pl.DataFrame:
    """Return how halts ended and what polling cost, by configuration.

    Args:
        results: a table of results, results by label, a sequence of them, or a single one.
        by: parameter or parameters that tell configurations apart; results with the same values are
            averaged.

    Returns:
        Frame of configuration; the counts at_once (a HLT exit with an interrupt pending already),
        poll_success, poll_failure (polled, then blocked), blocked (without polling); and the times
        poll_success_ns, poll_wasted_ns (spent in polls that failed), blocked_ns. From KVM's
        statistics, summed over the vCPUs.
    """
    chosen = choose(results, by)
    waits = pl.col("halt_wait_hist").list.sum()
    failure = pl.min_horizontal(
        waits, pl.col("halt_attempted_poll") - pl.col("halt_successful_poll")
    )
    at_once = pl.col("halt_exits") - pl.col("halt_successful_poll") - waits
    frame = (
        chosen.rows("halts")
        .group_by("label", maintain_order=True)
        .agg(
            at_once.clip(0).sum().alias("at_once"),
            pl.col("halt_successful_poll").sum().alias("poll_success"),
            failure.sum().alias("poll_failure"),
            (waits - failure).sum().alias("blocked"),
            pl.col("halt_poll_success_ns").sum().alias("poll_success_ns"),
            pl.col("halt_poll_fail_ns").sum().alias("poll_wasted_ns"),
            pl.col("halt_wait_ns").sum().alias("blocked_ns"),
        )
    )
    rows = [
        (row[0], *(cell / chosen.runs[row[0]] for cell in row[1:])) for row in frame.iter_rows()
    ]
    names = [name for name, _, _ in _OUTCOMES]
    names += ["poll_success_ns", "poll_wasted_ns", "blocked_ns"]
    schema = {"configuration": pl.String} | dict.fromkeys(names, pl.Float64)
    return pl.DataFrame(rows, schema=schema, orient="row")


def halt_story(
    results: Results,
    by: By = None,
    *,
    title: str | None = None,
    growth: bool | None = None,
) -> Figure:
    """Draw how halts ended, what polling cost, and (with events) how halt_poll_ns grew and shrank.

    Args:
        results: as for `df_halts`.
        by: as for `df_halts`.
        title: the picture's message.
        growth: whether to draw the growth, which needs the events of the run; by default when a
            result has them and the window changed.
    """
    frame = df_halts(results, by)
    labels = frame["configuration"].to_list()
    if growth is None:
        growth = has_events(results) and not df_halt_poll_growth(results, by).is_empty()
    names, height = rows_of(labels)
    places = range(len(names))
    rows = height * max(2, len(labels))
    scale, unit = time_unit((frame["poll_success_ns"] + frame["poll_wasted_ns"]).to_list())
    with mpl.rc_context({**STYLE, "axes.grid.axis": "x"}):
        ratios = [rows, rows, *([1.0] if growth else [])]
        figure = new_figure(sum(ratios) + (2.45 if growth else 1.35))
        panels = list(figure.subplots(len(ratios), 1, height_ratios=ratios))
        counts, cost = panels[:2]
        left = np.zeros(len(labels))
        for name, _, colour in _OUTCOMES:
            counts.barh(places, frame[name], 0.7, left, color=colour)
            left += frame[name].to_numpy()
        _totals(counts, left, [f"{total:,.0f}" for total in left])
        counts.set_xlabel("halts in KVM (count)")
        counts.xaxis.set_major_formatter(FuncFormatter(thousands))
        won, wasted = (frame[c].to_numpy() / scale for c in ("poll_success_ns", "poll_wasted_ns"))
        cost.barh(places, won, 0.7, color=PALETTE[2])
        cost.barh(
            places, wasted, 0.7, won, color=PALETTE[5], hatch="////", edgecolor="white", linewidth=0
        )
        blocked = [_time_text(time) for time in frame["blocked_ns"]]
        polled = won + wasted
        texts = [f"{cpu:,.3g}; slept {time}" for cpu, time in zip(polled, blocked, strict=True)]
        _totals(cost, polled, texts)
        cost.set_xlabel(f"CPU time polling ({unit}), hatched: in vain")
        for panel in (counts, cost):
            panel.set_yticks(places, names)
            panel.set_ylim(max(1.5, len(names)) - 0.4, -0.6)
            panel.xaxis.set_major_locator(MaxNLocator(5))
        counts.margins(x=0.14)
        cost.margins(x=0.8)
        headline(figure, title or "How halts ended, and what polling cost")
        handles = [Patch(color=colour) for _, _, colour in _OUTCOMES]
        legend(counts, [text for _, text, _ in _OUTCOMES], handles)
        if growth:
            halt_poll_growth(results, by, ax=panels[2], title="Growth of halt_poll_ns")
    return figure


def _time_text(time_ns: float) -> str:
    scale, unit = time_unit([time_ns])
    return f"{time_ns / scale:,.3g} {unit}"


def _totals(axes: Axes, ends: np.ndarray, texts: Sequence[str]) -> None:
    for index, (end, text) in enumerate(zip(ends, texts, strict=True)):
        axes.annotate(
            text, (end, index), (2, 0), textcoords="offset points", va="center", fontsize=6
        )


def df_halt_poll_growth(results: Results, by: By = None) -> pl.DataFrame:
    """Return every change of halt_poll_ns.

    Returns:
        Frame of configuration, vm, vcpu, time_ns, old_ns, new_ns; of the first result of each
        configuration.

    Raises:
        UserError: a result has no events.
    """
    frames = [
        events_of(group[0]).poll_windows.select(pl.lit(label).alias("configuration"), pl.all())
        for label, group in grouped(results, by).items()
    ]
    return pl.concat(frames)


def halt_poll_growth(
    results: Results,
    by: By = None,
    *,
    title: str | None = None,
    ax: Axes | None = None,
    most: int = 4,
) -> Axes:
    """Draw halt_poll_ns over time, a step for every change.

    Args:
        results: as for `df_halt_poll_growth`.
        by: as for `df_halt_poll_growth`.
        title: the picture's message.
        ax: where to draw; by default a new figure of column width.
        most: how many lines, of the vCPUs whose window changes most often.

    Raises:
        UserError: a result has no events, or no window changed.
    """
    frame = df_halt_poll_growth(results, by)
    if frame.is_empty():
        raise UserError([problem("no halt_poll_ns changed in these runs", path="kvm.halt_poll_ns")])
    keys = ["configuration", "vm", "vcpu"]
    often = frame.group_by(keys, maintain_order=True).len()
    often = often.sort("len", descending=True, maintain_order=True)
    configurations = frame["configuration"].n_unique()
    ends = {label: group[0].sim_time_ns for label, group in grouped(results, by).items()}
    scale, unit = time_unit(list(ends.values()))
    with mpl.rc_context(STYLE):
        axes = axes_of(ax, 1.9 + 0.14 * min(most, len(often)))
        for index, (label, vm, vcpu) in enumerate(often.select(keys).head(most).iter_rows()):
            one = frame.filter(configuration=label, vm=vm, vcpu=vcpu)
            times = [0, *one["time_ns"], max(ends[label], one["time_ns"][-1])]
            windows = [one["old_ns"][0], *one["new_ns"], one["new_ns"][-1]]
            name = f"{vm}/{vcpu}" if configurations == 1 else f"{label}: {vm}/{vcpu}"
            axes.step(
                np.array(times) / scale,
                np.array(windows) / 1e3,
                where="post",
                color=colour_of(index),
                marker=MARKERS[index % len(MARKERS)],
                markersize=2.5,
                markevery=max(1, len(times) // 20),
                label=name,
            )
        axes.set_xlabel(f"simulated time ({unit})")
        axes.set_ylabel("halt_poll_ns (µs)")
        axes.set_ylim(bottom=0)
        axes.margins(x=0.01)
        axes.set_title(title or "Growth of halt_poll_ns")
        lines = list(axes.lines)
        texts = [str(line.get_label()) for line in lines]
        if ax is None:
            legend(axes, texts, lines)
        else:
            # Below the panel, but from the left edge of the picture, which has room for long names.
            from_edge = blended_transform_factory(axes.figure.figure.transFigure, axes.transAxes)
            axes.legend(
                lines,
                [shortened(text, 56) for text in texts],
                loc="upper left",
                bbox_to_anchor=(0.02, -0.32),
                bbox_transform=from_edge,
                fontsize=6,
            )
    return axes
