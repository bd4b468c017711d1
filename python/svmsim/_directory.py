"""Results that were written before: a campaign's directory, or files of `svmsim run --json`."""

from __future__ import annotations

import re
from pathlib import Path

from svmsim._files import unreadable
from svmsim.errors import UserError, problem
from svmsim.result import Result
from svmsim.table import ResultTable
from svmsim.table.table import ABOUT_FILE

__all__ = ["load_results"]


def load_results(path: Path) -> ResultTable:
    """Return the results of a directory or of a single file.

    A directory is a campaign's, or holds files NAME.json, of which those that are results are
    taken, labelled by their names. What `svmsim study` wrote has them in `runs/`.

    Raises:
        UserError: there are none, or one is damaged.
    """
    if not path.is_dir():
        reason = unreadable(path)
        if reason is not None:
            raise UserError([problem(f"cannot be read: {reason}", source=str(path))])
        return ResultTable.of({path.stem: Result.load(path)}, name=path.stem)
    if (path / ABOUT_FILE).exists():
        return ResultTable.load(path)
    for place in (path, path / "runs"):
        files = sorted(place.glob("*.json"), key=_natural) if place.is_dir() else []
        found = {file.stem: Result.load(file) for file in files if _is_result(file)}
        if found:
            return _table(found, path.resolve().name)
    text = "holds neither a campaign (campaign.json) nor results (NAME.json of run --json)"
    raise UserError([problem(text, source=str(path))])


def _table(found: dict[str, Result], name: str) -> ResultTable:
    """Tell results apart by what differs in their scenarios, or else by their names."""
    table = ResultTable.of(found.values(), name=name)
    if table.runs.select("seed", *table.sweep).collect().is_unique().all():
        return table
    return ResultTable.of(found, name=name)


def _natural(file: Path) -> list[tuple[int, str]]:
    """Order names as people do: `poll-50` stands before `poll-200`."""
    parts = re.split(r"(\d+)", file.stem)
    return [(int(part), "") if part.isdigit() else (0, part) for part in parts]


def _is_result(file: Path) -> bool:
    """Whether a file looks like a result, damaged or not, and not like other JSON."""
    try:
        with file.open("rb") as stream:
            return b'"schema"' in stream.read(200)
    except OSError:
        return True  # the complaint names it
