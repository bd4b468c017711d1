"""The directory of a campaign: its lock, its journal, and the tables made from it."""

from __future__ import annotations

import contextlib
import fcntl
import gc
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from svmsim import _core
from svmsim._files import make_directory, write_text
from svmsim.campaign.execute import EVENTS_SUFFIX
from svmsim.campaign.identity import build
from svmsim.campaign.journal import Record, RecordReader, scan
from svmsim.campaign.plan import Configuration, PlannedRun
from svmsim.errors import UserError, problem
from svmsim.table.rows import STATUSES, TableBuilder
from svmsim.table.schema import SCHEMA
from svmsim.table.table import (
    ABOUT_FILE,
    EVENTS_DIRECTORY,
    JOURNAL_DIRECTORY,
    NEW_TABLES_DIRECTORY,
    TABLES_DIRECTORY,
)

__all__ = ["AGAIN", "CampaignDirectory"]

LOCK_FILE = ".lock"
PART_DIRECTORY = ".tables.part"
AGAIN = ("time_limit", "killed")
"""How runs ended that say nothing of the simulation."""
DIFFERS = "timing"
"""The table that is another one whenever a campaign runs."""


class CampaignDirectory:
    """A campaign's directory while the campaign works in it; nobody else may meanwhile."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.journals = path / JOURNAL_DIRECTORY
        self.events = path / EVENTS_DIRECTORY
        self._lock = -1

    @property
    def lock_descriptor(self) -> int:
        """The open lock file, which forked processes have to close."""
        return self._lock

    def __enter__(self) -> CampaignDirectory:
        make_directory(self.path)
        self._lock = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            owner = os.pread(self._lock, 200, 0).decode(errors="replace").strip()
            os.close(self._lock)
            self._lock = -1
            text = f"another campaign works in this directory ({owner or 'just begun'})"
            raise UserError([problem(text, source=str(self.path))]) from None
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        self.journals.mkdir(exist_ok=True)
        self._finish_tables()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._lock)
        self._lock = -1

    def check_owner(self, name: str) -> None:
        """Refuse a directory that holds a campaign of another name.

        Raises:
            UserError: it does.
        """
        other = self.about().get("name", name)
        if other != name:
            text = f"holds the results of another campaign, {other}; {name} needs another directory"
            raise UserError([problem(text, source=str(self.path))])

    def about(self) -> dict[str, Any]:
        """Return what campaign.json says; empty when there is none that can be read."""
        try:
            about = json.loads((self.path / ABOUT_FILE).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return about if isinstance(about, dict) else {}

    def finished(self, *, again: bool, events: bool) -> dict[str, Record]:
        """Return the finished runs by run_id.

        Of several records the one that says most counts. With `again` runs that were killed or
        took too long do not count, with `events` those without events neither.
        """
        rank = {status: place for place, status in enumerate(STATUSES)}
        found: dict[str, Record] = {}
        for record in scan(self.journals):
            old = found.get(record.run_id)
            if old is None or rank.get(record.status, 9) < rank.get(old.status, 9):
                found[record.run_id] = record
        if again:
            found = {name: r for name, r in found.items() if r.status not in AGAIN}
        if events:
            found = {n: r for n, r in found.items() if r.status != "ok" or self._has_events(n)}
        return found

    def _has_events(self, run_id: str) -> bool:
        suffixes = (".parquet", EVENTS_SUFFIX)
        return any((self.events / f"{run_id}{suffix}").is_file() for suffix in suffixes)

    def write_tables(
        self,
        configurations: Sequence[Configuration],
        runs: Sequence[PlannedRun],
        found: Mapping[str, Record],
        about: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Make the tables of the runs that are finished, and campaign.json; return the latter.

        A reader sees the old tables or the new ones, and after a kill the next call goes on.

        Raises:
            OSError: they cannot be written.
        """
        counts = dict.fromkeys(STATUSES, 0)
        plan = hashlib.sha256()
        for run in runs:
            record = found.get(run.run_id)
            plan.update(f"{run.run_id} {record.status if record else ''}\n".encode())
            if record is not None:
                counts[record.status] += 1
        plan.update(json.dumps([dict(c.swept) for c in configurations], default=str).encode())
        said = {
            "schema": SCHEMA,
            **about,
            "version": _core.version(),
            "build": build(),
            "complete": sum(counts.values()) == len(runs),
            "runs": {"planned": len(runs), **counts},
            "plan": plan.hexdigest(),
        }
        if self._is_current(said):
            return self.about()
        part = self.path / PART_DIRECTORY
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        with _no_garbage_search():
            frames = _collected(configurations, runs, found).frames()
        sizes = {}
        for name, frame in frames.items():
            file = part / f"{name}.parquet"
            frame.rechunk().write_parquet(file, compression="zstd", compression_level=1)
            if name != DIFFERS:
                sizes[name] = file.stat().st_size
        new = self.path / NEW_TABLES_DIRECTORY
        shutil.rmtree(new, ignore_errors=True)
        part.rename(new)
        said["tables"] = sizes
        write_text(self.path / ABOUT_FILE, json.dumps(said, indent=2, ensure_ascii=False) + "\n")
        self._finish_tables()
        return said

    def _is_current(self, said: Mapping[str, Any]) -> bool:
        old = self.about()
        sizes = old.get("tables")
        if not isinstance(sizes, dict) or {**old, "tables": None} != {**said, "tables": None}:
            return False
        directory = self.path / TABLES_DIRECTORY
        files = {name: directory / f"{name}.parquet" for name in (*sizes, DIFFERS)}
        if not all(file.is_file() for file in files.values()):
            return False
        return all(files[name].stat().st_size == size for name, size in sizes.items())

    def _finish_tables(self) -> None:
        """Put whole new tables in the place of the old ones; also after a kill in between."""
        shutil.rmtree(self.path / PART_DIRECTORY, ignore_errors=True)
        new = self.path / NEW_TABLES_DIRECTORY
        if new.is_dir():
            shutil.rmtree(self.path / TABLES_DIRECTORY, ignore_errors=True)
            new.rename(self.path / TABLES_DIRECTORY)

    def convert_events(self, runs: Sequence[PlannedRun]) -> None:
        """Turn what workers left into Parquet, a file for each run; drop what a kill left."""
        if not self.events.is_dir():
            return
        scenarios = {run.run_id: run.configuration.resolved for run in runs}
        for left in self.events.glob(".*"):
            left.unlink()
        for file in sorted(self.events.glob(f"*{EVENTS_SUFFIX}")):
            from svmsim.campaign.events import events_frame, load_columns

            if file.stem in scenarios:
                frame = events_frame(load_columns(file), json.loads(scenarios[file.stem]))
                part = self.events / f".{file.stem}"
                frame.write_parquet(part, compression="zstd", compression_level=1)
                part.replace(file.with_suffix(".parquet"))
            file.unlink()


@contextlib.contextmanager
def _no_garbage_search() -> Iterator[None]:
    """Spare Python the search for cycles among millions of tuples that have none."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _collected(
    configurations: Sequence[Configuration],
    runs: Sequence[PlannedRun],
    found: Mapping[str, Record],
) -> TableBuilder:
    swept = list(configurations[0].swept) if configurations else []
    builder = TableBuilder(swept)
    for configuration in configurations:
        builder.add_configuration(
            configuration.number,
            {
                "label": configuration.label,
                "scenario": configuration.resolved,
                "inputs": json.dumps(dict(configuration.inputs)),
                "swept": configuration.swept,
            },
        )
    version, own_build = _core.version(), build()
    reader = RecordReader()
    for number, run in enumerate(runs):
        record = found.get(run.run_id)
        if record is None:
            continue
        about = {
            "run": number,
            "run_id": run.run_id,
            "configuration": run.configuration.number,
            "seed": run.seed,
            "version": version,
            "build": own_build,
        }
        builder.add_run(about, run.configuration.swept, reader.read(record))
    return builder


def collected_metric(
    metric: str,
    configurations: Sequence[Configuration],
    runs: Sequence[PlannedRun],
    found: Mapping[str, Record],
) -> dict[int, list[float]]:
    """Return the values of a metric by configuration.

    Raises:
        UserError: there is no such metric.
    """
    from svmsim.table.metrics import metric_values

    frames = _collected(configurations, runs, found).frames()
    values = metric_values(metric, lambda name: frames[name].lazy())
    joined = values.join(frames["runs"].select("run", "configuration"), on="run")
    result: dict[int, list[float]] = {}
    for configuration, value in joined.sort("run").select("configuration", "value").iter_rows():
        result.setdefault(configuration, []).append(value)
    return result
