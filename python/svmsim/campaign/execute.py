"""What a worker does, in whatever process or on whatever machine: simulate runs, one by one."""

from __future__ import annotations

import functools
import json
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from svmsim import _core
from svmsim.campaign.identity import build
from svmsim.errors import InternalError, UserError, printable

__all__ = ["Job", "Stopped", "Work", "check_build", "forget_process", "simulate"]

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


class Job(NamedTuple):
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

    columns: dict[str, Any] | None = {} if work.events_dir else None
    status, error_text, result = "ok", "null", "null"
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
        result = _one_line(text)
    except _TimeLimitError:
        limit = f"took longer than the limit of {work.time_limit_s:g} s"
        status, error_text = "time_limit", json.dumps(limit)
    except (UserError, InternalError, RuntimeError, MemoryError) as error:
        kind = "" if isinstance(error, UserError) else f"{type(error).__name__}: "
        status, error_text = "failed", json.dumps(printable(f"{kind}{error}"))
    elapsed = time.perf_counter() - begin
    return (
        f'{{"run_id":"{job.run_id}","status":"{status}","error":{error_text},'
        f'"elapsed_s":{elapsed:.6f},{_worker()},"result":{result}}}'
    ).encode()


@functools.cache
def _worker() -> str:
    """Return who simulates, as a part of a record."""
    return f'"host":{json.dumps(socket.gethostname())},"pid":{os.getpid()}'


def forget_process() -> None:
    """Forget which process this is; for one that was forked from another."""
    _worker.cache_clear()


_SCENARIO = '  "scenario": {'
_BEHIND_SCENARIO = '\n  "sim_time_ns": '


def _one_line(text: str) -> str:
    """Return a result's JSON on one line and without the scenario, which the campaign has.

    Cutting the text costs a tenth of reading and writing it; texts in JSON have no newlines.
    """
    begin, end = text.find(_SCENARIO), text.find(_BEHIND_SCENARIO)
    if not 0 < begin < end or text.find(_BEHIND_SCENARIO, end + 1) >= 0:
        result = orjson.loads(text)
        del result["scenario"]
        return orjson.dumps(result).decode()
    return f"{text[:begin]}{text[end:]}".replace("\n", "")


def _keep_events(directory: Path, run_id: str, columns: Mapping[str, Any]) -> None:
    """Leave the events where the driver finds them; a killed worker leaves no half of them."""
    from svmsim.campaign.events import save_columns

    part = directory / f".{run_id}.{socket.gethostname()}-{os.getpid()}"
    try:
        save_columns(part, columns)
        part.replace(directory / f"{run_id}{EVENTS_SUFFIX}")
    finally:
        part.unlink(missing_ok=True)
