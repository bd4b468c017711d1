"""A progress bar on standard error for work of more than two seconds; silent without a terminal."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_DELAY_S = 2.0


class ProgressBar:
    """Call it with the share of work done, 0 to 1, or -1 when nobody knows where the end is.

    It shows itself when the work turns out long.
    """

    def __init__(self, label: str, *, enabled: bool = True) -> None:
        self._label = label
        self._enabled = enabled and sys.stderr is not None and sys.stderr.isatty()
        self._begin = time.monotonic()
        self._bar: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> ProgressBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def __call__(self, share: float) -> None:
        """Show `share` of the work as done, once two seconds have passed."""
        if not self._enabled:
            return
        if self._bar is None or self._task is None:
            if time.monotonic() - self._begin < _DELAY_S:
                return
            self._start()
        if self._bar is not None and self._task is not None:
            known = share >= 0
            self._bar.update(
                self._task, completed=share if known else 0.0, total=1.0 if known else None
            )

    def _start(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            TaskProgressColumn,
            TimeElapsedColumn,
            TimeRemainingColumn,
        )

        self._bar = Progress(
            "{task.description}",
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task(self._label, total=None)
        self._bar.start()
