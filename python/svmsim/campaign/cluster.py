"""The Dask backend: workers of a LocalCluster, or of any cluster that has a Dask scheduler."""

from __future__ import annotations

import importlib
import os
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from svmsim.campaign import execute
from svmsim.campaign.chunks import Chunks
from svmsim.campaign.execute import Job, Work
from svmsim.campaign.journal import Journal, encoded, scan, status_of
from svmsim.errors import UserError, problem

__all__ = ["DaskBackend"]

Done = Callable[[Sequence[tuple[str, str]]], None]
_CONNECT_S = 10.0

_one_at_a_time = threading.Lock()


def simulate_chunk(
    work: Work, journals: str, key: str, jobs: Sequence[Job]
) -> tuple[list[bytes], list[tuple[str, str]], float]:
    """Simulate in a Dask worker; return the records, or, with `journals`, how the runs ended.

    With `journals` records go there at once, and what an attempt that was killed has left of this
    chunk is not repeated.
    """
    execute.check_build(work.build)
    records: list[bytes] = []
    ended: list[tuple[str, str]] = []
    finished: dict[str, str] = {}
    directory = Path(journals)
    if journals:
        finished = {r.run_id: r.status for r in scan(directory, f"{key}-")}
    with _one_at_a_time, Journal(directory, f"{key}-") as journal:  # a worker may have threads
        begin = time.perf_counter()
        for job in jobs:
            if job.run_id in finished:
                ended.append((job.run_id, finished[job.run_id]))
                continue
            record = execute.simulate(work, job)
            if journals:
                journal.append(record)
            else:
                records.append(record)
            ended.append((job.run_id, status_of(record)))
        return records, ended, time.perf_counter() - begin


class DaskBackend:
    """Simulates in the workers of a Dask scheduler, or of a LocalCluster when none is named.

    Dask gives the runs of a worker that dies to another one. A run that takes down several
    workers is that run's result.
    """

    def __init__(
        self,
        work: Work,
        journals: Path,
        *,
        scheduler: str | Any | None = None,
        processes: int = 0,
        shared: bool = False,
    ) -> None:
        self._work = work
        self._journals = journals
        self._scheduler = scheduler
        self._processes = processes or os.cpu_count() or 1
        self._shared = shared
        self._own = Journal(journals, "driver-")
        self._client: Any = None
        self._cluster: Any = None

    def __enter__(self) -> DaskBackend:
        try:
            distributed = importlib.import_module("distributed")
        except ImportError:
            text = "needs Dask: pip install svmsim[cluster]"
            raise UserError([problem(text, path="--backend dask")]) from None
        if self._scheduler is None:
            self._cluster = distributed.LocalCluster(
                n_workers=self._processes,
                threads_per_worker=1,
                processes=True,
                dashboard_address=None,
            )
            self._client = distributed.Client(self._cluster)
        elif isinstance(self._scheduler, str):
            try:
                self._client = distributed.Client(self._scheduler, timeout=_CONNECT_S)
            except (OSError, ValueError) as error:
                text = f"no Dask scheduler answers there: {error}"
                raise UserError([problem(text, source=self._scheduler)]) from None
        else:  # a cluster object, or a client
            self._client = distributed.Client(self._scheduler)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._own.close()
        if self._client is not None:
            self._client.close()
        if self._cluster is not None:
            self._cluster.close()

    def run(self, jobs: Sequence[Job], done: Done) -> None:
        """Simulate all jobs; when it returns, every one of them has a record in the journal.

        Raises:
            OSError: a record cannot be written.
            UserError: a worker has another build of svmsim, or the scheduler is gone.
        """
        distributed = importlib.import_module("distributed")
        threads = max(1, sum(self._client.nthreads().values()))
        chunks = Chunks(jobs, threads)
        flying = distributed.as_completed(with_results=False)
        sent: dict[str, tuple[Job, ...]] = {}
        alone: list[Job] = []
        try:
            while chunks or alone or sent:
                while (chunks or alone) and len(sent) < 2 * threads:
                    chunk = (alone.pop(),) if alone else chunks.take()
                    future = self._submit(chunk)
                    sent[future.key] = chunk
                    flying.add(future)
                future = next(flying)
                chunk = sent.pop(future.key)
                try:
                    records, ended, seconds = future.result()
                except distributed.KilledWorker:
                    if len(chunk) > 1:
                        alone += chunk
                    else:
                        self._killed(chunk[0], done)
                    continue
                for record in records:
                    self._own.append(record)
                self._own.flush()
                chunks.observe(len(chunk), seconds)
                done(ended)
                threads = max(threads, sum(self._client.nthreads().values()))
        except (distributed.comm.CommClosedError, TimeoutError) as error:
            text = f"the Dask scheduler is gone: {error}"
            raise UserError([problem(text, source=str(self._scheduler or "dask"))]) from None
        finally:
            flying.clear()

    def _submit(self, chunk: tuple[Job, ...]) -> Any:
        key = f"svmsim-{uuid.uuid4().hex[:16]}"
        directory = str(self._journals.resolve()) if self._shared else ""
        return self._client.submit(
            simulate_chunk, self._work, directory, key, chunk, key=key, pure=False
        )

    def _killed(self, job: Job, done: Done) -> None:
        record = {"run_id": job.run_id, "status": "killed", "error": "its workers were killed"}
        self._own.append(encoded({**record, "result": None}))
        self._own.flush()
        done([(job.run_id, "killed")])
