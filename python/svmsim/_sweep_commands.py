"""Commands for campaigns; see _commands.py for the others."""

from __future__ import annotations

import json
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from svmsim.errors import UserError, problem

if TYPE_CHECKING:
    from svmsim.campaign import Campaign
    from svmsim.table import ResultTable


class Backend(StrEnum):
    """Where a campaign's runs are simulated."""

    local = "local"
    dask = "dask"


class Store(StrEnum):
    """How results come from Dask's workers."""

    returned = "return"
    shared = "shared"


class ProgressMode(StrEnum):
    """How a campaign shows how far it is."""

    auto = "auto"
    json = "json"
    none = "none"


@app.command()
def sweep(
    campaign: Annotated[Path, typer.Argument(metavar="CAMPAIGN", help="A TOML file.")],
    out: Annotated[Path, typer.Option(help="Directory for the results.")],
    backend: Annotated[
        Backend, typer.Option(help="Processes of this machine, or a Dask cluster.")
    ] = Backend.local,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Dask's scheduler; default: a cluster made here."),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Repeat what took too long or was killed, too."),
    ] = False,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", min=0, help="Processes; default: one for each CPU.")
    ] = 0,
    store: Annotated[
        Store, typer.Option(help="Dask: workers return results, or write to the shared directory.")
    ] = Store.returned,
    progress: Annotated[
        ProgressMode, typer.Option(help="On standard error: a bar on a terminal, JSON lines.")
    ] = ProgressMode.auto,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the file and list the configurations only.")
    ] = False,
    json_: JsonOption = None,
) -> None:
    """Run a campaign: every configuration of a sweep, with paired seeds.

    An interrupted campaign goes on where it was; finished runs are never repeated.
    """
    from svmsim.campaign import Campaign

    if scheduler is not None and backend is not Backend.dask:
        text = "only the backend dask has a scheduler"
        raise UserError([problem(text, path="--scheduler", nearest="--backend dask")])
    loaded = Campaign.load(campaign)
    _check_outputs(json_, inputs=[campaign])
    if dry_run:
        _write_json(json_, json.dumps(_plan(loaded), indent=2, ensure_ascii=False) + "\n")
        if json_ != "-":
            _print(_plan_view(loaded))
        return
    begin = time.monotonic()
    table = loaded.run(
        out,
        backend.value,
        scheduler=scheduler,
        processes=jobs,
        store=store.value,
        resume=resume,
        progress=progress.value,
    )
    elapsed = time.monotonic() - begin
    failures = table.failures
    summary = {
        "campaign": loaded.name,
        "out": str(out),
        "elapsed_s": round(elapsed, 3),
        "configurations": len(loaded.configurations),
        "runs": table.about["runs"],
        "failures": failures.to_dicts(),
    }
    _write_json(json_, json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    if json_ != "-":
        from svmsim.table.view import table_view

        _print(table_view(table))
        _write_out(f"wrote {out} in {elapsed:.1f} s\n")
    if not failures.is_empty():
        raise typer.Exit(STATUS_CHECK_FAILED)


def _plan(campaign: Campaign) -> dict[str, Any]:
    return {
        "campaign": campaign.name,
        "runs": len(campaign),
        "seeds": campaign.seeds,
        "configurations": [
            {"configuration": c.number, "label": c.label, **c.swept}
            for c in campaign.configurations
        ],
    }


def _plan_view(campaign: Campaign) -> Any:
    from svmsim._render import table, titled, value_text

    rows = table(["configuration", *campaign.sweep], left=len(campaign.sweep) + 1)
    for configuration in campaign.configurations:
        values = (value_text(configuration.swept.get(name)) for name in campaign.sweep)
        rows.add_row(str(configuration.number), *values)
    seeds = len(campaign.seeds)
    title = f"{campaign.name}: {len(campaign.configurations)} configurations, {seeds} seeds"
    return titled(f"{title}, {len(campaign)} runs", rows)


def _load_results(path: Path) -> ResultTable:
    """Open a campaign's directory, or a result file of `svmsim run --json`.

    Raises:
        UserError: it is neither.
    """
    from svmsim.result import Result
    from svmsim.table import ResultTable

    if path.is_dir():
        return ResultTable.load(path)
    return ResultTable.of([Result.load(path)], name=path.stem)
