"""The local backend: a pool of processes, since SystemC's state is one per process."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from types import TracebackType
from typing import Any

from svmsim.campaign import execute
from svmsim.campaign.chunks import Chunks
from svmsim.campaign.execute import Job, Work
from svmsim.campaign.journal import Journal, encoded, scan, status_of

__all__ = ["LocalBackend"]

Done = Callable[[Sequence[tuple[str, str]]], None]
"""Gets (run_id, status) of runs whose records are in the journal."""

_GRACE_S = 5.0
_WRITE_EVERY_S = 0.05
_ATTEMPTS = 2

# In a worker: what it works for, the cells that it shares with the driver, and its journal.
_work: Work | None = None
_cells: MutableSequence[float] = []
_slot = 0
_journal: Journal | None = None


def _start_worker(
    work: Work, directory: str, cells: MutableSequence[float], slots: int, parent: int,
    lock_descriptor: int, next_slot: MutableSequence[int],
) -> None:  # fmt: skip
    global _work, _cells, _slot, _journal
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle
    execute.forget_process()
    gc.freeze()  # what was there before the fork stays shared, and is not searched for garbage
    if lock_descriptor >= 0:
        os.close(lock_descriptor)  # or the directory would stay locked when the driver is killed
    with next_slot.get_lock():  # type: ignore[attr-defined]
        _slot = next_slot[0] % slots
        next_slot[0] += 1
    _work, _cells = work, cells
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()
    _journal = Journal(Path(directory), every_s=_WRITE_EVERY_S)


def _follow(parent: int) -> None:
    """End this process when the driver is no more; a pool's workers would wait for ever.

    Meanwhile, write the results that wait behind a long run.
    """
    while os.getppid() == parent:
        time.sleep(_WRITE_EVERY_S)
        if _journal is not None:
            with contextlib.suppress(OSError):  # the next record fails with it
                _journal.flush()
    os._exit(1)


def _stopped() -> bool:
    return _cells[0] != 0.0


def _simulate_chunk(jobs: Sequence[tuple[int, Job]]) -> tuple[list[tuple[str, str]], float]:
    """Simulate and journal; return how each run ended, and the time that it took in all."""
    assert _work is not None
    assert _journal is not None
    ended = []
    begin = time.perf_counter()
    for number, job in jobs:
        if _stopped():
            raise execute.Stopped
        at = 1 + 3 * _slot
        _cells[at : at + 3] = [time.monotonic(), float(number), float(os.getpid())]
        try:
            record = execute.simulate(_work, job, _stopped)
            _journal.append(record)
        except execute.Stopped:
            _journal.flush()
            raise
        finally:
            _cells[at] = 0.0
        ended.append((job.run_id, status_of(record)))
    _journal.flush()
    return ended, time.perf_counter() - begin


class LocalBackend:
    """Simulates in as many processes as there are CPUs, or as told.

    A worker that is killed costs the run that it had, which is tried again alone; when it is
    killed then too, that is the run's result. A run far beyond its time limit is killed.
    """

    def __init__(
        self, work: Work, journals: Path, *, processes: int = 0, lock_descriptor: int = -1
    ) -> None:
        self._work = work
        self._journals = journals
        self._processes = processes or os.cpu_count() or 1
        self._lock_descriptor = lock_descriptor
        # Forked, so that a worker starts at once and a script needs no guarded main module. What
        # has threads (polars, rich) is never used in a worker.
        self._context = multiprocessing.get_context("fork")
        self._cells = self._context.Array("d", 1 + 3 * self._processes, lock=False)
        self._executor: ProcessPoolExecutor | None = None
        self._own = Journal(journals, "driver-")
        self._overdue: set[str] = set()

    def __enter__(self) -> LocalBackend:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._cells[0] = 1.0
        self._close_pool()
        self._own.close()

    def _close_pool(self) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)
            self._executor = None

    def _pool(self, processes: int) -> ProcessPoolExecutor:
        if self._executor is None:
            self._cells[1:] = [0.0] * (3 * self._processes)
            arguments: Any = (
                self._work, str(self._journals), self._cells, self._processes, os.getpid(),
                self._lock_descriptor, self._context.Array("q", 1),
            )  # fmt: skip
            self._executor = ProcessPoolExecutor(processes, self._context, _start_worker, arguments)
        return self._executor

    def run(self, jobs: Sequence[Job], done: Done) -> None:
        """Simulate all jobs; when it returns, every one of them has a record in the journal.

        Raises:
            OSError: a record cannot be written.
        """
        numbers = {job.run_id: number for number, job in enumerate(jobs)}
        chunks = Chunks(jobs, self._processes)
        while chunks:
            left = self._run_pool(chunks, numbers, self._processes, done)
            # A process was killed. What it may have been working on is tried alone.
            for job in self._suspects(left, chunks, done):
                self._run_alone(job, numbers, done)
            self._close_pool()

    def _run_pool(
        self, chunks: Chunks, numbers: dict[str, int], processes: int, done: Done
    ) -> list[tuple[Job, ...]]:
        """Work until nothing is left, or a worker is killed; return the chunks in flight then."""
        flying: dict[Future[tuple[list[tuple[str, str]], float]], tuple[Job, ...]] = {}
        broken: list[tuple[Job, ...]] = []
        while (chunks and not broken) or flying:
            while chunks and not broken and len(flying) < 2 * processes:
                chunk = chunks.take()
                try:
                    numbered = [(numbers[job.run_id], job) for job in chunk]
                    future = self._pool(processes).submit(_simulate_chunk, numbered)
                except BrokenProcessPool:
                    broken.append(chunk)
                else:
                    flying[future] = chunk
            ended, _ = wait(flying, timeout=0.5, return_when=FIRST_COMPLETED)
            for future in ended:
                chunk = flying.pop(future)
                try:
                    statuses, seconds = future.result()
                except BrokenProcessPool:
                    broken.append(chunk)
                    continue
                chunks.observe(len(chunk), seconds)
                done(statuses)
            if not ended:
                self._kill_overdue(numbers)
        return broken

    def _suspects(self, left: Sequence[tuple[Job, ...]], chunks: Chunks, done: Done) -> list[Job]:
        """Sort what was in flight: finished, perhaps being simulated, not begun yet."""
        self._close_pool()
        if not left:
            return []
        finished = {record.run_id: record.status for record in scan(self._journals)}
        suspects = []
        for chunk in left:
            done([(j.run_id, finished[j.run_id]) for j in chunk if j.run_id in finished])
            rest = [job for job in chunk if job.run_id not in finished]
            suspects += rest[:1]
            chunks.give_back(rest[1:])
        return suspects

    def _run_alone(self, job: Job, numbers: dict[str, int], done: Done) -> None:
        for _ in range(_ATTEMPTS):
            if job.run_id in self._overdue:
                break
            if not self._run_pool(Chunks([job], 1), numbers, 1, done):
                return
            self._close_pool()
        record = {"run_id": job.run_id, "status": "killed", "error": "its process was killed"}
        if job.run_id in self._overdue:
            limit = f"took longer than the limit of {self._work.time_limit_s:g} s; killed"
            record |= {"status": "time_limit", "error": limit}
        self._own.append(encoded({**record, "result": None}))
        self._own.flush()
        done([(job.run_id, record["status"])])

    def _kill_overdue(self, numbers: dict[str, int]) -> None:
        limit = self._work.time_limit_s
        if not limit:
            return
        for slot in range(self._processes):
            since, number, pid = self._cells[1 + 3 * slot : 4 + 3 * slot]
            if since and time.monotonic() - since > 1.5 * limit + _GRACE_S:
                by_number = {index: run_id for run_id, index in numbers.items()}
                self._overdue.add(by_number[int(number)])
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
