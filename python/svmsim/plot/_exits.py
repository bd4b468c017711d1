"""Pictures of VM exits. Beneath each picture stands a `df_` function with the numbers in it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import matplotlib as mpl
import numpy as np
import polars as pl
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, MaxNLocator

from svmsim.plot._data import By, Results, choose, events_of, grouped
from svmsim.plot._style import (
    OTHER,
    PALETTE,
    STYLE,
    axes_of,
    colour_of,
    headline,
    ink_on,
    legend,
    log_time_axis,
    new_figure,
    rows_of,
    thousands,
    time_unit,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def df_exit_counts(results: Results, by: By = None) -> pl.DataFrame:
    """Count exits by configuration.

    Args:
        results: a table of results, results by label, a sequence of them, or a single one.
        by: parameter or parameters that tell configurations apart (`kvm.idle_hlt`); several
            results with the same values are averaged. Without it every result is
            a configuration, and of a table every combination of swept values.

    Returns:
        Frame of configuration, exit, count (mean over the configuration's results); one row for
        each pair, 0 included; exits in falling order of their total.

    Raises:
        ValueError: there are no results.
        UserError: the results have no parameter `by`.
    """
    chosen = choose(results, by)
    sums = chosen.rows("exits").group_by("label", "exit").agg(pl.col("count").sum())
    counts = {(label, name): count for label, name, count in sums.iter_rows()}
    totals = sums.group_by("exit").agg(pl.col("count").sum())
    names = totals.sort(["count", "exit"], descending=[True, False])["exit"]
    rows = [
        (label, name, counts.get((label, name), 0) / chosen.runs[label])
        for label in chosen.configurations
        for name in names
    ]
    schema = {"configuration": pl.String, "exit": pl.String, "count": pl.Float64}
    return pl.DataFrame(rows, schema=schema, orient="row")


def exit_counts(
    results: Results,
    by: By = None,
    *,
    ax: Axes | None = None,
    title: str | None = None,
    minimum_share: float = 0.001,
) -> Axes:
    """Draw exit counts as bars, grouped by exit reason, a colour for each configuration.

    Args:
        results: as for `df_exit_counts`.
        by: as for `df_exit_counts`.
        ax: where to draw; by default a new figure of column width.
        title: the picture's message; by default what it shows.
        minimum_share: exits rarer than this share of all exits are left out.

    Raises:
        ValueError: there are no results.
        UserError: the results have no parameter `by`.
    """
    frame = df_exit_counts(results, by)
    totals: dict[str, float] = {}
    for _, name, count in frame.iter_rows():
        totals[name] = totals.get(name, 0.0) + count
    limit = minimum_share * sum(totals.values())
    shown = [name for name, count in totals.items() if count >= limit]
    labels = frame["configuration"].unique(maintain_order=True).to_list()
    values = {(c, e): count for c, e, count in frame.iter_rows()}
    with mpl.rc_context(STYLE):
        axes = axes_of(ax, 2.4)
        width = 0.8 / max(1, len(labels))
        upright = len(labels) * len(shown) <= 8
        for index, label in enumerate(labels):
            heights = [values[label, name] for name in shown]
            middles = [i - 0.4 + (index + 0.5) * width for i in range(len(shown))]
            bars = axes.bar(
                middles, heights, width * 0.92, label=label, color=PALETTE[index % len(PALETTE)]
            )
            axes.bar_label(
                bars,
                [f"{height:,.0f}" for height in heights],
                fontsize=5.5 if upright else 5.0,
                rotation=0 if upright else 90,
                padding=1.5,
            )
        axes.set_xticks(range(len(shown)), shown)
        axes.set_xlabel("exit reason")
        axes.set_ylabel("VM exits (count)")
        axes.yaxis.set_major_formatter(FuncFormatter(thousands))
        axes.yaxis.set_major_locator(MaxNLocator(6))
        axes.margins(y=0.12 if upright else 0.25)
        axes.set_title(title or "VM exits by reason")
        legend(axes, labels)
    return axes


def df_exit_mix(results: Results, by: By = None) -> pl.DataFrame:
    """Return what each exit reason costs, by configuration.

    Args:
        results: as for `df_exit_counts`.
        by: as for `df_exit_counts`.

    Returns:
        Frame of configuration, exit, count, cpu_ns (handling and polling: what the host's CPU spent
        on it), time_ns (perf's, with the time blocked): means over the configuration's results.
    """
    chosen = choose(results, by)
    runs = pl.DataFrame(
        {"label": list(chosen.runs), "runs": list(chosen.runs.values())},
        schema={"label": pl.String, "runs": pl.Int64},
    )
    sums = (
        chosen.rows("exits")
        .group_by("label", "exit", maintain_order=True)
        .agg(
            pl.col("count").sum(),
            (pl.col("handling_ns") + pl.col("polling_ns")).sum().alias("cpu_ns"),
            pl.col("time_ns").sum(),
        )
        .join(runs, on="label", maintain_order="left")
    )
    means = [pl.col(name) / pl.col("runs") for name in ("count", "cpu_ns", "time_ns")]
    return sums.select(pl.col("label").alias("configuration"), "exit", *means)


def exit_mix(
    results: Results,
    by: By = None,
    *,
    title: str | None = None,
    minimum_share: float = 0.01,
) -> Figure:
    """Draw the mix of exits of each configuration: by count above, by CPU time of the host below.

    Args:
        results: as for `df_exit_counts`.
        by: as for `df_exit_counts`.
        title: the picture's message.
        minimum_share: exits below this share in both pictures are shown together as "other".
    """
    frame = df_exit_mix(results, by)
    labels = choose(results, by).configurations
    totals = frame.group_by("exit").agg(pl.col("count").sum(), pl.col("cpu_ns").sum())
    share = pl.max_horizontal(
        pl.col("count") / pl.col("count").sum(), pl.col("cpu_ns") / pl.col("cpu_ns").sum()
    )
    ranked = totals.with_columns(share.fill_nan(0.0).alias("share")).sort(
        ["share", "exit"], descending=[True, False]
    )
    most = len(PALETTE) - 1
    shown = ranked.filter(pl.col("share") >= minimum_share)["exit"].to_list()[:most]
    rest = [name for name in ranked["exit"] if name not in shown]
    values = {(c, e): (n, cpu) for c, e, n, cpu, _ in frame.iter_rows()}
    scale, unit = time_unit(
        frame.group_by("configuration").agg(pl.col("cpu_ns").sum())["cpu_ns"].to_list()
    )
    parts = [(name, [name], colour_of(index)) for index, name in enumerate(shown)]
    if rest:
        parts.append(("other", rest, OTHER))
    with mpl.rc_context({**STYLE, "axes.grid.axis": "x"}):
        rows, height = rows_of(labels)
        figure = new_figure(1.35 + 2 * height * max(2, len(labels)))
        panels = figure.subplots(2, 1)
        for panel, column, divisor in zip(panels, (0, 1), (1.0, scale), strict=True):
            left = np.zeros(len(labels))
            for _, members, colour in parts:
                widths = np.array(
                    [sum(values.get((c, e), (0, 0))[column] for e in members) for c in labels]
                )
                panel.barh(range(len(rows)), widths / divisor, 0.7, left, color=colour)
                left += widths / divisor
            for index, total in enumerate(left):
                text = f"{total:,.0f}" if column == 0 else f"{total:,.3g}"
                panel.annotate(
                    text, (total, index), (2, 0), textcoords="offset points", va="center",
                    fontsize=6,
                )  # fmt: skip
            panel.margins(x=0.14)
            panel.set_yticks(range(len(rows)), rows)
            panel.set_ylim(max(1.5, len(rows)) - 0.4, -0.6)
            panel.xaxis.set_major_locator(MaxNLocator(5))
        panels[0].set_xlabel("VM exits (count)")
        panels[0].xaxis.set_major_formatter(FuncFormatter(thousands))
        panels[1].set_xlabel(f"host CPU time: handling, polling ({unit})")
        headline(figure, title or "Exit mix, by count and by CPU time")
        legend(
            panels[0],
            [name for name, _, _ in parts],
            [Patch(color=colour) for _, _, colour in parts],
        )
    return figure


def df_before_after(before: Results, after: Results) -> pl.DataFrame:
    """Compare the exit counts of two configurations.

    Returns:
        Frame of exit, before, after (means over the results), change (after minus before) and
        change_pct (null when there was none before); the largest change comes first.
    """
    counts = []
    for results in (before, after):
        chosen = choose(results, None)
        sums = chosen.rows("exits").group_by("exit").agg(pl.col("count").sum())
        counts.append({name: count / len(chosen.labels) for name, count in sums.iter_rows()})
    names = sorted({*counts[0], *counts[1]})
    rows = []
    for name in names:
        old, new = counts[0].get(name, 0.0), counts[1].get(name, 0.0)
        rows.append((name, old, new, new - old, 100 * (new - old) / old if old else None))
    rows.sort(key=lambda row: (-abs(row[3]), row[0]))
    numbers = ("before", "after", "change", "change_pct")
    schema = {"exit": pl.String} | dict.fromkeys(numbers, pl.Float64)
    return pl.DataFrame(rows, schema=schema, orient="row")


def before_after(
    before: Results,
    after: Results,
    *,
    labels: tuple[str, str] = ("before", "after"),
    title: str | None = None,
    ax: Axes | None = None,
    most: int = 12,
) -> Axes:
    """Draw each exit reason's count before and after a change, joined by a line.

    Args:
        before: results of the first configuration.
        after: results of the second.
        labels: names of the two.
        title: the picture's message.
        ax: where to draw; by default a new figure of column width.
        most: how many exit reasons, those with the largest change.
    """
    frame = df_before_after(before, after).head(most)
    with mpl.rc_context({**STYLE, "axes.grid.axis": "x"}):
        axes = axes_of(ax, 1.1 + 0.19 * max(2, len(frame)))
        largest = max([1.0, *frame["before"], *frame["after"]])
        for y, (_, old, new, _, percent) in enumerate(frame.iter_rows()):
            axes.plot([old, new], [y, y], color=OTHER, linewidth=1.5, zorder=1)
            text = "new" if percent is None else f"{percent:+,.1f} %" if new != old else "same"
            axes.annotate(
                text,
                (1.0, y),
                (3, 0),
                xycoords=axes.get_yaxis_transform(),
                textcoords="offset points",
                va="center",
                fontsize=6,
            )
        rows = range(len(frame))
        axes.scatter(
            frame["before"], rows, 22, facecolors="white", edgecolors=PALETTE[0], label=labels[0]
        )
        axes.scatter(frame["after"], rows, 14, color=PALETTE[5], marker="D", label=labels[1])
        axes.set_xscale("symlog", linthresh=1.0, linscale=0.4)
        axes.set_xlim(-0.3, largest * 2)
        axes.xaxis.set_major_formatter(FuncFormatter(thousands))
        axes.set_yticks(rows, frame["exit"].to_list())
        axes.set_ylim(max(1, len(frame)) - 0.4, -0.6)
        axes.set_xlabel("VM exits (count, logarithmic above 1)")
        both = f"VM exits, {labels[0]} and {labels[1]}"
        axes.set_title(title or (both if len(both) <= 44 else "VM exits before and after"))
        legend(axes, labels)
    return axes


def df_handling_times(results: Results, by: By = None) -> pl.DataFrame:
    """Return the distribution of the times from kvm_exit to the next kvm_entry.

    Args:
        results: as for `df_exit_counts`; made by `run(events=True)`.
        by: as for `df_exit_counts`; results of one configuration are pooled.

    Returns:
        Frame of configuration, exit, count, p5_ns, p25_ns, p50_ns, p75_ns, p95_ns, max_ns.

    Raises:
        UserError: a result has no events.
    """
    frames = [
        events_of(result).exits.select("exit", "time_ns", configuration=pl.lit(label))
        for label, group in grouped(results, by).items()
        for result in group
    ]
    quantiles = [
        pl.col("time_ns").quantile(percent / 100, "linear").alias(f"p{percent}_ns")
        for percent in (5, 25, 50, 75, 95)
    ]
    return (
        pl.concat(frames)
        .group_by("configuration", "exit", maintain_order=True)
        .agg(pl.len().alias("count"), *quantiles, pl.col("time_ns").max().alias("max_ns"))
    )


def handling_times(
    results: Results,
    by: By = None,
    *,
    title: str | None = None,
    ax: Axes | None = None,
    most: int = 10,
) -> Axes:
    """Draw how long each exit reason takes, from kvm_exit to kvm_entry: quartiles, 5 and 95 %.

    Args:
        results: as for `df_handling_times`.
        by: as for `df_handling_times`.
        title: the picture's message.
        ax: where to draw; by default a new figure of column width.
        most: how many exit reasons, the most frequent ones.
    """
    frame = df_handling_times(results, by)
    labels = choose(results, by).configurations
    order = frame.group_by("exit").agg(pl.col("count").sum())
    exits = order.sort(["count", "exit"], descending=[True, False])["exit"].to_list()[:most]
    rows = {(row["configuration"], row["exit"]): row for row in frame.iter_rows(named=True)}
    height = 0.8 / len(labels)
    with mpl.rc_context({**STYLE, "axes.grid.axis": "x"}):
        axes = axes_of(ax, 1.1 + max(0.2, 0.11 * len(labels)) * max(2, len(exits)))
        for index, label in enumerate(labels):
            found = [(y, rows[label, e]) for y, e in enumerate(exits) if (label, e) in rows]
            boxes = [
                {
                    "med": row["p50_ns"],
                    "q1": row["p25_ns"],
                    "q3": row["p75_ns"],
                    "whislo": row["p5_ns"],
                    "whishi": row["p95_ns"],
                }
                for _, row in found
            ]
            colour = colour_of(index)
            axes.bxp(
                boxes,
                positions=[y - 0.4 + (index + 0.5) * height for y, _ in found],
                widths=height * 0.7,
                orientation="horizontal",
                showfliers=False,
                patch_artist=True,
                manage_ticks=False,
                boxprops={"facecolor": colour, "edgecolor": colour, "linewidth": 0.8},
                whiskerprops={"color": colour, "linewidth": 0.8},
                capprops={"color": colour, "linewidth": 0.8},
                medianprops={"linewidth": 0.0},
            )
            # A dot, since most of what the kernel handles takes always the same time.
            axes.plot(
                [row["p50_ns"] for _, row in found],
                [y - 0.4 + (index + 0.5) * height for y, _ in found],
                linestyle="",
                marker="o",
                markersize=3.5,
                markerfacecolor="white",
                markeredgecolor=colour,
            )
        axes.set_xscale("log")
        log_time_axis(axes.xaxis, *axes.get_xlim())
        axes.set_yticks(range(len(exits)), exits)
        axes.set_ylim(max(1, len(exits)) - 0.4, -0.6)
        axes.set_xlabel("kvm_exit to kvm_entry (logarithmic)")
        axes.set_title(title or "Handling time: median, quartiles, 5 to 95 %")
        handles = [Line2D([], [], color=colour_of(i), linewidth=4) for i in range(len(labels))]
        legend(axes, labels, handles)
    return axes


def stacked_times(
    times: Mapping[str, Mapping[str, float]],
    *,
    ylabel: str,
    title: str,
    ax: Axes | None = None,
) -> Axes:
    """Draw one bar for each key of `times`, stacked of its parts, each labelled with its value.

    Args:
        times: parts by bar; bars and parts are drawn in their order. A newline in a key breaks it.
        ylabel: quantity and unit.
        title: the picture's message.
        ax: where to draw; by default a new figure of column width.
    """
    parts = list(dict.fromkeys(part for bar in times.values() for part in bar))
    largest = max((sum(bar.values()) for bar in times.values()), default=0.0)
    with mpl.rc_context(STYLE):
        axes = axes_of(ax, 2.6)
        bottoms = [0.0] * len(times)
        for index, part in enumerate(parts):
            heights = [bar.get(part, 0.0) for bar in times.values()]
            colour = PALETTE[index % len(PALETTE)]
            bars = axes.bar(range(len(times)), heights, 0.66, bottoms, label=part, color=colour)
            texts = [f"{height:,.0f}" if height >= 0.04 * largest else "" for height in heights]
            axes.bar_label(bars, texts, label_type="center", fontsize=6, color=ink_on(colour))
            bottoms = [low + height for low, height in zip(bottoms, heights, strict=True)]
        for index, total in enumerate(bottoms):
            axes.annotate(
                f"{total:,.0f}",
                (index, total),
                (0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                fontweight="bold",
            )
        axes.set_xticks(range(len(times)), list(times))
        axes.set_ylabel(ylabel)
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.margins(y=0.1)
        axes.set_title(title)
        legend(axes, parts)
    return axes
