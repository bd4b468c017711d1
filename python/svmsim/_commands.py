"""The commands of `svmsim`; see cli.py for how they end."""

from __future__ import annotations

import difflib
import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from svmsim import _core
from svmsim._files import (
    check_output,
    make_directory,
    nearest_file,
    same_file,
    unreadable,
    write_text,
)
from svmsim.errors import Problem, TraceError, UserError, printable, problem
from svmsim.scenario import Scenario

STATUS_CHECK_FAILED = 1
STATUS_USER_ERROR = 2

app = typer.Typer(
    name="svmsim",
    help="Cycle-level simulator of AMD SVM virtualization under KVM.",
    epilog="Exit status: 0 success, 1 a check, verdict or comparison failed, 2 the input is wrong,"
    " 3 a bug of svmsim.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def complete_setting(incomplete: str) -> list[str]:
    """Return what `--set` can go on with, for the shell: keys, and the values of choices."""
    key, equals, value = incomplete.partition("=")
    described = json.loads(_core.describe())
    parameters = {item["path"]: item for item in [*described["parameters"], *described["knobs"]]}
    if not equals:
        return [f"{path}=" for path in parameters if path.startswith(key)]
    about = parameters.get(key, {"type": "", "choices": []})
    choices = ["true", "false"] if about["type"] == "boolean" else about["choices"]
    texts = [str(choice) for choice in choices]
    return [f"{key}={text}" for text in texts if text.startswith(value)]


def complete_topic(incomplete: str) -> list[str]:
    """Return what `describe` can go on with, for the shell."""
    topics = {name: _records(items) for name, items in json.loads(_core.describe()).items()}
    names = [*topics, "hlt", "results"]
    names += [_name(record) for records in topics.values() for record in records]
    return sorted({name for name in names if name.startswith(incomplete)})


SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override one parameter; a TOML value.",
        autocompletion=complete_setting,
    ),
]
JsonOption = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Write JSON; - is standard output.")
]
TraceOption = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        metavar="FILE",
        help="Write the events: ftrace's text, perf script's (.perf), or trace.dat (.dat).",
    ),
]
FormatOption = Annotated[
    str | None,
    typer.Option(
        "--trace-format", metavar="NAME", help="ftrace, perf or dat, whatever the name's suffix."
    ),
]
CaptureOption = Annotated[
    int,
    typer.Option(
        "--capture", min=0, max=1_000_000, help="Which capture of a file with several, from 1."
    ),
]


def _write_out(text: str) -> None:
    """Write to standard output.

    Raises:
        UserError: it is closed or cannot be written to.
    """
    _check_standard_output()
    try:
        try:
            sys.stdout.write(text)
        except UnicodeEncodeError as error:  # a terminal that is not UTF-8
            sys.stdout.write(text.encode(error.encoding, "replace").decode(error.encoding))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        text = f"cannot be written: {reason.lower()}"
        raise UserError([problem(text, source="standard output")]) from None


def _check_standard_output() -> None:
    if sys.stdout is None:  # what Python makes of a closed one
        raise UserError([problem("cannot be written: it is closed", source="standard output")])


def _print(*renderables: Any) -> None:
    from svmsim._render import rendered

    _check_standard_output()
    _write_out(rendered(*renderables))


def _write_json(target: str | None, text: str) -> None:
    if target == "-":
        _write_out(text)
    elif target is not None:
        write_text(Path(target), text)


def _check_outputs(
    json_target: str | None, *paths: Path | None, inputs: Iterable[Path] = ()
) -> None:
    """Find out before the work whether its results can be written, and destroy no input.

    Raises:
        UserError: an output cannot be written, is an input, or is the same file as another output.
    """
    _check_standard_output()
    wanted = [path for path in paths if path is not None]
    if json_target is not None and json_target != "-":
        wanted.append(Path(json_target))
    problems: list[Problem] = []
    for index, path in enumerate(wanted):
        try:
            check_output(path)
        except UserError as error:
            problems += error.problems
            continue
        if any(same_file(path, other) for other in inputs):
            problems.append(problem("cannot be written: it is an input", source=str(path)))
        elif any(same_file(path, other) for other in wanted[:index]):
            text = "cannot be written: another output goes into the same file"
            problems.append(problem(text, source=str(path)))
    if problems:
        raise UserError(problems)


def _indented(data: Any) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False) + "\n"


@app.command()
def run(
    scenario: Annotated[Path, typer.Argument(metavar="SCENARIO", help="A TOML file.")],
    set_: SetOption = None,
    trace: TraceOption = None,
    trace_format: FormatOption = None,
    markers: Annotated[
        bool,
        typer.Option(
            "--markers",
            help="Record with --trace what leaves no exit, too (svmsim_guest events).",
        ),
    ] = False,
    perf_table: Annotated[
        str,
        typer.Option(
            "--perf-table",
            metavar="LAYOUT",
            help="Of the exit table: wide, classic (perf to 6.3) or columns (6.4 and later).",
        ),
    ] = "wide",
    perfetto: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a timeline for ui.perfetto.dev."),
    ] = None,
    vcd: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write waveforms of pCPUs and vCPUs (VCD); slower."),
    ] = None,
    json_: JsonOption = None,
    seed: Annotated[int | None, typer.Option(help="Short for --set run.seed=SEED.")] = None,
) -> None:
    """Simulate one scenario and print its exit table."""
    overrides = list(set_ or [])
    if seed is not None:
        overrides.append(f"run.seed={seed}")
    loaded = Scenario.load(scenario, overrides)
    _check_outputs(json_, trace, perfetto, vcd, inputs=[scenario, *loaded.files()])
    if trace is None and (markers or trace_format is not None):
        name = "--markers" if markers else "--trace-format"
        raise UserError([problem("needs --trace, which says where to write", path=name)])
    _core.perf_table('{"exits": {}}', perf_table)  # an unknown layout is told before the work
    result = loaded.run(
        trace=trace,
        trace_format=trace_format or "",
        markers=markers,
        perfetto=perfetto,
        vcd=vcd,
        progress=True,
    )
    _write_json(json_, result.to_json())
    if json_ != "-":
        from svmsim._render import perf_text, result_view

        _write_out(perf_text(result, perf_table) + "\n")  # as it is, to be compared with perf's
        _print(result_view(result))
    if result.failure:
        typer.echo(printable(f"the workload failed: {result.failure}"), err=True)
        raise typer.Exit(STATUS_CHECK_FAILED)


@app.command()
def plot(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Of a campaign, or with files of run --json.")
    ],
    out: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where to; default: DIR/plots.")
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option("--format", metavar="NAME", help="png, svg, pdf; default: all."),
    ] = None,
) -> None:
    """Draw the pictures that results give by themselves, as PNG, SVG and PDF."""
    from svmsim._directory import load_results

    results = load_results(directory)
    names = tuple(dict.fromkeys(formats or _FORMATS))
    wrong = [name for name in names if name not in _FORMATS]
    if wrong:
        close = difflib.get_close_matches(wrong[0], _FORMATS, n=1)
        text = f"{wrong[0]}: is no format of pictures, which are {', '.join(_FORMATS)}"
        raise UserError([problem(text, path="--format", nearest=close[0] if close else "")])
    beside = directory if directory.is_dir() else directory.parent
    target = make_directory(out if out is not None else beside / "plots")
    from svmsim._pictures import save_pictures

    for file in save_pictures(results, target, names):
        _write_out(f"wrote {file}\n")


_FORMATS = ("png", "svg", "pdf")


@app.command()
def report(
    directory: Annotated[
        Path, typer.Argument(metavar="DIR", help="Of a campaign, or with files of run --json.")
    ],
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="The page; default: DIR/report.html."),
    ] = None,
) -> None:
    """Write one HTML page that answers the question: verdict, tables, pictures, what got worse."""
    from svmsim._directory import load_results

    results = load_results(directory)
    beside = directory if directory.is_dir() else directory.parent
    target = out if out is not None else beside / "report.html"
    _check_outputs(None, target)
    from svmsim.report import write_report

    write_report(results, target)
    _write_out(f"wrote {target}\n")


@app.command("import")
def import_(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE...", help="Recordings of KVM; several trace.dat are merged."),
    ],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="The workload file.")
    ] = None,
    capture: CaptureOption = 0,
    window: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--window",
            metavar="FROM TO",
            help="Only what each vCPU did between two events, given as 'event:text'.",
        ),
    ] = None,
    from_: Annotated[
        str | None,
        typer.Option("--from", metavar="POINT", help="The first event: seconds, or line:N."),
    ] = None,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="POINT", help="The first event that counts no more."),
    ] = None,
    isa: Annotated[
        str | None,
        typer.Option("--isa", metavar="ISA", help="Of bare exit numbers: svm or vmx."),
    ] = None,
    convert: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the trace again: text, as perf script prints it (.perf), trace.dat (.dat).",
        ),
    ] = None,
    trace_format: FormatOption = None,
    json_: JsonOption = None,
) -> None:
    """Report what a trace or table holds; with -o turn the trace into a workload."""
    for trace in traces:
        _check_input(trace)
    _check_outputs(json_, output, convert, inputs=traces)
    options: dict[str, str] = {}
    if window is not None:
        options |= {"window_from": window[0], "window_to": window[1]}
    for name, value in (("from", from_), ("to", to), ("isa", isa)):
        if value is not None:
            options[name] = value
    paths = [str(trace) for trace in traces]
    text = _core.import_trace(paths, str(output or ""), capture, json.dumps(options))
    if convert is not None:
        _core.convert_trace(paths, str(convert), trace_format or "", capture)
    report = json.loads(text)
    _write_json(json_, _indented(report))
    if json_ != "-":
        from svmsim._import_view import import_view

        _print(*import_view(report))
    if report["refused"] is not None:
        raise TraceError([problem(str(report["refused"]), source=paths[0])])
    _fail_on_problems(report, workload=output)


def _check_input(path: Path) -> None:
    reason = unreadable(path)
    if reason is not None:
        text = f"cannot be read: {reason}"
        raise TraceError([problem(text, source=str(path), nearest=nearest_file(path))])
    if not path.is_dir() and not path.is_file():
        text = "cannot be read: is no regular file, and a trace is read more than once"
        raise TraceError([problem(text, source=str(path))])


def _fail_on_problems(report: Mapping[str, Any], workload: Path | None = None) -> None:
    """Name the lines that could not be read; what could be read has been dealt with.

    Raises:
        typer.Exit: there are such lines.
    """
    problems = report.get("problems", [])
    if not problems:
        return
    for text in problems:
        typer.echo(printable(text), err=True)
    count = max(report.get("problem_count", 0), len(problems))
    more = count - len(problems)
    if more > 0:
        typer.echo(printable(f"{report['source']}: {more} more lines cannot be read"), err=True)
    if workload is not None:
        lines = "line" if count == 1 else "lines"
        text = f"{workload}: the workload is incomplete: {count} {lines} of the trace left out"
        typer.echo(printable(text), err=True)
    raise typer.Exit(STATUS_USER_ERROR)


@app.command()
def replay(
    trace: Annotated[
        Path, typer.Argument(metavar="TRACE", help="A trace, or a workload that import wrote.")
    ],
    set_: SetOption = None,
    capture: CaptureOption = 0,
    out_trace: TraceOption = None,
    json_: JsonOption = None,
) -> None:
    """Replay a trace as recorded and, with --set, under other settings; exits side by side."""
    _check_input(trace)
    _check_outputs(json_, out_trace, inputs=[trace])
    text = _core.replay(str(trace), capture, list(set_ or []), str(out_trace or ""))
    report = json.loads(text)
    _write_json(json_, _indented(report))
    if json_ != "-":
        _print_replay(report)
    _fail_on_problems(report)
    if not report["fidelity"].get("counts_equal", True):
        raise typer.Exit(STATUS_CHECK_FAILED)


@app.command()
def diagnose(
    traces: Annotated[
        list[Path],
        typer.Argument(metavar="TRACE...", help="Recordings or tables of KVM, of any kind."),
    ],
    capture: CaptureOption = 0,
    isa: Annotated[
        str | None,
        typer.Option("--isa", metavar="ISA", help="Of bare exit numbers: svm or vmx."),
    ] = None,
    json_: JsonOption = None,
) -> None:
    """Say what a recording or table shows: what dominates, why a host is busy, what to replay."""
    from svmsim.diagnosis import diagnose as judge

    for trace in traces:
        _check_input(trace)
    _check_outputs(json_, inputs=traces)
    outcome = judge(traces, capture=capture, isa=isa or "")
    _write_json(json_, outcome.to_json())
    if json_ != "-":
        from svmsim.diagnosis.view import diagnosis_view

        _print(*diagnosis_view(outcome))
    if outcome.refused is not None:
        raise TraceError([problem(outcome.refused, source=str(traces[0]))])


def _exit_counts(part: Mapping[str, Any] | None) -> dict[str, int] | None:
    if part is None:
        return None
    exits = part.get("exits", part)
    return {name: e["count"] if isinstance(e, Mapping) else e for name, e in exits.items()}


def _print_replay(report: Mapping[str, Any]) -> None:
    from svmsim._render import counts_table, value_text

    columns = {
        "recorded": _exit_counts(report["recorded"]),
        "as recorded": _exit_counts(report["as_recorded"]),
        "changed": _exit_counts(report["changed"]),
    }
    title = report["capture"] or Path(report["source"]).name
    _print(counts_table(str(title), columns, change=columns["changed"] is not None), "")
    fidelity = report["fidelity"]  # empty for a workload, which has no exits to compare with
    if fidelity:
        counts, order = (fidelity[name] for name in ("counts_equal", "order_equal"))
        _print(
            "Replayed as recorded: "
            f"{'the' if counts else 'NOT the'} recorded counts, "
            f"{'in the' if order else 'NOT in the'} recorded order."
        )
    for item in report["undecidable"]:
        _print(f"Undecidable: {value_text(item)}")


@app.command()
def check(
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE]...", help="TOML files; default: the built-in suite."),
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="Name the cases, run none.")] = False,
    filter_: Annotated[
        str, typer.Option("--filter", metavar="GLOB", help="Only cases whose name matches.")
    ] = "",
    json_: JsonOption = None,
) -> None:
    """Run conformance cases of SVM: the built-in suite or your own."""
    from svmsim._check import check as run_cases
    from svmsim._check import list_cases

    paths = list(files or [])
    _check_outputs(json_, inputs=paths)
    if list_:
        items = list_cases(paths, filter=filter_)
        _write_json(json_, _indented({"cases": len(items), "list": items}))
        if json_ != "-":
            lines = [printable(f"{item['name']}  [{item['source']}]") for item in items]
            _write_out("".join(line + "\n" for line in lines))
        return
    outcome = run_cases(paths, filter=filter_)
    _write_json(json_, outcome.to_json())
    if json_ != "-":
        for failure in outcome.failures:
            _write_out(printable(str(failure)) + "\n\n")
        _write_out(f"{outcome}\n")
    if not outcome:
        raise typer.Exit(STATUS_CHECK_FAILED)


@app.command()
def describe(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[TOPIC|NAME]", help="What to describe.", autocompletion=complete_topic
        ),
    ] = None,
    json_: JsonOption = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of a scenario.")
    ] = False,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="FILE", help="hlt, results: write Markdown."),
    ] = None,
) -> None:
    """Describe every parameter, statistic, exit code, knob, profile, program and event.

    `describe hlt` is a table of when HLT exits, made by running it in every setting; `describe
    results` says what the tables of a campaign hold.
    """
    _check_outputs(json_, output)
    if schema:
        _write_json(json_ or "-", _indented(json.loads(_core.json_schema())))
        return
    if name == "hlt":
        _describe_hlt(json_, output)
        return
    if name == "results":
        _describe_results(json_, output)
        return
    if output is not None:
        raise UserError(
            [problem("only describe hlt and describe results are written", path="--output")]
        )
    name = _OTHER_TOPIC_NAMES.get(name or "", name)
    topics = {topic: _records(items) for topic, items in json.loads(_core.describe()).items()}
    if name is None:
        chosen = topics
    else:
        chosen = {name: topics[name]} if name in topics else _named(topics, name)
    _write_json(json_, _indented(chosen))
    if json_ == "-":
        return
    if name is None:
        _print_topics(topics)
        return
    from svmsim._render import record_view, records_table

    for topic, records in chosen.items():
        if name in topics:
            _print(records_table(topic, records))
            continue
        for record in records:
            _print(record_view(f"{topic}: {_name(record)}", record), "")


_OTHER_TOPIC_NAMES = {"exits": "exit_codes"}


def _describe_hlt(json_target: str | None, output: Path | None) -> None:
    from svmsim._hlt import hlt_markdown, hlt_table, hlt_view

    table = hlt_table()
    _write_json(json_target, _indented(table))
    if output is not None:
        write_text(output, hlt_markdown(table))
    elif json_target != "-":
        _print(hlt_view(table))


def _describe_results(json_target: str | None, output: Path | None) -> None:
    from dataclasses import asdict

    from svmsim._render import records_table
    from svmsim.table.document import results_markdown
    from svmsim.table.schema import table_schemas

    tables = {name: asdict(schema) for name, schema in table_schemas().items()}
    _write_json(json_target, _indented(tables))
    if output is not None:
        write_text(output, results_markdown())
    elif json_target != "-":
        for name, schema in tables.items():
            _print(records_table(f"{name}: {schema['row']}", list(schema["columns"])), "")


def _records(items: Any) -> list[dict[str, Any]]:
    """A topic as records with a name, whether it came as a list or by name."""
    if isinstance(items, Mapping):
        return [
            {"name": key, **value} if isinstance(value, Mapping) else {"name": key, "value": value}
            for key, value in items.items()
        ]
    return [dict(item) if isinstance(item, Mapping) else {"name": item} for item in items]


def _name(record: Mapping[str, Any]) -> str:
    """What a record is called; a parameter by its full key."""
    return str(record.get("name", record.get("path", "")))


def _named(
    topics: Mapping[str, Iterable[dict[str, Any]]], name: str
) -> dict[str, list[dict[str, Any]]]:
    """What has this name in any topic, or has it as the last part of its name.

    Raises:
        UserError: nothing has.
    """
    found = {
        topic: [r for r in records if name in (_name(r), _name(r).rpartition(".")[2])]
        for topic, records in topics.items()
    }
    found = {topic: records for topic, records in found.items() if records}
    if found:
        return found
    names = [*topics, *(_name(record) for records in topics.values() for record in records)]
    names += [full.rpartition(".")[2] for full in names]
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    text = "neither a topic nor the name of anything that svmsim knows"
    raise UserError([problem(text, path=name, nearest=close[0] if close else "")])


def _print_topics(topics: Mapping[str, list[dict[str, Any]]]) -> None:
    from svmsim._render import table, titled

    rows = table(["topic", "entries"])
    for topic, records in topics.items():
        rows.add_row(topic, str(len(records)))
    _print(titled("Topics; `svmsim describe TOPIC` shows one", rows))


vmcb_app = typer.Typer(help="Look into VMCBs.", no_args_is_help=True)
app.add_typer(vmcb_app, name="vmcb")


@vmcb_app.callback()
def _vmcb() -> None:
    """Look into VMCBs."""


@vmcb_app.command()
def explain(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A 4 KiB VMCB page, or a log with KVM's dump.")
    ],
    json_: JsonOption = None,
    features: Annotated[
        list[str] | None,
        typer.Option(
            "--features", metavar="NAMES", help="The processor's features: np,vgif,… or -vnmi."
        ),
    ] = None,
    profile: Annotated[
        str | None, typer.Option(metavar="NAME", help="Take the features of this host profile.")
    ] = None,
    dump: Annotated[
        int | None, typer.Option(min=1, max=1_000_000, help="Which dump of a log, from 1.")
    ] = None,
    address_bits: Annotated[
        int | None,
        typer.Option(min=32, max=52, help="Width of the processor's physical addresses."),
    ] = None,
) -> None:
    """Decode a VMCB and name each violated rule of VMRUN and each suspicious setting.

    Exit status 1 when a rule is violated.
    """
    from svmsim._vmcb import explain_vmcb, report_view

    _check_outputs(json_, inputs=[file])
    names = [name.strip() for text in features or [] for name in text.split(",") if name.strip()]
    report = explain_vmcb(
        file, dump=dump, features=names, profile=profile, physical_address_bits=address_bits
    )
    _write_json(json_, _indented(report))
    if json_ != "-":
        _print(report_view(report))
    if not report["legal"]:
        raise typer.Exit(STATUS_CHECK_FAILED)


def _version(value: bool) -> None:
    if value:
        _write_out(f"svmsim {_core.version()}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    del version
