"""Campaigns: many runs over a sweep, with paired seeds, that survive whatever happens to them."""

from __future__ import annotations

import errno
import math
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from svmsim.campaign.axes import (
    Axis,
    Point,
    Repeat,
    Sample,
    When,
    check_condition,
    expand,
    fault,
    matches,
    read_axes,
    sample_axes,
    zip_axes,
)
from svmsim.campaign.directory import CampaignDirectory, collected_metric
from svmsim.campaign.execute import Job, Work
from svmsim.campaign.identity import build
from svmsim.campaign.journal import Record
from svmsim.campaign.local import LocalBackend
from svmsim.campaign.plan import Configuration, PlannedRun, make_configurations, planned_runs
from svmsim.campaign.progress import CampaignProgress, Mode
from svmsim.errors import Problem, ScenarioError, UserError, problem
from svmsim.scenario import Scenario
from svmsim.table import ResultTable

__all__ = ["Campaign"]

Backend = Literal["local", "dask"]
Store = Literal["return", "shared"]
MOST_RUNS = 10_000_000


class Campaign:
    """Runs over every combination of a sweep, each configuration with the same seeds.

    ```python
    campaign = sv.Campaign(
        base,
        sweep={"kvm.idle_hlt": [False, True], "kvm.halt_poll_ns": [0, 200_000]},
        seeds=range(5),
    )
    table = campaign.run("out/")
    ```

    It is plain data; `run` does the work. docs/campaigns.md has every option with examples.
    """

    def __init__(
        self,
        base: Scenario,
        sweep: Mapping[str, Any] | None = None,
        seeds: Iterable[int] | int | None = None,
        *,
        zip: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),  # noqa: A002 - its name in TOML
        when: When | Sequence[When] = (),
        sample: Sample | None = None,
        drop: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
        keep: Mapping[str, Any] | Sequence[Mapping[str, Any]] = (),
        filter: Callable[[Mapping[str, Any]], bool] | None = None,  # noqa: A002
        repeat: Repeat | None = None,
        time_limit_s: float | None = None,
        events: bool = False,
        name: str = "campaign",
        question: str = "",
        compare: str | None = None,
        metrics: Sequence[str] = (),
    ) -> None:
        """Plan a campaign; nothing is simulated yet.

        Args:
            base: the scenario that is varied.
            sweep: values by parameter (`"kvm.halt_poll_ns": [0, 200_000]`), a grid over all; under
                a name that is no parameter, variants: changes by label
                (`"workload": {"idle": {"vm.workload": {"kind": "..."}}, ...}`). A whole
                `vm.workload` replaces the base's.
            seeds: the same for every configuration, so that runs are paired; a number n means 1 to
                n. Default: the scenario's own.
            zip: a table, or several: keys that change together.
            when: further axes for points that meet a condition.
            sample: ranges to be sampled instead of, or beside, the grid.
            drop: conditions; points that meet one are left out.
            keep: conditions; points that meet none are left out.
            filter: takes what the axes show by name; False leaves the point out.
            repeat: when to add seeds.
            time_limit_s: wall time that a run may take; a longer one is a row with this error.
            events: keep the events of each run.
            name: a directory belongs to campaigns of one name.
            question: for reports.
            compare: the axis whose effect is asked for, for reports and comparisons.
            metrics: what to compare, for reports and comparisons.

        Raises:
            ScenarioError: something is wrong; with every problem.
        """
        problems: list[Problem] = []
        self.base = base
        self.name = name
        self.question = question
        self.compare = compare
        self.metrics = list(metrics)
        self.events = events
        self.repeat = repeat
        self.time_limit_s = _time_limit(time_limit_s, problems)
        self.seeds = _seeds(base, seeds, problems)
        axes, points = _points(sweep or {}, zip, when, sample, drop, keep, filter, problems)
        _check_repeat(repeat, problems)
        names = [axis.name for axis in axes]
        if compare is not None and compare not in names:
            from svmsim.campaign.axes import nearest_of

            near = nearest_of(compare, names)
            problems.append(fault("is not swept", ("compare", compare), near))
        if len(points) * max(1, len(self.seeds)) > MOST_RUNS:
            text = f"more than {MOST_RUNS} runs"
            problems.append(fault(text, ("sweep",)))
            points = []
        if not points and not problems:
            problems.append(fault("no configuration is left", ("sweep",)))
        self.sweep: dict[str, list[Any]] = {
            axis.name: [setting.shown for setting in axis.settings] for axis in axes
        }
        self.configurations, self._sources = make_configurations(base, points, axes, problems)
        if problems:
            raise ScenarioError(
                [{**item, "source": item["source"] or "Campaign"} for item in problems]
            )

    @classmethod
    def load(cls, path: str | Path) -> Campaign:
        """Read a campaign from a TOML file.

        Raises:
            ScenarioError: something is wrong; with every problem, its file, line and key.
        """
        from svmsim.campaign.file import load_campaign

        return load_campaign(Path(path))

    def __len__(self) -> int:
        """How many runs there are at first, before any are added by `repeat`."""
        return len(self.configurations) * len(self.seeds)

    def _repr_html_(self) -> str:
        from svmsim._html import campaign_html

        return campaign_html(self)

    def __repr__(self) -> str:
        swept = ", ".join(self.sweep) or "nothing"
        seeds = f"{len(self.seeds)} seed{'s' * (len(self.seeds) != 1)}"
        return f"Campaign({self.name}: {len(self.configurations)} configurations, {seeds}; {swept})"

    def run(
        self,
        out: str | Path | None = None,
        backend: Backend = "local",
        *,
        scheduler: str | Any | None = None,
        processes: int = 0,
        store: Store = "return",
        resume: bool = False,
        progress: bool | Mode = True,
    ) -> ResultTable:
        """Simulate what is not simulated yet, and return the results.

        An interrupted campaign goes on where it was; a finished one just returns its results. A
        run that fails is a row with its error.

        Args:
            out: directory for the results; without it they are kept in memory alone.
            backend: `local`, or `dask` for a cluster.
            scheduler: with `dask`: the address of a scheduler, or a cluster object; default is a
                cluster of processes on this machine.
            processes: how many at once; default: as many as there are CPUs.
            store: with `dask`: whether workers `return` results or write to `out` themselves, which
                they then must `share`.
            resume: also repeat runs that took too long or were killed.
            progress: True shows a bar on a terminal, `json` writes JSON lines to standard error.

        Raises:
            UserError: the directory cannot be written, belongs to another campaign, or another
                process works in it; the cluster does not answer.
        """
        mode: Mode = "auto" if progress is True else "none" if progress is False else progress
        if out is None:
            with tempfile.TemporaryDirectory(prefix="svmsim-") as temporary:
                table = self.run(
                    temporary, backend, scheduler=scheduler, processes=processes, store=store,
                    progress=progress,
                )  # fmt: skip
                return table.in_memory()
        try:
            with CampaignDirectory(Path(out)) as directory:
                directory.check_owner(self.name)
                self._work_in(directory, backend, scheduler, processes, store, resume, mode)
        except OSError as error:
            if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS):
                raise
            text = f"cannot be written: {(error.strerror or str(error)).lower()}; finished runs"
            raise UserError([problem(f"{text} are kept", source=str(out))]) from None
        return ResultTable.load(out)

    def _work_in(
        self,
        directory: CampaignDirectory,
        backend: Backend,
        scheduler: str | Any | None,
        processes: int,
        store: Store,
        resume: bool,
        mode: Mode,
    ) -> None:
        work = Work(
            sources=self._sources,
            base_dir=self.base._base_dir,
            build=build(),
            time_limit_s=self.time_limit_s,
            events_dir=str(directory.events.resolve()) if self.events else "",
        )
        if self.events:
            directory.events.mkdir(exist_ok=True)

        def make_backend() -> LocalBackend | Any:
            if backend == "local":
                return LocalBackend(
                    work,
                    directory.journals,
                    processes=processes,
                    lock_descriptor=directory.lock_descriptor,
                )
            from svmsim.campaign.cluster import DaskBackend

            return DaskBackend(
                work,
                directory.journals,
                scheduler=scheduler,
                processes=processes,
                shared=store == "shared",
            )

        seeds = {c.number: list(self.seeds) for c in self.configurations}
        if self.repeat is not None:
            for own in seeds.values():
                _add_seeds(own, self.repeat.at_least)
        again = resume
        started: Any = None
        with CampaignProgress(self.name, mode) as bar:
            try:
                while True:
                    runs = planned_runs(self.configurations, seeds)
                    found = directory.finished(again=again, events=self.events)
                    jobs = _missing(runs, found)
                    known = [found[r.run_id].status for r in runs if r.run_id in found]
                    bar.expect(len(runs), len(known), sum(status != "ok" for status in known))
                    if jobs:
                        if started is None:
                            started = make_backend().__enter__()
                        started.run(jobs, _counter(bar, runs))
                        found = directory.finished(again=False, events=self.events)
                        again = False
                    elif again:
                        found = directory.finished(again=False, events=self.events)
                    if self.repeat is None:
                        break
                    if not _add_where_wide(self.repeat, self.configurations, runs, found, seeds):
                        break
            except KeyboardInterrupt:
                bar.interrupted()
                raise
            finally:
                if started is not None:
                    started.__exit__(None, None, None)
        if self.events:
            directory.convert_events(runs)
            found = directory.finished(again=False, events=False)
        directory.write_tables(self.configurations, runs, found, self._about())

    def _about(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "question": self.question,
            "sweep": list(self.sweep),
            "compare": self.compare,
            "metrics": self.metrics,
            "events": self.events,
            "seeds": self.seeds,
        }


def _missing(runs: Sequence[PlannedRun], found: Mapping[str, Record]) -> list[Job]:
    jobs: dict[str, Job] = {}
    for run in runs:
        if run.run_id not in found and run.run_id not in jobs:
            jobs[run.run_id] = run.configuration.named_job(run.run_id, run.seed)
    return list(jobs.values())


def _counter(
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


def _add_seeds(seeds: list[int], count: int) -> None:
    while len(seeds) < count:
        seeds.append(max(seeds) + 1)


def _add_where_wide(
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
        _add_seeds(seeds[number], count)
    return bool(wanted)


def _seeds(base: Scenario, seeds: Iterable[int] | int | None, problems: list[Problem]) -> list[int]:
    where = ("seeds",)
    if seeds is None:
        return [int(base.resolved["run"]["seed"])]
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        if seeds < 1:
            problems.append(fault("expected at least one seed", where))
        return list(range(1, min(seeds, MOST_RUNS) + 1))
    if isinstance(seeds, str | bool) or not isinstance(seeds, Iterable):
        problems.append(fault("expected a number of seeds, or a list of them", where))
        return [1]
    chosen = [seed.__index__() if hasattr(seed, "__index__") else seed for seed in seeds]
    if not chosen:
        problems.append(fault("expected at least one seed", where))
    for seed in chosen:
        if not isinstance(seed, int) or isinstance(seed, bool) or not 0 <= seed < 2**63:
            problems.append(fault(f"{seed!r} is no seed: a whole number, 0 to 2^63 - 1", where))
            return [1]
    if len(set(chosen)) != len(chosen):
        problems.append(fault("a seed is there twice", where))
    return list(dict.fromkeys(chosen))


def _time_limit(limit: float | None, problems: list[Problem]) -> float:
    if limit is None:
        return 0.0
    number = isinstance(limit, int | float) and not isinstance(limit, bool)
    if not number or not 0 < limit < math.inf:
        problems.append(fault("expected a time in seconds, more than 0", ("time_limit",)))
        return 0.0
    return float(limit)


def _check_repeat(repeat: Repeat | None, problems: list[Problem]) -> None:
    if repeat is None:
        return

    def check(name: str, holds: bool, text: str) -> None:
        if not holds:
            problems.append(fault(text, ("repeat", name)))

    number = (int, float)
    metrics = [repeat.metric] if isinstance(repeat.metric, str) else list(repeat.metric)
    check("metric", bool(metrics) and all(isinstance(m, str) for m in metrics), "expected a metric")
    check("width", isinstance(repeat.width, number) and repeat.width > 0, "expected more than 0")
    inside = isinstance(repeat.confidence, number) and 0 < repeat.confidence < 1
    check("confidence", inside, "expected a share between 0 and 1, such as 0.95")
    check(
        "at_least", isinstance(repeat.at_least, int) and repeat.at_least >= 2, "expected 2 or more"
    )
    more = isinstance(repeat.at_most, int) and repeat.at_most >= 2
    check("at_most", more and repeat.at_most >= repeat.at_least, "expected at_least or more")


def _tables(value: Any) -> list[Any]:
    return [value] if isinstance(value, Mapping | When) else list(value)


def _points(
    sweep: Mapping[str, Any],
    zips: Any,
    whens: Any,
    sample: Sample | None,
    drop: Any,
    keep: Any,
    chosen: Callable[[Mapping[str, Any]], bool] | None,
    problems: list[Problem],
) -> tuple[list[Axis], list[Point]]:
    """Return all axes, and every point that is left."""
    grid = read_axes(sweep, ("sweep",), problems)
    axes = list(grid)
    steps = []
    for index, table in enumerate(_tables(zips)):
        where = ("zip", f"[{index}]")
        block = read_axes(table, where, problems)
        axes += block
        steps.append(zip_axes(block, where, problems))
    sampled: list[Any] = []
    if sample is not None:
        block, sampled = sample_axes(sample, ("sample",), problems)
        axes += block
    conditional = []
    for index, item in enumerate(_tables(whens)):
        where = ("when", f"[{index}]")
        condition = check_condition(item.condition, axes, (*where, "if"), problems)
        block = read_axes(item.sweep, (*where, "sweep"), problems)
        axes += [axis for axis in block if axis.name not in {other.name for other in axes}]
        conditional.append((condition, block))
    twice = {axis.name for axis in axes if sum(other.name == axis.name for other in axes) > 1}
    problems += [fault("is swept twice", axis.where) for axis in axes if axis.name in twice]
    filters = {}
    for kind, tables in (("drop", drop), ("keep", keep)):
        filters[kind] = [
            check_condition(table, axes, (kind, f"[{index}]"), problems)
            for index, table in enumerate(_tables(tables))
        ]
    size = math.prod(len(axis.settings) for axis in grid) * max(1, len(sampled))
    size *= math.prod(max(1, len(step)) for step in steps)
    if size > MOST_RUNS:
        problems.append(fault(f"more than {MOST_RUNS} combinations", ("sweep",)))
        return axes, []
    if problems:  # of axes: points would only repeat them; those of values come from resolving
        return axes, list(_one_axis_at_a_time(axes))
    points = []
    for point in expand(grid, steps, sampled, conditional):
        if any(matches(condition, point.shown) for condition in filters["drop"]):
            continue
        if filters["keep"] and not any(matches(c, point.shown) for c in filters["keep"]):
            continue
        if chosen is None or chosen(dict(point.shown)):
            points.append(point)
    return axes, points


def _one_axis_at_a_time(axes: Sequence[Axis]) -> Iterable[Point]:
    """Give points that show what is wrong with single values, when there can be no real points."""
    for axis in axes:
        for setting in axis.settings:
            yield Point().with_([(axis, setting)])
