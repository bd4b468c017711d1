"""Pages made of declarations: parameters, statistics, commands, what classes leave out."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

ROOMS = ("svm", "apic", "workloads", "model")
_LEFT_OUT = re.compile(r"(?:Left out:|Not modelled:|Leaves out)\s*(.*)", re.DOTALL)
_CLASS = re.compile(r"^(?:class|struct|enum class) (\w+)")


def cell(value: Any) -> str:
    """A value as text in a Markdown table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list):
        return ", ".join(cell(item) for item in value)
    text = str(value) if not isinstance(value, Mapping) else json.dumps(value)
    return re.sub(r"([|*_<>\[\]`\\$])", r"\\\1", text).replace("\n", " ")


def table(columns: Iterable[str], rows: Iterable[Iterable[Any]]) -> str:
    """A Markdown table."""
    names = list(columns)
    lines = ["| " + " | ".join(names) + " |", "|" + "---|" * len(names)]
    lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def code(value: Any) -> str:
    """A value as it is written in a file."""
    return json.dumps(value) if not isinstance(value, str) else value


def parameters_page(items: list[dict[str, Any]]) -> str:
    """Every scenario parameter, a section for each table of the file."""
    text = "# Scenario parameters\n\nFrom the declarations: `svmsim describe parameters`.\n"
    sections: dict[str, list[dict[str, Any]]] = {}
    for item in items:
        sections.setdefault(item["path"].rpartition(".")[0], []).append(item)
    for name, members in sections.items():
        text += f"\n## {name}\n"
        for item in members:
            text += "\n" + _parameter(item)
    return text


def _parameter(item: Mapping[str, Any]) -> str:
    """A term and its definition."""
    low, high = item["minimum"], item["maximum"]
    facts = [item["type"]]
    if item["unit"]:
        facts.append(item["unit"])
    if low is not None:
        facts.append(f"{code(low)} to {code(high)}" if high is not None else f"from {code(low)}")
    if item["choices"]:
        facts.append("one of " + ", ".join(f"`{code(choice)}`" for choice in item["choices"]))
    default = item["default_note"] or f"`{code(item['default'])}`"
    return (
        f"`{item['path'].rpartition('.')[2]}`\n"
        f": {cell(item['doc'])}\n\n  {', '.join(facts)}; default {default}. "
        f"Source: {cell(item['source'])}.\n"
    )


def records_page(title: str, head: str, items: list[Any], columns: Mapping[str, str]) -> str:
    """A table with a row for each record."""
    rows = [
        [item.get(key) if isinstance(item, Mapping) else item for key in columns] for item in items
    ]
    return f"# {title}\n\n{head}\n\n" + table(columns.values(), rows)


def commands_page() -> str:
    """Every command with its help, as the command line prints it."""
    import typer

    from svmsim._all_commands import app

    root = typer.main.get_command(app)
    text = "# Commands\n\nWhat `svmsim COMMAND --help` says.\n"
    for name, command in _commands(root, "svmsim"):
        usage = " ".join(command.collect_usage_pieces(command.context_class(command)))
        text += f"\n## {name}\n\n{cell(command.help or '')}\n\n```\n{name} {usage}\n```\n\n"
        rows = []
        for parameter in command.params:
            options = ", ".join(f"`{o}`" for o in parameter.opts if o.startswith("-"))
            shown = options or parameter.metavar or str(parameter.name).upper()
            rows.append((shown, getattr(parameter, "help", "") or ""))
        lines = [f"| {shown} | {cell(doc)} |" for shown, doc in rows if shown != "`--help`"]
        if lines:
            text += "| argument | meaning |\n|---|---|\n" + "\n".join(lines) + "\n"
    return text


def _commands(command: Any, name: str) -> Iterator[tuple[str, Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield name, command
        return
    for key, one in inner.items():
        yield from _commands(one, f"{name} {key}")


def left_out_page(root: Path) -> str:
    """What the comments of classes say that they leave out."""
    text = (
        "# What is left out, class by class\n\nTaken from the comments of the classes when this"
        " site is built.\n"
    )
    for room in ROOMS:
        text += f"\n## {room}\n"
        for file in sorted((root / room).rglob("*.hpp")):
            for name, models, left_out in _classes(file.read_text(encoding="utf-8")):
                text += (
                    f"\n`{name}` ({file.relative_to(root)})\n: {cell(models)}\n\n"
                    f"  **Left out:** {cell(left_out)}\n"
                )
    return text


def _classes(text: str) -> Iterator[tuple[str, str, str]]:
    """Name, what it models and what it leaves out, of every class whose comment says so."""
    comment: list[str] = []
    for line in text.splitlines():
        if line.startswith("///"):
            comment.append(line.removeprefix("///").strip())
            continue
        found = _CLASS.match(line)
        whole = " ".join(comment)
        comment = []
        left_out = _LEFT_OUT.search(whole)
        if found and left_out:
            yield found[1], whole[: left_out.start()].strip(), left_out[1].strip()


def write_pages(app: Sphinx) -> None:
    """Write the pages beside the others; Sphinx reads them like those."""
    from svmsim import _core

    source = Path(app.srcdir)
    described = json.loads(_core.describe())
    pages = {
        "parameters": parameters_page(described["parameters"]),
        "knobs": parameters_page(described["knobs"]).replace(
            "# Scenario parameters\n\nFrom the declarations: `svmsim describe parameters`.",
            "# Knobs\n\nPoints that the manual leaves open: `svmsim describe knobs`.",
        ),
        "statistics": records_page(
            "Statistics of a vCPU",
            "Named as in KVM's binary statistics: `svmsim describe statistics`.",
            described["statistics"],
            {"name": "name", "unit": "unit", "doc": "what"},
        ),
        "exit-codes": records_page(
            "Exit codes",
            "`svmsim describe exit_codes`; the name is the kernel's.",
            [{**item, "code": f"{item['code']:#x}"} for item in described["exit_codes"]],
            {"code": "code", "name": "name", "architectural": "manual", "doc": "what"},
        ),
        "programs": records_page(
            "Built-in guest programs",
            "`svmsim describe programs`; how to write one: [Guest programs](../programs.md).",
            described["programs"],
            {"name": "name", "vcpus": "vCPUs", "doc": "what", "source": "source"},
        ),
        "profiles": records_page(
            "Cost profiles",
            "`svmsim describe profiles`; `svmsim describe NAME` has every cost with its source.",
            described["profiles"],
            {"name": "name", "cpu": "CPU", "tsc_hz": "TSC (Hz)", "doc": "what"},
        ),
        "events": records_page(
            "Events",
            "Trace points of the kernel that a run records: `svmsim run --trace`.",
            described["events"],
            {"name": "name"},
        ),
        "commands": commands_page(),
        "left-out": left_out_page(source.parent),
    }
    target = source / "_generated"
    target.mkdir(exist_ok=True)
    for name, text in pages.items():
        file = target / f"{name}.md"
        if not file.is_file() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def markdown_docstring(
    _app: Sphinx, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]
) -> None:
    """Turn what docstrings have of Markdown, fences and single backticks, into reStructuredText."""
    result: list[str] = []
    fence: str | None = None  # indentation of an open one
    for line in lines:
        if match := re.match(r"(\s*)```(\w*)$", line):
            if fence is None:
                fence = match[1]
                result += ["", f"{fence}.. code-block:: {match[2] or 'text'}", ""]
            else:
                fence = None
                result.append("")
        elif fence is not None:
            result.append(f"    {line}" if line.strip() else "")
        else:
            result.append(re.sub(r"(?<![`\w:])`([^`\n]+)`(?!`)", r"``\1``", line))
    lines[:] = result


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", write_pages)
    app.connect("autodoc-process-docstring", markdown_docstring, priority=100)  # before napoleon
    return {"parallel_read_safe": True, "version": "1"}
