"""How far a campaign is: a bar on a terminal, JSON lines for machines, otherwise nothing."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["CampaignProgress", "Mode"]

Mode = Literal["auto", "json", "none"]
_EVERY_S = 1.0
_DELAY_S = 0.5


class CampaignProgress:
    """Counts finished runs and shows rate and time left on standard error."""

    def __init__(self, label: str, mode: Mode) -> None:
        terminal = sys.stderr is not None and sys.stderr.isatty()
        self._mode: Mode = "none" if mode == "auto" and not terminal else mode
        self._label = label
        self._total = 0
        self._before = 0
        self._done = 0
        self._failed = 0
        self._begin = time.monotonic()
        self._shown = 0.0
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> CampaignProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        elif self._mode == "json":
            self._line()

    def expect(self, total: int, before: int, failed_before: int = 0) -> None:
        """Say how many runs there are, and how many were there before this began."""
        if self._total == 0:
            self._before, self._failed = before, failed_before
            self._done = before
        self._total = total
        self._show()

    def add(self, done: int, failed: int) -> None:
        """Count finished runs, and how many of them failed."""
        self._done += done
        self._failed += failed
        self._show()

    def interrupted(self) -> None:
        """Say what an interrupted campaign has, and what becomes of it."""
        text = f"{self._label}: interrupted with {self._done:,} of {self._total:,} runs finished"
        if self._bar is not None:
            self._bar.stop()
        with contextlib.suppress(OSError, ValueError):
            print(f"{text}; the same command goes on", file=sys.stderr, flush=True)

    def state(self) -> dict[str, Any]:
        """Return the numbers."""
        elapsed = time.monotonic() - self._begin
        here = self._done - self._before
        rate = here / elapsed if elapsed > 0 else 0.0
        left = self._total - self._done
        return {
            "done": self._done,
            "total": self._total,
            "failed": self._failed,
            "before": self._before,
            "elapsed_s": round(elapsed, 3),
            "rate_per_s": round(rate, 3),
            "eta_s": round(left / rate, 1) if rate > 0 else None,
        }

    def _show(self) -> None:
        now = time.monotonic()
        if self._mode == "json" and now - self._shown >= _EVERY_S:
            self._shown = now
            self._line()
        elif self._mode == "auto":
            self._draw(now)

    def _line(self) -> None:
        try:
            print(json.dumps(self.state()), file=sys.stderr, flush=True)
        except (OSError, ValueError):
            self._mode = "none"

    def _draw(self, now: float) -> None:
        if self._bar is None:
            if now - self._begin < _DELAY_S:
                return
            self._start()
        if self._bar is not None and self._task is not None:
            state = self.state()
            self._bar.update(
                self._task,
                total=self._total,
                completed=self._done,
                rate=f"{state['rate_per_s']:,.1f} runs/s",
                failed=f", {self._failed} failed" if self._failed else "",
            )

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

        self._bar = Progress(
            "{task.description}",
            BarColumn(),
            MofNCompleteColumn(),
            "{task.fields[rate]}{task.fields[failed]}",
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(self._label, total=None, rate="", failed="")
        self._bar.start()
