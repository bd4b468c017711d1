"""The table of the study on HLT exits: what was published, and what each setting does."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svmsim.result import Result
from svmsim.studies._seeds import (
    NOT_JUDGED,
    Band,
    Results,
    SeedRow,
    Sheet,
    above,
    below,
    each_seed,
)

if TYPE_CHECKING:
    import polars as pl

HOSTS = ("quiet", "stress")
"""Without and with host threads beside the vCPUs."""
DISABLED = ("none", "half", "all")
"""Of the vCPUs, those whose HLT exits are disabled."""


def published() -> dict[str, Any]:
    """Return the published figures, as hlt_exits_published.toml lays them out."""
    path = Path(__file__).with_name("hlt_exits_published.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def score(result: Result) -> float:
    """Return the guest's score: rounds of its workers in a second."""
    return 1e9 / float(result.metrics["vm0.0.worker_round_mean_ns"])


def latency_us(result: Result) -> float:
    """Return the mean time from a host thread's wake-up to its running; 0 without host threads."""
    tasks = list(result.tasks.iter_rows(named=True))
    wakes = sum(int(task["wakeup_count"]) for task in tasks)
    total = sum(float(task["wakeup_count"] * task["wakeup_mean_ns"]) for task in tasks)
    return total / wakes / 1e3 if wakes else 0.0


def forced_preemptions(result: Result) -> int:
    """Return how often a vCPU lost its pCPU although it was runnable."""
    vcpus = result.vcpus
    return int(vcpus["preemption_reported"].sum()) + int(vcpus["preemption_other"].sum())


def measured(results: Results) -> pl.DataFrame:
    """Return one row for each run and seed."""
    import polars as pl

    rows = []
    for name, runs in results.items():
        host, disabled = name.split("-")
        for seed, result in enumerate(runs, 1):
            tasks = result.tasks
            rows.append(
                {
                    "host": host,
                    "disabled": disabled,
                    "seed": seed,
                    "score": score(result),
                    "host_latency_us": latency_us(result),
                    "host_latency_p99_us": max(tasks["wakeup_p99_ns"].to_list(), default=0) / 1e3,
                    "host_run_ms": float(tasks["run_ns"].sum()) / 1e6,
                    "context_switches": int(result.pcpus["context_switches"].sum()),
                    "forced_preemptions": forced_preemptions(result),
                    "hlt_exits": int(result.halts["count"].sum()),
                    "interrupt_exits": int(result.exit_totals.get("interrupt", {}).get("count", 0)),
                }
            )
    return pl.DataFrame(rows)


def _gain_pct(base: Result, other: Result) -> float:
    return 100 * (score(other) / score(base) - 1)


def judged_rows(results: Results) -> list[SeedRow]:
    """Return the table from the results by name."""
    data = published()
    public, source = data["gain"], data["gain"]["source"]
    rows: list[SeedRow] = []

    def gains(host: str, which: str) -> list[float]:
        return each_seed(_gain_pct, results[f"{host}-none"], results[f"{host}-{which}"])

    sheet = Sheet("Score against no vCPU, quiet host", source)
    half, everything = gains("quiet", "half"), gains("quiet", "all")
    sheet.add("gain, half of the vCPUs", half, public["half_pct"], above(0), unit="%")
    sheet.add("gain, all vCPUs", everything, public["all_pct"], above(0), unit="%")
    share = [a / b for a, b in zip(half, everything, strict=True)]
    # "<= all, up to noise": a hundredth of the gain.
    band: Band = ("R", public["least_share"], 1.01)
    figure = public["half_pct"] / public["all_pct"]
    sheet.add("gain, half : all", share, figure, band, digits=3)
    rows += sheet.rows

    sheet = Sheet("Score against no vCPU, stressed host", source)
    stressed = gains("stress", "half")
    sheet.add("gain, half of the vCPUs", stressed, public["half_pct"], above(0), unit="%")
    sheet.add("gain, all vCPUs", gains("stress", "all"), None, NOT_JUDGED, unit="%")
    rows += sheet.rows

    part = data["latency"]
    sheet = Sheet("Wake-up latency of host threads against no vCPU", part["source"])

    def factor(base: Result, other: Result) -> float:
        return latency_us(other) / latency_us(base)

    least = float(part["least_factor"])
    base = results["stress-none"]
    values = each_seed(factor, base, results["stress-half"])
    sheet.add("half of the vCPUs", values, None, below(least, "R"), unit="times", digits=1)
    values = each_seed(factor, base, results["stress-all"])
    sheet.add("all vCPUs", values, None, above(least, "R"), unit="times", digits=1)
    return rows + sheet.rows
