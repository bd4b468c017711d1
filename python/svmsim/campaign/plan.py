"""The configurations of a campaign: each point resolved, checked and named."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from svmsim import _core
from svmsim._toml import overrides, plain
from svmsim.campaign.axes import Axis, Point, Where, fault
from svmsim.campaign.execute import Job
from svmsim.campaign.identity import configuration_digest, input_files, run_id
from svmsim.errors import Problem, ScenarioError
from svmsim.scenario import Scenario
from svmsim.table.paths import value_at

__all__ = ["Configuration", "PlannedRun", "make_configurations", "planned_runs"]

_MOST_PROBLEMS = 50


@dataclass(frozen=True, slots=True)
class Configuration:
    """What all runs of one point have in common."""

    number: int
    swept: Mapping[str, Any]
    """The resolved value of each swept parameter, the label of each variant."""
    label: str
    source: int
    """Which of the plan's sources it changes."""
    overrides: tuple[str, ...]
    resolved: str
    """The resolved scenario as JSON, with seed 1."""
    inputs: Mapping[str, str]
    """SHA-256 of each file that the scenario names."""
    digest: str

    def job(self, seed: int) -> Job:
        """Return the run with a seed."""
        return self.named_job(run_id(self.digest, seed), seed)

    def named_job(self, name: str, seed: int) -> Job:
        """Return the run with a seed, whose name is known."""
        return Job(name, self.source, (*self.overrides, f"run.seed={seed}"))


class PlannedRun(NamedTuple):
    """One run of a campaign; its number is its place in the plan."""

    configuration: Configuration
    seed: int
    run_id: str


class _Sources:
    """Scenarios as JSON, each once: the base, and the base with other workloads."""

    def __init__(self, base: Scenario) -> None:
        self.texts: list[str] = []
        self._base = base
        self._known: dict[str, tuple[int, tuple[str, ...]]] = {}

    def of(self, workloads: Mapping[str, Any]) -> tuple[int, tuple[str, ...]]:
        """Return which source has these workloads, and the base's overrides that still hold."""
        key = json.dumps(workloads, sort_keys=True)
        if key not in self._known:
            text = self._base._source
            kept = self._base._overrides
            for path, table in workloads.items():
                text = _replaced(text, path, table)
                kept = tuple(item for item in kept if not item.startswith(f"{path}."))
            if text not in self.texts:
                self.texts.append(text)
            self._known[key] = self.texts.index(text), kept
        return self._known[key]


def _replaced(source: str, path: str, workload: Mapping[str, Any]) -> str:
    """Return a scenario with the workload of all VMs, or of the named one, replaced."""
    scenario = json.loads(source)
    name = path.removeprefix("vm.").removesuffix("workload").rstrip(".")
    machines = scenario.setdefault("vm", [{}])
    for machine in machines if isinstance(machines, list) else [machines]:
        if not name or machine.get("name", "vm0") == name:
            machine["workload"] = dict(workload)
    return json.dumps(scenario)


def make_configurations(
    base: Scenario, points: Sequence[Point], axes: Sequence[Axis], problems: list[Problem]
) -> tuple[list[Configuration], tuple[str, ...]]:
    """Resolve every point; return the configurations and the sources that they change.

    What is wrong with a point goes to `problems`, once for each axis and message.
    """
    from svmsim.table.table import label_of

    sources = _Sources(base)
    parameters = {axis.name: axis.is_parameter for axis in axes}
    result: list[Configuration] = []
    seen: set[tuple[str, str, str]] = set()
    for point in points:
        try:
            source, texts, resolved = _resolve(base, point, sources)
        except ScenarioError as error:
            for item in error.problems:
                found = _placed(item, point, axes)
                identity = (found["source"], found["path"], found["message"])
                if identity not in seen and len(seen) < _MOST_PROBLEMS:
                    seen.add(identity)
                    problems.append(found)
            continue
        values = json.loads(resolved)
        swept = {
            name: value_at(values, name) if whole else point.shown.get(name)
            for name, whole in parameters.items()
        }
        # A whole workload is a table; its kind stands for it.
        swept |= {k: v for k, v in point.shown.items() if k.rpartition(".")[2] == "workload"}
        inputs = input_files(resolved, base._base_dir)
        result.append(
            Configuration(
                number=len(result),
                swept=swept,
                label=label_of(swept),
                source=source,
                overrides=texts,
                resolved=resolved,
                inputs=inputs,
                digest=configuration_digest(resolved, inputs),
            )
        )
    return result, tuple(sources.texts)


def _resolve(base: Scenario, point: Point, sources: _Sources) -> tuple[int, tuple[str, ...], str]:
    def is_workload(key: str) -> bool:
        return key.startswith("vm.") and key.rpartition(".")[2] == "workload"

    workloads = {key: plain(key, v) for key, v in point.changes.items() if is_workload(key)}
    others = {key: value for key, value in point.changes.items() if not is_workload(key)}
    source, kept = sources.of(workloads)
    texts = (*kept, *overrides(others))
    text = _core.resolve(sources.texts[source], False, base._base_dir, [*texts, "run.seed=1"])
    return source, texts, text


def _placed(item: Problem, point: Point, axes: Sequence[Axis]) -> Problem:
    """Return a problem of a resolved point as one of the campaign, unless it is a file's own."""
    if item["source"] not in ("--set", "<dict>", ""):
        return item
    where = _culprit(item["path"], point, axes)
    message = item["message"] if where else f"{item['path']}: {item['message']}"
    return fault(message, where or ("scenario",), item["nearest"])


def _culprit(path: str, point: Point, axes: Sequence[Axis]) -> Where | None:
    """Return the place of the axis that set what a problem is about."""

    def about(key: str) -> bool:
        short = [part for part in path.split(".") if not part.startswith("[")]
        wanted = key.split(".")
        if wanted[0] == "vm" and short[0] == "vm" and len(short) > len(wanted):
            short = [short[0], *short[-len(wanted) + 1 :]] if len(wanted) > 1 else short
        return path == key or path.startswith(f"{key}.") or short == wanted

    for axis in axes:
        keys = {key for setting in axis.settings for key in setting.changes}
        if axis.name in point.shown and any(about(key) for key in keys):
            return axis.where
    for axis in axes:  # a workload's own keys
        keys = {key for setting in axis.settings for key in setting.changes}
        if any(key.endswith("workload") for key in keys) and ".workload" in path:
            return axis.where
    return None


def planned_runs(
    configurations: Sequence[Configuration], seeds: Mapping[int, Sequence[int]]
) -> list[PlannedRun]:
    """Return the runs in order: by configuration, then in the order of its seeds."""
    return [
        PlannedRun(configuration, seed, run_id(configuration.digest, seed))
        for configuration in configurations
        for seed in seeds[configuration.number]
    ]
