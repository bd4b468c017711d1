"""Many simulations at once, each in a process: SystemC's state is one per process."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, MutableSequence, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from types import TracebackType
from typing import Any

from svmsim.errors import InternalError
from svmsim.result import Result
from svmsim.scenario import Scenario

# In a worker: the share done of every simulation, after one cell that is set to stop them all.
_cells: MutableSequence[float] = []


class _StoppedError(Exception):
    """The parent asked the simulation to stop."""


def _start_worker(cells: MutableSequence[float]) -> None:
    global _cells
    _cells = cells
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle


Look = Callable[[Result], Any]


def _simulate(index: int, scenario: Scenario) -> str:
    def report(share: float) -> None:
        _cells[index + 1] = max(share, 0.0)
        if _cells[0]:
            raise _StoppedError

    result = scenario.run(progress=report)
    _cells[index + 1] = 1.0
    return result.to_json()


class SimulationPool:
    """Simulates scenarios in as many processes as there are CPUs; results as if one after another.

    The processes start in the constructor, so that the caller can do something else meanwhile.
    Use it as a context manager: leaving it early stops what still runs.
    """

    def __init__(
        self,
        scenarios: Sequence[Scenario],
        weights: Sequence[float],
        looks: Sequence[Look | None] = (),
    ) -> None:
        """Start.

        Args:
            scenarios: what to simulate.
            weights: guesses of the relative work; the largest are started first.
            looks: for each scenario a function that takes the result with its events to what
                comes back instead; or None. Such scenarios are simulated in this process: events
                are polars frames, and polars does not work behind a fork. Keep them small.
        """
        # Forked, so that a worker starts at once with svmsim loaded, and needs no importable
        # __main__. What was loaded besides (polars, matplotlib) is never used in a worker.
        context = multiprocessing.get_context("fork")
        self._cells = context.Array("d", len(scenarios) + 1, lock=False)
        self._weights = list(weights)
        workers = max(1, min(os.cpu_count() or 1, len(scenarios)))
        self._executor = ProcessPoolExecutor(workers, context, _start_worker, (self._cells,))
        self._looks = list(looks) or [None] * len(scenarios)
        self._scenarios = list(scenarios)
        self._futures: list[Future[str] | None] = [None] * len(scenarios)
        for index in sorted(range(len(scenarios)), key=lambda i: -self._weights[i]):
            if self._looks[index] is None:
                self._futures[index] = self._executor.submit(_simulate, index, scenarios[index])

    def __enter__(self) -> SimulationPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cells[0] = 1.0
        self._executor.shutdown(wait=True, cancel_futures=True)

    def results(self, progress: Callable[[float], None] | None = None) -> list[Result]:
        """Wait for all simulations; `progress` gets the share of the work done, 0 to 1.

        Raises:
            UserError: a scenario cannot be run.
            InternalError: a simulation failed, or its process was killed.
        """
        return self.outcomes(progress)

    def outcomes(self, progress: Callable[[float], None] | None = None) -> list[Any]:
        """Return results, or where there is a look what that made of it."""
        pending = {future for future in self._futures if future is not None}
        total = sum(self._weights)
        looked: list[Any] = []
        for index, (scenario, look) in enumerate(zip(self._scenarios, self._looks, strict=True)):
            looked.append(look(scenario.run(events=True)) if look is not None else None)
            if look is not None:
                self._cells[index + 1] = 1.0
        while pending:
            done, pending = wait(pending, timeout=0.1)
            for future in done:
                self._check(future)
            if progress is not None:
                shares = zip(self._weights, self._cells[1:], strict=True)
                progress(sum(weight * share for weight, share in shares) / total)
        return [
            outcome if future is None else Result.from_json(future.result())
            for future, outcome in zip(self._futures, looked, strict=True)
        ]

    @staticmethod
    def _check(future: Future[str]) -> None:
        try:
            future.result()
        except BrokenProcessPool:
            raise InternalError("a simulation's process was killed (out of memory?)") from None
