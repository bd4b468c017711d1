"""The idle-HLT study's table: each published figure beside the simulated one."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from svmsim.result import Result
from svmsim.studies._table import Row, Tolerance, exact, within

EXITS = ("msr", "hlt", "vintr")
"""The exits that the published tables list in both modes."""
MODES = ("off", "on")
SLOW_RECORDING_CYCLES = 1300
NOT_JUDGED: tuple[Tolerance, float, float] = ("-", 0.0, 0.0)

Exits = Mapping[str, Mapping[str, Any]]


def published() -> dict[str, Any]:
    """Return the published figures, as idle_hlt_published.toml lays them out."""
    path = Path(__file__).with_name("idle_hlt_published.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def harness_iterations(cycles: float, goal: int, first_batch: int) -> int:
    """Return how many iterations of `cycles` TSC cycles the doubling harness makes in all."""
    batch = total = first_batch
    while batch * cycles < goal:
        batch *= 2
        total += batch
    return total


def _count(exits: Exits, name: str) -> int:
    """Return how many exits of a name there were; published tables call them samples."""
    values = exits.get(name, {})
    return int(values.get("count", values.get("samples", 0)))


def _time_ns(exits: Exits, *names: str) -> float:
    return sum(float(exits[name]["time_ns"]) for name in names if name in exits)


def _mean_ns(exits: Exits, name: str) -> float:
    """Return perf's mean time of one exit in ns; 0 when it did not occur."""
    return _time_ns(exits, name) / max(1, _count(exits, name))


def _change_pct(old: float, new: float) -> float:
    return 100.0 * (new - old) / old


class _Sheet:
    """Collects rows of one kernel generation and one recording state."""

    def __init__(self, kernel: str, recorded: bool, source: str) -> None:
        self.rows: list[Row] = []
        self._kernel = kernel
        self._recorded = recorded
        self._source = source

    def add(
        self,
        quantity: str,
        mode: str,
        simulated: float,
        public: float | tuple[float, float],
        tolerance: tuple[Tolerance, float, float],
        *,
        unit: str = "",
        digits: int = 0,
        source: str = "",
    ) -> None:
        """Add one row; `source` only where it is not the sheet's."""
        self.rows.append(
            Row(
                quantity=quantity,
                recorded=self._recorded,
                idle_hlt=mode,
                kernel=self._kernel,
                simulated=simulated,
                published=public,
                tolerance=tolerance[0],
                low=tolerance[1],
                high=tolerance[2],
                unit=unit,
                digits=digits,
                source=source or self._source,
            )
        )


def recorded_rows(kernel: str, results: Mapping[str, Result]) -> list[Row]:
    """Return the rows of the recorded runs: counts, and host time as perf sees it."""
    data = published()
    perf, harness = data["perf"], data["harness"]
    goal, first = harness["goal_cycles"], harness["first_batch"]
    doubling = f"{perf['source']}; {harness['source']}"
    results = {mode: results[f"{kernel}-{mode}-recorded"] for mode in MODES} | {
        extra: results[f"{kernel}-{extra}"] for extra in ("off-slow", "user-io")
    }
    exits = {name: result.exit_totals for name, result in results.items()}
    sheet = _Sheet(kernel, True, perf["source"])

    for name in EXITS:
        for mode in MODES:
            count = _count(perf[mode], name)
            sheet.add(f"{name} exits", mode, _count(exits[mode], name), count, exact(count))

    # The last batch follows from the sum of all batches, and what an iteration can take from that.
    last_batch = (_count(perf["off"], "hlt") + first) // 2
    bracket = (goal / last_batch, 2 * goal / last_batch)
    band: tuple[Tolerance, float, float] = ("E", bracket[0], bracket[1] - 1)
    for mode in MODES:
        cycles = results[mode].metrics["cycles_per_iteration"]
        sheet.add("iteration", mode, cycles, bracket, band, unit="cycles", source=doubling)

    # Of the published change only the vanished hlt exit can be the intercept's doing.
    share = 100 * _time_ns(perf["off"], "hlt") / _time_ns(perf["off"], *EXITS)
    change = _change_pct(_time_ns(exits["off"], *EXITS), _time_ns(exits["on"], *EXITS))
    band = ("R", -share - 3, -share + 3)
    sheet.add(
        "host time of these exits, change", "on / off", change, -share, band, unit="%", digits=1
    )
    simulated = 100 * _time_ns(exits["off"], "hlt") / _time_ns(exits["off"], *EXITS)
    band = ("R", share - 3, share + 3)
    sheet.add("share of hlt in it", "off", simulated, share, band, unit="%", digits=1)

    for name, mode in (("hlt", "off"), ("vintr", "off"), ("vintr", "on")):
        public = _mean_ns(perf[mode], name) / _mean_ns(perf[mode], "msr")
        simulated = _mean_ns(exits[mode], name) / _mean_ns(exits[mode], "msr")
        quantity = f"host time, {name} exit : msr exit"
        sheet.add(quantity, mode, simulated, public, within("R", public, 0.25), digits=3)

    ratios = [_mean_ns(perf["on"], "io") / _mean_ns(perf[mode], "msr") for mode in MODES]
    simulated = _mean_ns(exits["user-io"], "io") / _mean_ns(exits["off"], "msr")
    quantity = "host time, user-space io exit : msr exit"
    sheet.add(quantity, "-", simulated, (min(ratios), max(ratios)), ("R", 3, 6), digits=2)

    earlier = (_count(perf["off"], "hlt") - first) // 2
    quantity = f"hlt exits at {SLOW_RECORDING_CYCLES} cycles a record"
    simulated = _count(exits["off-slow"], "hlt")
    sheet.add(
        quantity, "off", simulated, earlier, exact(earlier), source=f"{doubling}: one doubling less"
    )
    return sheet.rows


def plain_rows(kernel: str, results: Mapping[str, Result]) -> list[Row]:
    """Return the rows of the runs that were not recorded: cycles as the guest sees them."""
    data = published()
    cycles, harness = data["cycles"], data["harness"]
    goal, first = harness["goal_cycles"], harness["first_batch"]
    metrics = {mode: results[f"{kernel}-{mode}-plain"].metrics for mode in MODES}
    full = {mode: metrics[mode]["cycles_per_iteration"] for mode in MODES}
    sheet = _Sheet(kernel, False, cycles["source"])

    for mode in MODES:
        total = harness_iterations(cycles[mode]["full"], goal, first)
        simulated = metrics[mode]["iterations"]
        source = f"{cycles['source']}; {harness['source']}"
        sheet.add("iterations of the harness", mode, simulated, total, exact(total), source=source)

    eoi = [cycles[mode]["eoi"] for mode in MODES]
    band: tuple[Tolerance, float, float] = ("A", 0.9 * min(eoi), 1.1 * max(eoi))
    for mode in MODES:
        simulated = metrics[mode]["eoi_cycles"]
        sheet.add("EOI write", mode, simulated, cycles[mode]["eoi"], band, unit="cycles", digits=1)
    for mode in MODES:
        simulated = metrics[mode]["ipi_cycles"] - metrics[mode]["eoi_cycles"]
        public = cycles[mode]["ipi"] - cycles[mode]["eoi"]
        quantity = "ICR write minus EOI write"
        sheet.add(quantity, mode, simulated, public, ("R", 120, 180), unit="cycles", digits=1)
    for mode in MODES:
        public = cycles[mode]["full"]
        band = within("A", public, 0.1)
        sheet.add("iteration", mode, full[mode], public, band, unit="cycles", digits=1)

    change = _change_pct(full["off"], full["on"])
    public = _change_pct(cycles["off"]["full"], cycles["on"]["full"])
    sheet.add("iteration, change", "on / off", change, public, NOT_JUDGED, unit="%", digits=2)
    free = results[f"{kernel}-on-free-halt"].metrics["cycles_per_iteration"]
    public = cycles["on"]["full"]
    quantity = "iteration with t_halt_abort = 0"
    sheet.add(quantity, "on", free, public, NOT_JUDGED, unit="cycles", digits=1)
    return sheet.rows


def oddities() -> list[tuple[str, str, str]]:
    """Return what the publication prints and what follows from its own numbers, where they differ.

    Columns: quantity, printed, recomputed.
    """
    data = published()
    found = []
    off, on = (data["perf"][mode] for mode in MODES)
    for mode, rows in (("off", off), ("on", on)):
        for column, key in (("Samples%", "samples"), ("Time%", "time_ns")):
            total = sum(values[key] for values in rows.values())
            for name, values in rows.items():
                printed = values[f"{key.removesuffix('_ns')}_pct"]
                share = 100 * values[key] / total
                if int(share) == printed:  # the printed tables are truncated, not rounded
                    continue
                text = f"{share:.2f} % of the listed rows"
                if name == "vintr" and mode == "off":
                    text += f"; {_vintr_bounds(off)}: a typo for 17"
                found.append((f"{name} {column}, idle HLT {mode}", f"{printed} %", text))
    for name, stated in data["cycles"]["stated_change_pct"].items():
        values = {mode: data["cycles"][mode][name] for mode in MODES}
        usual = _change_pct(values["off"], values["on"])
        other = -_change_pct(values["on"], values["off"])
        text = f"{usual:+.2f} % of off, {other:+.2f} % of on"
        found.append((f"{name} cycles, on against off", f"{stated:+.2f} %", text))
    change = _change_pct(_time_ns(off, *EXITS), _time_ns(on, *EXITS))
    share = 100 * _time_ns(off, "hlt") / _time_ns(off, *EXITS)
    text = (
        f"-{share:.1f} % by the vanished hlt exit; the rest, cheaper msr and vintr exits, is noise"
    )
    found.append(("host time of these exits", f"{change:.1f} %", text))
    return found


def _vintr_bounds(off: Exits) -> str:
    """Return what vintr's share must be, given msr's truncated share."""
    msr = off["msr"]
    totals = [100 * msr["time_ns"] / (msr["time_pct"] + extra) for extra in (0, 1)]
    low, high = (100 * off["vintr"]["time_ns"] / total for total in totals)
    return f"{low:.1f}..{high:.1f} % if msr has {msr['time_pct']} %"
