"""`svmsim workload`: what can be made of a workload file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from svmsim import _core
from svmsim._commands import (
    JsonOption,
    _check_input,
    _check_outputs,
    _indented,
    _print,
    _write_json,
    app,
)

workload_app = typer.Typer(help="Look into workload files, and change them.", no_args_is_help=True)
app.add_typer(workload_app, name="workload")

FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="A workload file.")]
OutputOption = Annotated[
    Path,
    typer.Option("-o", "--output", metavar="FILE", help="The new file; .gz and .zst are packed."),
]


def _adapt(
    files: list[Path], output: Path | None, operation: Mapping[str, Any], json_target: str | None
) -> None:
    for file in files:
        _check_input(file)
    _check_outputs(json_target, output, inputs=files)
    paths = [str(file) for file in files]
    summary = json.loads(_core.adapt_workload(paths, str(output or ""), json.dumps(operation)))
    _write_json(json_target, _indented(summary))
    if json_target != "-":
        _print(*_view(summary))


def _view(summary: Mapping[str, Any]) -> list[Any]:
    from svmsim._render import facts_view, table

    names = ("source", "title", "kernel", "tsc_hz", "time", "idle_hlt")
    view: list[Any] = [facts_view({name: summary[name] for name in names}), ""]
    rows = table(["vCPU", "items", "guest work, us", "interrupts", "host", "opaque", "most often"])
    for vcpu in summary["vcpus"]:
        actions = {name: n for name, n in vcpu["actions"].items() if name != "compute"}
        most = sorted(actions.items(), key=lambda item: (-item[1], item[0]))[:3]
        rows.add_row(
            f"vm{vcpu['vm']}/{vcpu['vcpu']}",
            f"{vcpu['items']:,}",
            f"{vcpu['guest_work_ns'] / 1000:,.3f}",
            f"{sum(vcpu['interrupts'].values()):,}",
            f"{vcpu['host_interrupts']:,}",
            f"{vcpu['opaque']:,}",
            ", ".join(f"{name} {count:,}" for name, count in most),
        )
    view.append(rows)
    return view


@workload_app.command()
def show(file: FileArgument, json_: JsonOption = None) -> None:
    """Say what a workload holds, vCPU by vCPU."""
    _adapt([file], None, {"do": "show"}, json_)


@workload_app.command()
def repeat(
    file: FileArgument,
    times: Annotated[
        int, typer.Argument(metavar="N", min=1, max=1_000_000_000, help="How often, in all.")
    ],
    output: OutputOption,
    json_: JsonOption = None,
) -> None:
    """Do the same work several times, one after the other."""
    _adapt([file], output, {"do": "repeat", "times": times}, json_)


@workload_app.command()
def scale(
    file: FileArgument,
    factor: Annotated[
        float, typer.Argument(metavar="FACTOR", min=0.0, help="2 = the guests are half as fast.")
    ],
    output: OutputOption,
    json_: JsonOption = None,
) -> None:
    """Make guest work take longer or shorter; what the host does stays as it is."""
    _adapt([file], output, {"do": "scale", "factor": factor}, json_)


@workload_app.command("slice")
def slice_(
    file: FileArgument,
    output: OutputOption,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="POINT", help="line:N of the recording, or 10ms of work."),
    ] = None,
    to: Annotated[
        str | None, typer.Option("--to", metavar="POINT", help="Likewise; not kept itself.")
    ] = None,
    vm: Annotated[int | None, typer.Option(min=0, help="Only this VM.")] = None,
    vcpu: Annotated[int | None, typer.Option(min=0, help="Only this vCPU of each VM.")] = None,
    json_: JsonOption = None,
) -> None:
    """Keep a part: some of the time, one VM, one vCPU."""
    options = {"do": "slice", "from": from_, "to": to, "vm": vm, "vcpu": vcpu}
    operation = {name: value for name, value in options.items() if value is not None}
    _adapt([file], output, operation, json_)


@workload_app.command()
def merge(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE...", help="Workload files of one kernel.")
    ],
    output: OutputOption,
    json_: JsonOption = None,
) -> None:
    """Put the VMs of several workloads beside each other on one host."""
    _adapt(files, output, {"do": "merge"}, json_)
