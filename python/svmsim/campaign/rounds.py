"""Which runs are still to be simulated, and which configurations need more seeds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from svmsim.campaign.axes import Repeat
from svmsim.campaign.directory import collected_metric
from svmsim.campaign.execute import Job
from svmsim.campaign.journal import Record
from svmsim.campaign.plan import Configuration, PlannedRun
from svmsim.campaign.progress import CampaignProgress

__all__ = ["add_seeds", "add_where_wide", "counter", "missing_jobs"]


def missing_jobs(runs: Sequence[PlannedRun], found: Mapping[str, Record]) -> list[Job]:
    """Return the runs that are not finished, each once."""
    jobs: dict[str, Job] = {}
    for run in runs:
        if run.run_id not in found and run.run_id not in jobs:
            jobs[run.run_id] = run.configuration.named_job(run.run_id, run.seed)
    return list(jobs.values())


def counter(
    bar: CampaignProgress, runs: Sequence[PlannedRun]
) -> Callable[[Sequence[tuple[str, str]]], None]:
    """Return what counts ended runs; two configurations may share one."""
    times: dict[str, int] = {}
    for run in runs:
        times[run.run_id] = times.get(run.run_id, 0) + 1

    def count(ended: Sequence[tuple[str, str]]) -> None:
        done = sum(times.get(run_id, 0) for run_id, _ in ended)
        bar.add(done, sum(times.get(run_id, 0) for run_id, status in ended if status != "ok"))

    return count


def add_seeds(seeds: list[int], count: int) -> None:
    """Add the next seeds until there are `count`."""
    while len(seeds) < count:
        seeds.append(max(seeds) + 1)


def add_where_wide(
    repeat: Repeat,
    configurations: Sequence[Configuration],
    runs: Sequence[PlannedRun],
    found: Mapping[str, Record],
    seeds: dict[int, list[int]],
) -> bool:
    """Add seeds to configurations whose intervals are too wide; return whether there are any."""
    from scipy.stats import t

    wanted: dict[int, int] = {}
    metrics = [repeat.metric] if isinstance(repeat.metric, str) else repeat.metric
    for metric in metrics:
        for number, values in collected_metric(metric, configurations, runs, found).items():
            count = len(values)
            if count < 2 or len(seeds[number]) >= repeat.at_most:
                continue
            mean = math.fsum(values) / count
            variance = math.fsum((value - mean) ** 2 for value in values) / (count - 1)
            half = float(t.ppf(0.5 + repeat.confidence / 2, count - 1)) * math.sqrt(
                variance / count
            )
            limit = repeat.width * (abs(mean) if repeat.relative else 1.0)
            if half > limit:
                needed = math.ceil(count * (half / limit) ** 2) if limit > 0 else 2 * count
                grown = max(len(seeds[number]) + 1, min(needed, 2 * len(seeds[number])))
                wanted[number] = max(wanted.get(number, 0), min(grown, repeat.at_most))
    for number, count in wanted.items():
        add_seeds(seeds[number], count)
    return bool(wanted)
