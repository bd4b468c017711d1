"""Campaigns: many runs over a sweep, with paired seeds, that survive whatever happens to them."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from svmsim.campaign.arguments import (
    MOST_RUNS,
    check_repeat,
    make_points,
    read_seeds,
    read_time_limit,
)
from svmsim.campaign.axes import Repeat, Sample, When, fault, nearest_of
from svmsim.campaign.directory import CampaignDirectory
from svmsim.campaign.execute import Work
from svmsim.campaign.identity import build
from svmsim.campaign.local import LocalBackend
from svmsim.campaign.plan import make_configurations, planned_runs
from svmsim.campaign.progress import CampaignProgress, Mode
from svmsim.campaign.rounds import add_seeds, add_where_wide, counter, missing_jobs
from svmsim.errors import Problem, ScenarioError, UserError, problem
from svmsim.scenario import Scenario
from svmsim.table import ResultTable

__all__ = ["Campaign"]

Backend = Literal["local", "dask"]
Store = Literal["return", "shared"]


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

    It is plain data; `run` does the work. docs/howto/campaign.md has every option with examples.
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
        self.time_limit_s = read_time_limit(time_limit_s, problems)
        self.seeds = read_seeds(base, seeds, problems)
        axes, points = make_points(sweep or {}, zip, when, sample, drop, keep, filter, problems)
        check_repeat(repeat, problems)
        names = [axis.name for axis in axes]
        if compare is not None and compare not in names:
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
                add_seeds(own, self.repeat.at_least)
        again = resume
        started: Any = None
        with CampaignProgress(self.name, mode) as bar:
            try:
                while True:
                    runs = planned_runs(self.configurations, seeds)
                    found = directory.finished(again=again, events=self.events)
                    jobs = missing_jobs(runs, found)
                    known = [found[r.run_id].status for r in runs if r.run_id in found]
                    bar.expect(len(runs), len(known), sum(status != "ok" for status in known))
                    if jobs:
                        if started is None:
                            started = make_backend().__enter__()
                        started.run(jobs, counter(bar, runs))
                        found = directory.finished(again=False, events=self.events)
                        again = False
                    elif again:
                        found = directory.finished(again=False, events=self.events)
                    if self.repeat is None:
                        break
                    if not add_where_wide(self.repeat, self.configurations, runs, found, seeds):
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
