"""How many runs a worker gets at once: so many that handing them over costs little."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from svmsim.campaign.execute import Job

__all__ = ["Chunks"]

_CHUNK_S = 0.1
_MOST = 256


class Chunks:
    """Deals out jobs in order. Chunks take about a tenth of a second, and get small at the end."""

    def __init__(self, jobs: Iterable[Job], workers: int) -> None:
        self._jobs = deque(jobs)
        self._workers = max(1, workers)
        self._runs = 0
        self._seconds = 0.0

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def observe(self, runs: int, seconds: float) -> None:
        """Learn how long runs take in a worker."""
        self._runs += runs
        self._seconds += seconds

    def give_back(self, jobs: Iterable[Job]) -> None:
        """Put jobs at the front again."""
        self._jobs.extendleft(reversed(list(jobs)))

    def _size(self) -> int:
        if self._runs == 0:
            return 1
        mean_s = max(self._seconds / self._runs, 1e-6)
        fair = max(1, len(self._jobs) // (4 * self._workers))
        return max(1, min(int(_CHUNK_S / mean_s), fair, _MOST))

    def take(self) -> tuple[Job, ...]:
        """Return the next chunk."""
        count = min(self._size(), len(self._jobs))
        return tuple(self._jobs.popleft() for _ in range(count))

    def __iter__(self) -> Iterator[tuple[Job, ...]]:
        while self._jobs:
            yield self.take()
