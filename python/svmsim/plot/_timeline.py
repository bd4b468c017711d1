"""What every pCPU and vCPU did, over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import matplotlib as mpl
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from svmsim.errors import UserError, problem
from svmsim.plot._data import events_of
from svmsim.plot._style import PAGE_INCHES, STATE_COLOURS, STYLE, axes_of, legend, time_unit
from svmsim.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMES = {
    "guest": "guest",
    "host": "host",
    "exit": "exit handling",
    "poll": "halt polling",
    "task": "another thread",
    "idle": "idle",
    "blocked": "blocked",
    "runqueue": "runnable, waits",
}
_MOST_SLICES = 120
_MOST_ARROWS = 60


def timeline(
    result: Result,
    begin_ns: int | None = None,
    end_ns: int | None = None,
    *,
    title: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw what each pCPU and vCPU did, with an arrow for each IPI that KVM carried.

    Args:
        result: of `run(events=True)`.
        begin_ns: start of what is shown; by default the middle of the run.
        end_ns: its end; by default so late that some 120 slices are shown.
        title: the picture's message.
        ax: where to draw; by default a new figure of page width.

    Raises:
        UserError: the result has no events, or none in that time.
    """
    events = events_of(result)
    line = events.timeline
    slices = sorted([*line.pcpus, *line.vcpus], key=lambda s: (s.begin_ns, s.end_ns))
    if not slices:
        raise UserError([problem("nothing happened in this run", path="events")])
    first = len(slices) // 2 if begin_ns is None and len(slices) > _MOST_SLICES else 0
    begin = begin_ns if begin_ns is not None else slices[first].begin_ns
    later = [s for s in slices if s.end_ns > begin]
    ends = [s.end_ns for s in later[:_MOST_SLICES]]
    end = end_ns if end_ns is not None else max(ends, default=begin + 1)
    shown = [s for s in later if s.begin_ns < end]
    if end <= begin or not shown:
        raise UserError([problem(f"nothing happened from {begin} to {end} ns", path="events")])
    lanes: dict[tuple[str, str, int], int] = {}
    for s in sorted(slices, key=lambda s: (s.track, s.vm, s.index)):
        lanes.setdefault((s.track, s.vm, s.index), len(lanes))
    scale, unit = time_unit([float(end - begin)])
    with mpl.rc_context({**STYLE, "axes.grid": False, "ytick.major.size": 0}):
        axes = axes_of(ax, 1.0 + 0.3 * len(lanes), PAGE_INCHES)
        order = list(STATE_COLOURS)
        for s in shown:
            left, right = max(s.begin_ns, begin), min(s.end_ns, end)
            inner = s.track == "vcpu" and s.state in ("poll", "blocked", "runqueue")
            y, height = lanes[s.track, s.vm, s.index] - 0.35, 0.7
            axes.broken_barh(
                [((left - begin) / scale, (right - left) / scale)],
                (y, height),
                facecolor=STATE_COLOURS[s.state],
                linewidth=0,
                zorder=2 if inner else 1,
            )
        vcpu_lanes = {(vm, i): y for (track, vm, i), y in lanes.items() if track == "vcpu"}
        flows = [
            flow
            for flow in line.flows
            if begin <= flow.sent_ns and flow.handled_ns <= end and flow.sender != flow.target
        ]
        for f in flows[:_MOST_ARROWS]:
            axes.annotate(
                "",
                ((f.handled_ns - begin) / scale, vcpu_lanes[f.vm, f.target]),
                ((f.sent_ns - begin) / scale, vcpu_lanes[f.vm, f.sender]),
                arrowprops={"arrowstyle": "->", "linewidth": 0.6, "shrinkA": 0, "shrinkB": 0},
                zorder=3,
            )
        names = [f"pCPU {i}" if track == "pcpu" else f"vCPU {vm}/{i}" for track, vm, i in lanes]
        axes.set_yticks(range(len(lanes)), names)
        axes.set_ylim(len(lanes) - 0.4, -0.6)
        axes.set_xlim(0, (end - begin) / scale)
        axes.xaxis.set_major_locator(MaxNLocator(8))
        start, start_unit = time_unit([float(begin)])
        axes.set_xlabel(f"simulated time since {begin / start:,.9g} {start_unit} ({unit})")
        axes.set_title(title or "What pCPUs and vCPUs did" + ("; arrows are IPIs" if flows else ""))
        states = dict.fromkeys(s.state for s in sorted(shown, key=lambda s: order.index(s.state)))
        colours = {STATE_COLOURS[state]: _NAMES[state] for state in states}
        if {"host", "exit"} <= set(states):
            colours[STATE_COLOURS["host"]] = "host, exit handling"
        legend(axes, list(colours.values()), [Patch(color=colour) for colour in colours])
    return axes
