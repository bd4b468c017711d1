"""Run what the items need, each simulation once, and judge."""

from __future__ import annotations

import difflib
import importlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from svmsim._pool import SimulationPool
from svmsim._progress import ProgressBar
from svmsim.errors import Problem, UserError, problem
from svmsim.result import Result
from svmsim.scenario import Scenario
from svmsim.validation.judge import SEEDS, Judgement, failed, judge
from svmsim.validation.measure import MEASURES, Less, Look, Measure, Plan, Run
from svmsim.validation.published import CLASSES, Item, published_items, published_rows

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

__all__ = ["R_SHARE", "Outcome", "chosen_items", "validate"]

R_SHARE = 0.8
"""So many of the R items have to hold; of E and D every one."""

_MODULES = (
    "idle_hlt",
    "polling",
    "disabled_exits",
    "exits",
    "ipi",
    "halts",
    "wakes",
    "scheduling",
)


def load_measures() -> None:
    """Import every module that has measures."""
    for name in _MODULES:
        importlib.import_module(f"svmsim.validation.{name}")


def chosen_items(only: Sequence[str] = ()) -> list[Item]:
    """Return the items of these ids; the id of a row means all its items.

    Raises:
        UserError: there is no such id.
    """
    items = published_items()
    known = [*published_rows(), *items]
    wrong = [id_ for id_ in only if id_ not in known]
    if wrong:
        raise UserError([_unknown(id_, known) for id_ in wrong])
    return [item for item in items.values() if not only or {item.id, item.row.id} & set(only)]


def _unknown(id_: str, known: Sequence[str]) -> Problem:
    close = difflib.get_close_matches(id_, known, n=1, cutoff=0.4)
    text = f"there is no item {id_}"
    return problem(text, path="--only", nearest=close[0] if close else "")


@dataclass(frozen=True)
class Outcome:
    """What the validation found."""

    judgements: tuple[Judgement, ...]
    results: dict[str, Result]
    """The results that were simulated, by number and workload."""
    version: str
    overrides: tuple[str, ...] = ()
    """Settings that every scenario got."""

    def counts(self, kind: str) -> tuple[int, int]:
        """Return how many items of a class hold, of how many."""
        own = [j for j in self.judgements if j.item.kind == kind]
        return sum(j.holds for j in own), len(own)

    @property
    def holds(self) -> bool:
        """Whether every E and D item holds, and enough of the R items."""
        for kind in ("E", "D"):
            held, total = self.counts(kind)
            if held != total:
                return False
        held, total = self.counts("R")
        return held >= R_SHARE * total

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data for JSON."""
        return {
            "version": self.version,
            "overrides": list(self.overrides),
            "classes": CLASSES,
            "holds": self.holds,
            "summary": {
                kind: dict(zip(("hold", "of"), self.counts(kind), strict=True)) for kind in CLASSES
            },
            "items": [judgement.to_dict() for judgement in self.judgements],
        }

    def to_json(self) -> str:
        """Return everything as JSON text."""
        return json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n"

    def to_markdown(self) -> str:
        """Return the page docs/validation.md."""
        from svmsim.validation import view

        return view.page(self)

    def save(self, directory: str | Path) -> list[Path]:
        """Write table and results below a directory; return the main files.

        Raises:
            UserError: a file cannot be written.
        """
        from svmsim.validation import view

        return view.save(self, Path(directory))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from svmsim.validation import view

        yield view.terminal(self)


class _Work:
    """The simulations of all items, equal ones once."""

    def __init__(self, overrides: Sequence[str]) -> None:
        self._overrides = tuple(overrides)
        self.runs: list[Run] = []
        self._known: dict[tuple[Scenario, Look | None], int] = {}

    def add(self, run: Run | Scenario, seed: int | None) -> int:
        """Return the number of a simulation."""
        if isinstance(run, Scenario):
            run = Run(run)
        scenario = run.scenario
        if seed is not None:
            scenario = scenario.set("run.seed", seed)
        if self._overrides:
            scenario = scenario.overridden(self._overrides)
        key = (scenario, run.look)
        if key not in self._known:
            self._known[key] = len(self.runs)
            self.runs.append(Run(scenario, run.look, run.weight))
        return self._known[key]


def takes_seed(measure: Measure) -> bool:
    """Whether a measure takes the seed: its guests draw no numbers, and would not differ."""
    return "seed" in signature(measure).parameters


class _Task:
    """An item's measure under one seed, between its question and its answer."""

    def __init__(self, item: Item, seed: int | None, work: _Work) -> None:
        measure = MEASURES[item.id]
        self.plan: Plan = measure(seed=seed) if takes_seed(measure) else measure()
        self.numbers = [work.add(run, seed) for run in next(self.plan)]

    def value(self, outcomes: Sequence[Any]) -> float | Less:
        try:
            self.plan.send([outcomes[number] for number in self.numbers])
        except StopIteration as end:
            value: float | Less = end.value
            return value
        raise TypeError("a measure asks for simulations once")


def validate(
    only: Sequence[str] = (),
    *,
    overrides: Sequence[str] = (),
    progress: bool = False,
) -> Outcome:
    """Simulate what was published, with as many simulations at once as there are CPUs.

    Args:
        only: ids of items or rows; default: all.
        overrides: settings that every scenario gets, as `--set` takes them, to see which figures
            they move: `host.cost.t_world=2000`.
        progress: show a bar on standard error when it takes more than two seconds.

    Raises:
        UserError: there is no such item; an override is wrong.
        InternalError: a simulation failed.
    """
    load_measures()
    items = chosen_items(only)
    work = _Work(overrides)
    tasks = {
        item.id: [_Task(item, seed, work) for seed in (SEEDS if item.kind == "D" else (None,))]
        for item in items
    }
    with (
        SimulationPool(
            [run.scenario for run in work.runs],
            [run.weight for run in work.runs],
            [run.look for run in work.runs],
        ) as pool,
        ProgressBar("validate", enabled=progress) as bar,
    ):
        outcomes = pool.outcomes(bar)
    judgements = []
    for item in items:
        own = [outcomes[number] for task in tasks[item.id] for number in task.numbers]
        why = next((o.failure for o in own if isinstance(o, Result) and o.failure), "")
        if why:
            judgements.append(failed(item, why))
        else:
            judgements.append(judge(item, [task.value(outcomes) for task in tasks[item.id]]))
    results = {
        f"{number:03d}-{outcome.workload['kind']}": outcome
        for number, outcome in enumerate(outcomes)
        if isinstance(outcome, Result)
    }
    from svmsim import __version__

    return Outcome(tuple(judgements), results, __version__, tuple(overrides))
