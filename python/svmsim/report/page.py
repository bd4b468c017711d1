"""From a table of results to the page."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
import matplotlib as mpl
import polars as pl

from svmsim import _core
from svmsim._files import write_text
from svmsim._pictures import Picture, part_of, pictures
from svmsim._render import value_text
from svmsim.analysis.comparison import Comparison
from svmsim.plot import STYLE
from svmsim.report.changes import Step, steps_of, worst
from svmsim.table import ResultTable
from svmsim.table.paths import flattened

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["report_html", "write_report"]

_MOST_TABLES = 12
_MOST_FAILURES = 50
_MOST_VALUES = 6


@dataclass(frozen=True, slots=True)
class _Axis:
    key: str
    doc: str
    values: list[str]
    comparison: Comparison | None
    """None for what is no choice of the host's or the guest's, but what they are put to."""
    steps: list[Step]
    under: list[tuple[str, list[Step]]]
    """The same under one condition each, as with one workload alone."""


def _is_condition(key: str) -> bool:
    return key == "workload" or key.startswith("run.") or ".workload" in key


def _axes(table: ResultTable) -> list[_Axis]:
    parameters = {item["path"]: item["doc"] for item in json.loads(_core.describe())["parameters"]}
    first = table.about.get("compare")
    keys = [key for key in table.sweep if key != "label"]
    keys.sort(key=lambda key: key != first)
    runs = table.runs.filter(status="ok").collect()
    found = []
    for key in keys:
        values = [value_text(value) for value in dict.fromkeys(runs[key].to_list())]
        if len(values) < 2:
            continue
        comparison = None
        if "label" not in table.sweep and (key == first or not _is_condition(key)):
            comparison = table.compare(key)
        steps = [] if comparison is None else steps_of(comparison, _metrics(table))
        under = _under_conditions(table, key) if steps else []
        found.append(_Axis(key, parameters.get(key, ""), values, comparison, steps, under))
    return found


def _under_conditions(table: ResultTable, key: str) -> list[tuple[str, list[Step]]]:
    """What a key does under each value of what guests are put to, if that is swept."""
    runs = table.runs.filter(status="ok").collect()
    found = []
    for condition in table.sweep:
        values = list(dict.fromkeys(runs[condition].to_list()))
        if condition == key or not _is_condition(condition) or not 1 < len(values) <= _MOST_VALUES:
            continue
        for value in values:
            part = part_of(table, condition, value)
            steps = steps_of(part.compare(key), _metrics(table))
            if steps:
                found.append((f"{condition.rpartition('.')[2]} = {value_text(value)}", steps))
    return found


def _metrics(table: ResultTable) -> tuple[str, ...] | None:
    return tuple(table.about.get("metrics") or ()) or None


def _sums(exits: pl.DataFrame) -> dict[str, dict[str, Any]]:
    """Exits of a run over its vCPUs, as `perf kvm stat` would have seen them all together."""
    result: dict[str, dict[str, Any]] = {}
    for row in exits.iter_rows(named=True):
        count, mean = row["count"], row["mean_ns"]
        error_ns = (row["error_pct"] or 0.0) / 100 * mean  # of the mean
        squares = error_ns**2 * count * (count - 1) + count * mean**2
        one = result.setdefault(
            row["exit"],
            {"count": 0, "time_ns": 0, "min_ns": row["min_ns"], "max_ns": 0, "squares": 0.0},
        )
        one["count"] += count
        one["time_ns"] += row["time_ns"]
        one["min_ns"] = min(one["min_ns"], row["min_ns"])
        one["max_ns"] = max(one["max_ns"], row["max_ns"])
        one["squares"] += squares
    for one in result.values():
        count, mean = one["count"], one["time_ns"] / one["count"]
        spread = max(0.0, one.pop("squares") - count * mean**2)
        error = (spread / (count * (count - 1))) ** 0.5 if count > 1 else 0.0
        one["error_pct"] = 100 * error / mean if mean else 0.0
    return result


def _perf_tables(table: ResultTable) -> list[dict[str, Any]]:
    """The exit table of the first run of each configuration, in perf's layout."""
    ok = table.runs.filter(pl.col("status") == "ok").collect()
    firsts = ok.unique("configuration", keep="first", maintain_order=True).head(_MOST_TABLES)
    labels = dict(table.configurations.select("configuration", "label").iter_rows())
    exits = table.scan("exits").filter(pl.col("run").is_in(firsts["run"].to_list())).collect()
    found = []
    for run, number, seed in firsts.select("run", "configuration", "seed").iter_rows():
        sums = _sums(exits.filter(pl.col("run") == run))
        text = _core.perf_table(json.dumps({"exits": sums})).strip("\n")
        found.append({"label": labels[number], "seed": seed, "text": text})
    return found


def _settings(table: ResultTable) -> dict[str, Any]:
    """What is the same in all configurations and not as the parameters' defaults."""
    defaults = {
        item["path"]: item["default"] for item in json.loads(_core.describe())["parameters"]
    }
    scenarios = [json.loads(text) for text in table.configurations["scenario"]]
    first = dict(flattened(scenarios[0]))
    rest = [dict(flattened(scenario)) for scenario in scenarios[1:]]
    common = {
        key: value
        for key, value in first.items()
        if not key.startswith(("host.cost", "host.cstate"))
        and all(one.get(key) == value for one in rest)
    }
    changed = {
        key: value_text(value)
        for key, value in common.items()
        if key not in ("run.seed",) and value != defaults.get(key) and value not in (None, [], "")
    }
    return {"changed": changed, "scenario": json.dumps(scenarios[0], indent=2, ensure_ascii=False)}


def _image(figure: Figure) -> str:
    """A picture as an address that holds it whole."""
    buffer = io.BytesIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    return "data:image/svg+xml;base64," + base64.b64encode(buffer.getvalue()).decode()


def _drawn(found: list[Picture]) -> list[dict[str, str]]:
    return [
        {"name": one.name, "caption": one.caption, "image": _image(one.draw())} for one in found
    ]


def _provenance(table: ResultTable) -> dict[str, str]:
    runs = table.runs.collect()
    ok = runs.filter(pl.col("status") == "ok")
    seeds = sorted(set(runs["seed"].to_list()))
    shown = ", ".join(str(seed) for seed in seeds[:10])
    facts: Mapping[str, Any] = {
        "campaign": table.name,
        "svmsim": ", ".join(sorted({str(v) for v in runs["version"].drop_nulls()})),
        "build": ", ".join(sorted({str(v) for v in runs["build"].drop_nulls()})),
        "runs": f"{len(runs):,}, of which {len(runs) - len(ok):,} failed",
        "configurations": f"{len(table.configurations):,}",
        "seeds": f"{shown}{' …' if len(seeds) > 10 else ''}",
        "simulated time": f"{sum(ok['sim_time_ns'].to_list()) / 1e9:,.6g} s over all runs",
    }
    return {name: str(value) for name, value in facts.items() if str(value)}


def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.PackageLoader("svmsim.report", "."),
        autoescape=True,  # whatever came from a file is text, not markup
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def report_html(table: ResultTable) -> str:
    """Return the page.

    Raises:
        UserError: every run failed.
    """
    drawn = _drawn(pictures(table))
    axes = _axes(table)
    judged = [axis for axis in axes if axis.steps]
    comparisons = [axis.comparison for axis in judged if axis.comparison is not None]
    failures = table.failures
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=table.name or "Results",
            question=str(table.about.get("question") or ""),
            axes=axes,
            judged=judged,
            worse=worst(comparisons, _metrics(table)),
            unpaired=sum(comparison.unpaired for comparison in comparisons),
            pictures=drawn,
            perf_tables=_perf_tables(table),
            configurations=len(table.configurations),
            settings=_settings(table),
            provenance=_provenance(table),
            failures=failures.head(_MOST_FAILURES).to_dicts(),
            failure_count=len(failures),
            advice=_advice(table),
        )
    )


def _advice(table: ResultTable) -> list[dict[str, Any]]:
    counts = table.scan("advice").group_by("text", "setting", maintain_order=True).len()
    return counts.collect().to_dicts()


def write_report(table: ResultTable, path: Path) -> None:
    """Write the page to a file.

    Raises:
        UserError: it cannot be written, or every run failed.
    """
    write_text(path, report_html(table))
