"""What a worker does, in whatever process or on whatever machine: simulate runs, one by one."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from svmsim import _core
from svmsim.campaign.identity import build
from svmsim.campaign.journal import encoded
from svmsim.errors import InternalError, UserError, printable

__all__ = ["Job", "Stopped", "Work", "simulate"]

EVENTS_SUFFIX = ".npz"


@dataclass(frozen=True, slots=True)
class Work:
    """What all runs of a campaign have in common; plain data, sent to each worker once."""

    sources: tuple[str, ...]
    """Scenarios as JSON."""
    base_dir: str
    """Files that they name are relative to it."""
    build: str
    time_limit_s: float
    """0 = none."""
    events_dir: str
    """Where each run leaves its events; empty = nowhere."""


@dataclass(frozen=True, slots=True)
class Job:
    """One run: a source of the work, and what is changed in it."""

    run_id: str
    source: int
    overrides: tuple[str, ...]


class Stopped(BaseException):
    """The campaign was asked to stop; the run leaves nothing."""


class _TimeLimitError(Exception):
    pass


def check_build(expected: str) -> None:
    """Refuse to work for a campaign of another build, whose results would be mixed with ours.

    Raises:
        UserError: this process has another build of svmsim.
    """
    if build() != expected:
        from svmsim.errors import problem

        text = f"has svmsim build {build()}, the campaign was begun by build {expected}"
        raise UserError([problem(text, source=f"worker on {socket.gethostname()}")])


def simulate(work: Work, job: Job, stop: Callable[[], bool] | None = None) -> bytes:
    """Simulate one run and return its record.

    A failure of the run is a record too. `stop` is asked now and then.

    Raises:
        Stopped: `stop` said so.
        OSError: the events cannot be written.
    """
    begin = time.perf_counter()
    deadline = begin + work.time_limit_s if work.time_limit_s else float("inf")

    def watch(_share: float) -> None:
        if stop is not None and stop():
            raise Stopped
        if time.perf_counter() > deadline:
            raise _TimeLimitError

    record = {"run_id": job.run_id, "status": "ok", "error": None}
    columns: dict[str, Any] | None = {} if work.events_dir else None
    result = None
    try:
        text = _core.run(
            work.sources[job.source],
            False,
            work.base_dir,
            list(job.overrides),
            progress=watch,
            events=columns,
        )
        if columns is not None:
            _keep_events(Path(work.events_dir), job.run_id, columns)
        result = orjson.loads(text)
        del result["scenario"]  # the campaign has it
    except _TimeLimitError:
        limit = f"took longer than the limit of {work.time_limit_s:g} s"
        record |= {"status": "time_limit", "error": limit}
    except (UserError, InternalError, RuntimeError, MemoryError) as error:
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        record |= {"status": "failed", "error": printable(f"{kind}{error}")}
    return encoded(
        {
            **record,
            "elapsed_s": round(time.perf_counter() - begin, 6),
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "result": result,
        }
    )


def _keep_events(directory: Path, run_id: str, columns: Mapping[str, Any]) -> None:
    """Leave the events where the driver finds them; a killed worker leaves no half of them."""
    from svmsim.campaign.events import save_columns

    part = directory / f".{run_id}.{socket.gethostname()}-{os.getpid()}"
    try:
        save_columns(part, columns)
        part.replace(directory / f"{run_id}{EVENTS_SUFFIX}")
    finally:
        part.unlink(missing_ok=True)
