"""The command `validate`; see _commands.py for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from svmsim._commands import (
    STATUS_CHECK_FAILED,
    JsonOption,
    SetOption,
    _check_outputs,
    _print,
    _write_json,
    _write_out,
    app,
)
from svmsim._files import make_directory, write_text


def complete_item(incomplete: str) -> list[str]:
    """Return the items of `validate` that begin so, for the shell."""
    from svmsim.validation import published_items

    before, comma, last = incomplete.rpartition(",")
    names = dict.fromkeys(
        name for item in published_items().values() for name in (item.row.id, item.id)
    )
    return [f"{before}{comma}{name}" for name in names if name.startswith(last)]


@app.command()
def validate(
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--only",
            metavar="ID,...",
            help="Rows (C-05) or items (C-05.ratio); default: all.",
            autocompletion=complete_item,
        ),
    ] = None,
    set_: SetOption = None,
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Directory for the table and every result.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option("-o", "--page", metavar="FILE", help="Write the table as a page of the docs."),
    ] = None,
    json_: JsonOption = None,
) -> None:
    """Simulate every published measurement: published beside simulated, with a verdict.

    Status 1 when an exact count or a sign does not hold, or more than a fifth of the ratios.
    """
    from svmsim.validation import validate as run_validation

    ids = [name.strip() for text in only or [] for name in text.split(",") if name.strip()]
    if out is not None:
        make_directory(out)
    _check_outputs(json_, page)
    outcome = run_validation(ids, overrides=list(set_ or []), progress=True)
    if page is not None:
        write_text(page, outcome.to_markdown())
    files = outcome.save(out) if out is not None else []
    _write_json(json_, outcome.to_json())
    if json_ != "-":
        _print(outcome)
        for file in [*([page] if page is not None else []), *files]:
            _write_out(f"wrote {file}\n")
    if not outcome.holds:
        raise typer.Exit(STATUS_CHECK_FAILED)
