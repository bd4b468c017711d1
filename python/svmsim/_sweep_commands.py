"""Commands for campaigns; see _commands.py for the others."""

from __future__ import annotations

import contextlib
import json
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
from svmsim.errors import UserError, problem

if TYPE_CHECKING:
    from svmsim.analysis.sensitivity import Effect
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


def _results_at(context: typer.Context) -> ResultTable | None:
    """Return the results that an unfinished command line names, if it does."""
    from svmsim._directory import load_results

    words = [context.params.get("before"), *context.args]
    for word in words:
        if word:
            with contextlib.suppress(UserError):
                return load_results(Path(word))
    return None


def complete_metric(context: typer.Context, incomplete: str) -> list[str]:
    """Return the metrics of the results that the command line names, or those of all results."""
    from svmsim.table.metrics import common_metrics

    results = _results_at(context)
    names = results.metrics() if results is not None else common_metrics()
    return [name for name in names if name.startswith(incomplete)]


def complete_swept(context: typer.Context, incomplete: str) -> list[str]:
    """Return the swept parameters of the results that the command line names."""
    results = _results_at(context)
    names = results.sweep if results is not None else ()
    return [name for name in names if name.startswith(incomplete)]


@app.command()
def compare(
    before: Annotated[
        Path, typer.Argument(metavar="A", help="A campaign's directory, or a result of run --json.")
    ],
    after: Annotated[
        Path | None, typer.Argument(metavar="[B]", help="What A is compared with.")
    ] = None,
    key: Annotated[
        str | None,
        typer.Option(
            "--key",
            help="Without B: the swept parameter whose values are compared.",
            autocompletion=complete_swept,
        ),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="With --key: the value that others are compared with.")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(
            "--metric",
            "-m",
            metavar="NAME",
            help="What to compare: exits.hlt.count.",
            autocompletion=complete_metric,
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with status 1 when anything got worse.")
    ] = False,
    json_: JsonOption = None,
) -> None:
    """Compare two campaigns or results, or the values of a swept parameter, with intervals.

    Runs are paired by their seed and everything else that was swept.
    """
    from svmsim._directory import load_results
    from svmsim.analysis.comparison import compare_tables

    inputs = [before] if after is None else [before, after]
    _check_outputs(json_, inputs=[path for path in inputs if not path.is_dir()])
    first = load_results(before)
    if after is None:
        value: object = baseline
        if baseline is not None:
            value = _as_swept(first, key or "", baseline)
        found = first.compare(key, metric, baseline=value)
    else:
        given = {"--key": key, "--baseline": baseline}
        wrong = [name for name, value in given.items() if value is not None]
        if wrong:
            text = "compares the values of a parameter within A: leave B out"
            raise UserError([problem(text, path=name) for name in wrong])
        found = compare_tables(first, load_results(after), metric)
    _write_json(json_, found.to_json())
    if json_ != "-":
        _print(found)
    if strict and found.worse:
        raise typer.Exit(STATUS_CHECK_FAILED)


def _as_swept(table: ResultTable, key: str, text: str) -> object:
    """Return the value of a swept parameter that is written so."""
    from svmsim._render import value_text

    if key not in table.sweep:
        return text
    values = table.runs.select(key).unique(maintain_order=True).collect()[key].to_list()
    fitting = [value for value in values if text in (value_text(value), str(value))]
    return fitting[0] if fitting else text


class Method(StrEnum):
    """How sensitivity is found out."""

    tornado = "tornado"
    sobol = "sobol"


@app.command()
def sensitivity(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A TOML file.")],
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            "-m",
            metavar="NAME",
            help="What depends.",
            autocompletion=complete_metric,
        ),
    ],
    method: Annotated[
        Method, typer.Option(help="One parameter at a time, or indices of all at once.")
    ] = Method.tornado,
    parameters: Annotated[
        list[str] | None,
        typer.Option(
            "--parameter", "-p", metavar="KEY", help="Key or pattern; default: host.cost.*"
        ),
    ] = None,
    spread: Annotated[
        float, typer.Option(help="How far to vary each one, as a share of its value.")
    ] = 0.2,
    samples: Annotated[int, typer.Option(help="sobol: a power of two.")] = 64,
    effect: Annotated[
        str | None,
        typer.Option(
            metavar="KEY=OLD,NEW", help="Judge the change of the metric between two values."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Directory that keeps the runs.")] = None,
    set_: SetOption = None,
    json_: JsonOption = None,
) -> None:
    """Show which parameters a metric, or a conclusion, depends on: assumed costs above all."""
    from svmsim.analysis import sensitivity as analysis
    from svmsim.scenario import Scenario

    base = Scenario.load(scenario, list(set_ or []))
    _check_outputs(json_, inputs=[scenario])
    chosen = list(parameters or [analysis.COSTS])
    options: dict[str, Any] = {"spread": spread, "effect": _effect(effect), "out": out}
    if method is Method.tornado:
        found = analysis.tornado(base, metric, chosen, **options)
    else:
        found = analysis.sobol(base, metric, chosen, samples=samples, **options)
    _write_json(json_, found.to_json())
    if json_ != "-":
        _print(found)


def _effect(text: str | None) -> Effect | None:
    """Return what `--effect kvm.idle_hlt=false,true` means.

    Raises:
        UserError: it is no key with two TOML values.
    """
    import tomllib

    from svmsim.analysis.sensitivity import Effect

    if text is None:
        return None
    key, _, values = text.partition("=")
    try:
        old, new = tomllib.loads(f"values = [{values}]")["values"]
    except (tomllib.TOMLDecodeError, ValueError):
        message = "expected a key and two TOML values: kvm.idle_hlt=false,true"
        raise UserError([problem(message, path="--effect")]) from None
    return Effect(key.strip(), old, new)
