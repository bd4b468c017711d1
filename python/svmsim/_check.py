"""The conformance suite: `sv.check` and what it returns."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from svmsim import _core


@dataclass(frozen=True)
class CaseResult:
    """How one case went."""

    name: str
    source: str
    """Where the expectation comes from."""
    rule: str
    """The rule that decides."""
    file: str
    line: int
    passed: bool
    expected: dict[str, str] = field(default_factory=dict)
    """Of a failed case: what differs, field by field."""
    seen: dict[str, str] = field(default_factory=dict)
    trace: list[str] = field(default_factory=list)
    """Of a failed case: what happened, a line for each step."""

    def __str__(self) -> str:
        if self.passed:
            return f"passed {self.name}"
        lines = [f"FAILED {self.name} ({self.file}:{self.line})"]
        lines += [f"  source: {self.source}", f"  rule:   {self.rule}"]
        width = max((len(name) for name in self.expected), default=0)
        lines += [
            f"  {name:{width}}  expected {value}, seen {self.seen[name]}"
            for name, value in self.expected.items()
        ]
        lines += [f"    {line}" for line in self.trace]
        return "\n".join(lines)


@dataclass(frozen=True)
class CheckResult:
    """How a suite went; true when all cases passed."""

    results: list[CaseResult]
    data: dict[str, Any] = field(repr=False)

    @property
    def cases(self) -> int:
        """How many cases ran."""
        return len(self.results)

    @property
    def passed(self) -> int:
        """How many did as expected."""
        return sum(result.passed for result in self.results)

    @property
    def failed(self) -> int:
        """How many did not."""
        return self.cases - self.passed

    @property
    def failures(self) -> list[CaseResult]:
        """The cases that failed."""
        return [result for result in self.results if not result.passed]

    def __bool__(self) -> bool:
        return self.failed == 0

    def __str__(self) -> str:
        cases = "case" if self.cases == 1 else "cases"
        return f"{self.cases} {cases}: {self.passed} passed, {self.failed} failed"

    def to_json(self) -> str:
        """Return the JSON object that `svmsim check --json` writes."""
        return json.dumps(self.data, indent=2, ensure_ascii=False) + "\n"


def _paths(files: Iterable[str | os.PathLike[str]] | str | os.PathLike[str] | None) -> list[str]:
    if files is None:
        return []
    if isinstance(files, (str, os.PathLike)):
        return [str(Path(files))]
    return [str(Path(file)) for file in files]


def check(
    cases: Iterable[str | os.PathLike[str]]
    | str
    | os.PathLike[str]
    | Mapping[str, Any]
    | None = None,
    *,
    filter: str = "",  # noqa: A002 - the name of the command's option
) -> CheckResult:
    """Run conformance cases.

    Args:
        cases: File names, or the contents of a file as a dict (``{"case": [...]}``); by default
            the built-in suite.
        filter: A glob that the names of the cases must match.

    Raises:
        CaseError: a file cannot be read, something in it is wrong, or the filter matches nothing.
    """
    if isinstance(cases, Mapping):
        text = _core.check([], dict(cases), filter)
    else:
        text = _core.check(_paths(cases), None, filter)
    data = json.loads(text)
    return CheckResult([CaseResult(**item) for item in data["results"]], data)


def list_cases(
    cases: Iterable[str | os.PathLike[str]] | str | os.PathLike[str] | None = None,
    *,
    filter: str = "",  # noqa: A002
) -> list[dict[str, Any]]:
    """Return name, source, rule, file and line of the cases, without running them.

    Raises:
        CaseError: as for `check`.
    """
    items: list[dict[str, Any]] = json.loads(_core.list_cases(_paths(cases), filter))
    return items
