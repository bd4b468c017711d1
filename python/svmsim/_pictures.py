"""The pictures that results give by themselves: those of `svmsim plot DIR` and of reports."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from svmsim import plot
from svmsim._render import value_text
from svmsim.plot._data import choose, grouped, has_events, parameters
from svmsim.table import TABLES, ResultTable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Picture", "part_of", "pictures", "save_pictures"]

_MOST_CONFIGURATIONS = 16
"""More cannot be told apart in one picture."""
_MOST_CHANGES = 4
_MOST_PANELS = 4


@dataclass(frozen=True, slots=True)
class Picture:
    """A picture and what it shows."""

    name: str
    caption: str
    draw: Callable[[], Figure]


def _root(drawn: Any) -> Figure:
    root: Figure = getattr(drawn, "figure", drawn).figure
    return root


def _values(table: ResultTable) -> dict[str, list[Any]]:
    """The values of each swept parameter, in their order."""
    frame = parameters(table, [key for key in table.sweep if key != "label"])
    return {key: list(dict.fromkeys(frame[key].to_list())) for key in frame.columns if key != "run"}


def _grouping(table: ResultTable, values: dict[str, list[Any]]) -> list[str]:
    """The swept parameters that together make few enough configurations, the first ones."""
    chosen: list[str] = []
    count = 1
    for key in sorted(values, key=lambda key: len(values[key])):
        count *= len(values[key])
        if count > _MOST_CONFIGURATIONS:
            break
        chosen.append(key)
    return [key for key in table.sweep if key in chosen]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _present(table: ResultTable, metric: str) -> bool:
    return table.metric(metric)["value"].drop_nulls().len() > 0


def _varies(table: ResultTable, metric: str) -> bool:
    return table.metric(metric)["value"].drop_nulls().n_unique() > 1


def _changes(table: ResultTable, values: dict[str, list[Any]]) -> Iterator[Picture]:
    for key, (old, new, *more) in ((k, v) for k, v in values.items() if len(v) > 1):
        if more:
            continue
        if (old, new) == (True, False):
            old, new = new, old
        name = key.rpartition(".")[2]
        labels = (f"{name} = {value_text(old)}", f"{name} = {value_text(new)}")

        def draw(
            key: str = key, pair: tuple[Any, Any] = (old, new), labels: Any = labels
        ) -> Figure:
            halves = [part_of(table, key, value) for value in pair]
            return _root(plot.before_after(*halves, labels=labels))

        caption = f"Exits with {labels[0]} and {labels[1]}, mean of all else."
        yield Picture(f"change-{name}", caption, draw)


def part_of(table: ResultTable, key: str, value: Any) -> ResultTable:
    """The runs in which a swept parameter has one value."""
    frame = parameters(table, [key])
    return _only(table, [run for run, other in frame.iter_rows() if other == value])


def _only(table: ResultTable, runs: list[int]) -> ResultTable:
    """The table with some runs alone; of its other tables these take no more than those runs."""
    names = [] if table.path is not None else [name for name in TABLES if name != "events"]
    frames = {name: table.scan(name).collect() for name in names}
    frames["runs"] = table.runs.filter(pl.col("run").is_in(runs)).collect()
    return ResultTable(table.about, path=table.path, frames=frames)


def pictures(table: ResultTable) -> list[Picture]:
    """Return what can be drawn of a table, the most telling first.

    Raises:
        UserError: every run failed.
    """
    values = _values(table)
    by: Sequence[str] | None = _grouping(table, values) or None
    if "label" in table.sweep and len(table.configurations) <= _MOST_CONFIGURATIONS:
        by = ["label"]
    found = [
        Picture(
            "exit-mix",
            "VM exits by reason, by count and by the CPU time that the host spent on them.",
            lambda: _root(plot.exit_mix(table, by)),
        )
    ]
    found += list(_changes(table, values))[:_MOST_CHANGES]
    halts = table.scan("halts").select(pl.col("halt_exits").sum()).collect().item()
    if halts:
        caption = "How halts ended, and the CPU time spent polling for it."
        found.append(Picture("halt-story", caption, lambda: _root(plot.halt_story(table, by))))
    configurations = len(plot.df_exit_counts(table, by)["configuration"].unique())
    if configurations > 1 and _present(table, "latency.wakeup.p99_ns"):
        caption = (
            "Wake-up latency (99th percentile) against the share of time in which the pCPUs were"
            " not idle, with 95 % intervals over the runs; down and left is better."
        )
        found.append(Picture("frontier", caption, lambda: _root(plot.frontier(table, by))))
    if has_events(table):
        found += _of_events(table, by)
    numbers = [k for k, v in values.items() if len(v) > 1 and all(_is_number(one) for one in v)]
    fanout = next((k for k in numbers if k.rpartition(".")[2] in _FANOUTS), None)
    if fanout is not None and _present(table, "latency.ipi.mean_ns"):
        rest = [key for key in by or () if key != fanout] or None
        found.append(
            Picture(
                "ipi-cost",
                "Time from the send of an IPI until the guest takes it, by fan-out.",
                lambda: _root(plot.ipi_cost(table, fanout=fanout, by=rest)),
            )
        )
    axes = sorted((k for k, v in values.items() if len(v) > 1), key=lambda k: -len(values[k]))
    if len(axes) >= 2:
        x, y = axes[:2]
        for metric, caption in _HEAT:
            if _varies(table, metric):
                found.append(
                    Picture(
                        f"heat-{metric.replace('.', '-').removesuffix('_ns')}",
                        f"{caption} over {x} and {y}, mean of all else.",
                        lambda m=metric: _root(plot.heat_map(table, x=x, y=y, value=m)),  # type: ignore[misc]
                    )
                )
    return found


def _of_events(table: ResultTable, by: Sequence[str] | None) -> Iterator[Picture]:
    """Pictures of the first run of each configuration; of the first few where each has a panel."""
    part = _first_runs(table, by, _MOST_PANELS)
    caption = "Time from kvm_exit to kvm_entry by exit reason; the first run of each configuration."
    yield Picture("handling-times", caption, lambda: _root(plot.handling_times(part, by)))
    if not plot.df_wakeup_stages(part, by).is_empty():
        caption = "Wake-up latency by stage; the first run of each configuration."
        yield Picture("wake-up-stages", caption, lambda: _root(plot.wakeup_cdf(part, by)))
    for number, (label, runs) in enumerate(grouped(part, by).items(), 1):
        yield Picture(
            f"timeline-{number}",
            f"{label}: a part of its first run, from the middle.",
            lambda run=runs[0]: _root(plot.timeline(run)),  # type: ignore[misc]
        )


def _first_runs(table: ResultTable, by: Sequence[str] | None, most: int) -> ResultTable:
    """The first run of each of the first configurations."""
    labels = choose(table, by).labels.unique("label", keep="first", maintain_order=True)
    return _only(table, labels["run"].to_list()[:most])


_FANOUTS = ("vcpus", "targets", "fanout", "fan_out", "destinations")
_HEAT = (
    ("exits.count", "VM exits"),
    ("latency.wakeup.p99_ns", "Wake-up latency (99th percentile)"),
    ("busy_ns", "CPU time burnt"),
)


def save_pictures(
    table: ResultTable, directory: Path, formats: Sequence[str] = plot.FORMATS
) -> list[Path]:
    """Draw all pictures of a table into files of a directory.

    Raises:
        UserError: a file cannot be written, or every run failed.
    """
    files = []
    for picture in pictures(table):
        files += plot.save(picture.draw(), directory / picture.name, formats)
    return files
