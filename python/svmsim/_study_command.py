"""`svmsim study`: published experiments repeated."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from svmsim._commands import (
    STATUS_CHECK_FAILED,
    JsonOption,
    _check_outputs,
    _print,
    _write_json,
    _write_out,
    app,
)
from svmsim._files import make_directory
from svmsim.errors import UserError, problem


class Study(StrEnum):
    """Published experiments that svmsim repeats."""

    idle_hlt = "idle-hlt"
    ipi = "ipi"
    halt_polling = "halt-polling"
    hlt_exits = "hlt-exits"
    nested = "nested"


@app.command()
def study(
    name: Annotated[Study, typer.Argument(help="The experiment.")],
    out: Annotated[Path, typer.Option(help="Directory for tables, frames and pictures.")],
    json_: JsonOption = None,
    full: Annotated[
        bool, typer.Option("--full", help="ipi: every fan-out up to 255 instead of a part.")
    ] = False,
    quick: Annotated[
        bool, typer.Option("--quick", help="halt-polling, hlt-exits: shorter runs, a small sweep.")
    ] = False,
) -> None:
    """Repeat a published experiment: published beside simulated, with a verdict."""
    from svmsim.studies import halt_polling, hlt_exits, idle_hlt, ipi, nested

    make_directory(out)
    _check_outputs(json_)
    if full and name is not Study.ipi:
        raise UserError([problem("only the ipi study has a full grid", path="--full")])
    if quick and name not in (Study.halt_polling, Study.hlt_exits):
        text = "only the studies halt-polling and hlt-exits have a short form"
        raise UserError([problem(text, path="--quick")])
    outcome: (
        idle_hlt.Outcome | ipi.Outcome | halt_polling.Outcome | hlt_exits.Outcome | nested.Outcome
    )
    if name is Study.ipi:
        outcome = ipi.study(progress=True, full=full)
    elif name is Study.halt_polling:
        outcome = halt_polling.study(progress=True, quick=quick)
    elif name is Study.hlt_exits:
        outcome = hlt_exits.study(progress=True, quick=quick)
    elif name is Study.nested:
        outcome = nested.study(progress=True)
    else:
        outcome = idle_hlt.study(progress=True)
    files = outcome.save(out)
    _write_json(json_, outcome.to_json())
    if json_ != "-":
        _print(outcome)
        for file in files:
            _write_out(f"wrote {file}\n")
    if not outcome.holds:
        raise typer.Exit(STATUS_CHECK_FAILED)
