"""The two kinds of failure: a mistake of the user, and a bug of ours."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TypedDict

__all__ = [
    "CaseError",
    "InternalError",
    "Problem",
    "ScenarioError",
    "TraceError",
    "UserError",
    "VmcbError",
]


class Problem(TypedDict):
    """One thing that is wrong with an input; an empty string or line 0 means that it has none."""

    source: str
    """File name, ``<dict>`` or ``--set``."""
    line: int
    """1-based line in the source."""
    path: str
    """Full key path (``vm.vm0.pin``) or the name of the violated rule."""
    message: str
    """One sentence without a final full stop."""
    nearest: str
    """The nearest valid name or value."""


def problem(message: str, *, source: str = "", path: str = "", nearest: str = "") -> Problem:
    """Return a problem that was found on the Python side, which never knows a line."""
    return Problem(source=source, line=0, path=path, message=message, nearest=nearest)


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def printable(text: str) -> str:
    """Return `text` with control characters as escapes, but for newline and tab.

    So that no file name or value of the user steers the terminal; a half of a surrogate pair, which
    stands for a byte that is not UTF-8, becomes an escape as well.
    """
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def problem_text(item: Problem) -> str:
    """Return ``file:line: path: message (did you mean nearest?)``, leaving out what is empty.

    It is safe to print: control characters are escapes.
    """
    text = ""
    if item["source"]:
        text = f"{item['source']}:{item['line']}: " if item["line"] else f"{item['source']}: "
    if item["path"]:
        text += f"{item['path']}: "
    text += item["message"]
    if item["nearest"]:
        text += f" (did you mean {item['nearest']}?)"
    return printable(text)


class UserError(Exception):
    """The user's input is wrong. Carries every problem that was found, never only the first.

    The text has one line for each problem.
    """

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems: list[Problem] = list(problems)
        super().__init__(self.problems)

    def __str__(self) -> str:
        return "\n".join(problem_text(item) for item in self.problems)


class ScenarioError(UserError):
    """A scenario, or an override of one, is wrong."""


class TraceError(UserError):
    """A trace, or another recorded input, cannot be read."""


class CaseError(UserError):
    """A conformance case, or a field, action or setting named as in one, is wrong."""


class VmcbError(UserError):
    """A VMCB cannot be read."""


class InternalError(Exception):
    """A broken invariant of svmsim: a bug of ours. The text says which, with the state."""
