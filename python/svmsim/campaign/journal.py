"""The journal: finished runs, appended by whoever simulated them, one line each.

A line is the CRC-32 of a record in eight hex digits, a space, the record as JSON, a newline. A
writer has a file of its own, so that no two processes write into one. What was cut short, by a
kill or a full disk, fails its check and counts as never run.
"""

from __future__ import annotations

import mmap
import os
import socket
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

__all__ = [
    "Journal",
    "Record",
    "RecordReader",
    "decoded",
    "encoded",
    "read_record",
    "scan",
    "status_of",
]

SUFFIX = ".jsonl"
_HEAD = b'{"run_id":"'
_STATUS = b'","status":"'


def encoded(record: Mapping[str, Any]) -> bytes:
    """Return a record as it goes over a wire and into a journal; run_id and status come first."""
    return orjson.dumps(record)


class Journal:
    """Appends records to a new file of a directory. The file is made with the first record.

    With `every_s` records may wait in memory for the next one, as long as the last were written
    less than that ago; somebody has to call `flush` then, and another thread may.
    """

    def __init__(self, directory: Path, prefix: str = "", *, every_s: float = 0.0) -> None:
        name = f"{prefix}{socket.gethostname()}-{os.getpid()}-{time.time_ns():x}{SUFFIX}"
        self._path = directory / name
        self._descriptor = -1
        self._lines: list[bytes] = []
        self._written = 0.0
        self._every_s = every_s
        self._lock = threading.Lock()

    def append(self, record: bytes) -> None:
        """Write a record.

        Raises:
            OSError: it cannot be written (a full disk); then the file is as it was before.
        """
        self._lines.append(b"%08x %b\n" % (zlib.crc32(record), record))
        if time.monotonic() - self._written >= self._every_s:
            self.flush()

    def flush(self) -> None:
        """Write what `append` has held back.

        Raises:
            OSError: as for `append`.
        """
        with self._lock:
            if self._lines:
                self._write()

    def _write(self) -> None:
        content = b"".join(self._lines)
        if self._descriptor < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._descriptor = os.open(self._path, flags, 0o644)
        before = os.fstat(self._descriptor).st_size
        try:
            written = os.write(self._descriptor, content)
            if written != len(content):  # the next write says why
                os.write(self._descriptor, content[written:])
        except OSError:
            os.ftruncate(self._descriptor, before)
            raise
        del self._lines[: content.count(b"\n")]  # a record more may have come meanwhile
        self._written = time.monotonic()

    def close(self) -> None:
        """Bring what was written to the disk."""
        self.flush()
        if self._descriptor >= 0:
            os.fsync(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True, slots=True)
class Record:
    """Where a record stands in the journal, and how its run ended."""

    run_id: str
    status: str
    file: Path
    offset: int
    length: int


def scan(directory: Path, prefix: str = "") -> Iterator[Record]:
    """Give every whole record of a directory's journals, or of those whose names begin so.

    The order is that of file names.
    """
    if not directory.is_dir():
        return
    for file in sorted(directory.glob(f"{prefix}*{SUFFIX}")):
        content = file.read_bytes()
        at = 0
        while (end := content.find(b"\n", at)) >= 0:
            record = _checked(content, at, end)
            if record is not None:
                run_id, status = record
                yield Record(run_id, status, file, at + 9, end - at - 9)
            at = end + 1


def status_of(record: bytes) -> str:
    """Return how the run of an encoded record ended."""
    return record[:80].partition(_STATUS)[2].partition(b'"')[0].decode()


def _checked(content: bytes, begin: int, end: int) -> tuple[str, str] | None:
    payload = memoryview(content)[begin + 9 : end]
    try:
        if int(content[begin : begin + 8], 16) != zlib.crc32(payload):
            return None
    except ValueError:
        return None
    head = bytes(payload[:80])
    if not head.startswith(_HEAD):
        return None
    run_id, _, rest = head[len(_HEAD) :].partition(_STATUS)
    return run_id.decode(), rest.partition(b'"')[0].decode()


def read_record(record: Record) -> dict[str, Any]:
    """Read a record."""
    descriptor = os.open(record.file, os.O_RDONLY)
    try:
        return decoded(os.pread(descriptor, record.length, record.offset))
    finally:
        os.close(descriptor)


class RecordReader:
    """Reads many records; each file is opened once."""

    def __init__(self) -> None:
        self._files: dict[Path, mmap.mmap] = {}

    def read(self, record: Record) -> dict[str, Any]:
        """Read a record."""
        if record.file not in self._files:
            with record.file.open("rb") as file:
                self._files[record.file] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        content = self._files[record.file]
        return decoded(content[record.offset : record.offset + record.length])


def decoded(payload: bytes) -> dict[str, Any]:
    """Return the record that `encoded` wrote."""
    value = orjson.loads(payload)
    assert isinstance(value, dict)
    return value
