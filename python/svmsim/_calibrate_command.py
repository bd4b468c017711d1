"""The command `calibrate`; see _commands.py for the others."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from svmsim._commands import (
    JsonOption,
    SetOption,
    _check_outputs,
    _print,
    _write_json,
    _write_out,
    app,
)
from svmsim.errors import UserError, printable, problem


def _file(text: str) -> Path:
    """The file of ``WORKLOAD:FILE``."""
    path = Path(text)
    before, colon, after = text.partition(":")
    return path if not colon or not before or path.exists() else Path(after)


def _events(text: str | None) -> list[str]:
    from svmsim.calibration import PERF_EVENTS

    if text is None or text == "perf":
        return list(PERF_EVENTS)
    if text == "none":
        return []
    return [name.strip() for name in text.split(",") if name.strip()]


@app.command()
def calibrate(
    profile: Annotated[
        str, typer.Option(metavar="NAME", help="The profile to start from, or its file.")
    ],
    from_: Annotated[
        list[str],
        typer.Option(
            "--from",
            metavar="FILE",
            help="Tables of `perf kvm stat report`, results of vmexit, or both; WORKLOAD:FILE "
            "names the guest of a table (a built-in program, or a scenario).",
        ),
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="FILE", help="The new profile.")
    ],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE]...", help="More such files.")
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COST[=CYCLES]", help="A cost that is known: keep the profile's value, or this."
        ),
    ] = None,
    recorded: Annotated[
        str | None,
        typer.Option(
            metavar="EVENTS",
            help="Recorded while the tables were made: perf (default), none, or a list a,b,…",
        ),
    ] = None,
    tsc_hz: Annotated[
        int,
        typer.Option(
            min=0, max=10_000_000_000, help="TSC frequency of the host; default: the profile's."
        ),
    ] = 0,
    error: Annotated[
        float,
        typer.Option(
            min=0.0, max=100.0, metavar="PERCENT", help="Standard error of every measurement."
        ),
    ] = 0.0,
    plot: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Draw predicted against measured (png, svg, pdf)."),
    ] = None,
    set_: SetOption = None,
    json_: JsonOption = None,
) -> None:
    """Fit the costs of a profile to measurements of your own host.

    Says which costs the measurements identify, which only in a sum, and which stay assumed. Exit
    status 2 when they identify none.
    """
    from svmsim.calibration import calibrate as fit

    inputs = [*from_, *(more or [])]
    _check_outputs(json_, output, plot, inputs=[_file(text) for text in inputs])
    if plot is not None and plot.suffix not in {".png", ".svg", ".pdf"}:
        text = "is no picture that can be drawn: .png, .svg or .pdf"
        raise UserError([problem(text, source=str(plot))])
    result = fit(
        profile,
        inputs,
        keep=keep or [],
        recorded=_events(recorded),
        overrides=list(set_ or []),
        tsc_hz=tsc_hz,
        error_pct=error,
        name=output.stem,
    )
    result.save(output)
    if plot is not None:
        from svmsim.plot import save

        save(result.plot().figure, plot.with_suffix(""), [plot.suffix[1:]])
    _write_json(json_, result.to_json())
    if json_ != "-":
        from svmsim._calibration_view import calibration_view

        _print(*calibration_view(result.to_dict()))
        _write_out(printable(f'\nwrote {output}; use it as host.profile = "{output}"') + "\n")
