"""What the idle-HLT study prints and writes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from svmsim._files import write_bytes, write_text
from svmsim._render import table, titled
from svmsim.studies import idle_hlt
from svmsim.studies._idle_hlt_rows import EXITS, MODES, oddities, published
from svmsim.studies._table import TOLERANCES, VERDICT_COLOURS, Row, markdown

if TYPE_CHECKING:
    import polars as pl

    from svmsim.studies.idle_hlt import Outcome

_RECORDED = (
    f"Recorded: {', '.join(idle_hlt.RECORDED_EVENTS)}, {idle_hlt.RECORDING_CYCLES} cycles a record"
)
_PLAIN = "Not recorded"


def _by_kernel(rows: Iterable[Row], kernel: str) -> list[Row]:
    return [row for row in rows if row.kernel == kernel]


def view(outcome: Outcome) -> RenderableType:
    """Return the table for a terminal: the judged kernel in full, the others beside it."""
    judged = _by_kernel(outcome.rows, idle_hlt.JUDGED)
    beside = [kernel for kernel in idle_hlt.KERNELS if kernel != idle_hlt.JUDGED]
    others = {kernel: _by_kernel(outcome.rows, kernel) for kernel in beside}
    parts: list[RenderableType] = [
        Text("The idle-HLT experiment: published beside simulated", "bold"),
        Text(),
    ]
    for recorded, title in ((True, _RECORDED), (False, _PLAIN)):
        columns = [
            "quantity",
            "idle HLT",
            "published",
            f"kernel {idle_hlt.JUDGED}",
            "ratio",
            "tol.",
        ]
        body = table([*columns, "verdict", *beside], left=2)
        for index, row in enumerate(judged):
            if row.recorded is not recorded:
                continue
            cells = [row.label, row.idle_hlt, row.published_text, row.number(row.simulated)]
            cells += [row.ratio_text, row.tolerance]
            verdict = Text(row.verdict, VERDICT_COLOURS[row.verdict])
            rest = []
            for kernel in beside:
                other = others[kernel][index]
                colour = "" if other.holds else "red"
                rest.append(Text(other.number(other.simulated), colour))
            body.add_row(*cells, verdict, *rest)
        parts += [titled(title, body), Text()]
    parts.append(Text(_legend()))
    parts += [Text(), titled("Where the publication does not follow from its own numbers", _odd())]
    failed = [row for row in judged if not row.holds]
    summary = (
        f"{len(failed)} verdicts fail for kernel {idle_hlt.JUDGED}"
        if failed
        else f"every verdict holds for kernel {idle_hlt.JUDGED}"
    )
    parts += [Text(), Text(summary, "bold red" if failed else "bold green")]
    return Group(*parts)


def _legend() -> str:
    marks = "; ".join(f"{mark}: {text}" for mark, text in TOLERANCES.items())
    return f"Tolerance {marks}."


def _odd() -> RenderableType:
    rows = table(["quantity", "printed", "from its own numbers"], left=3)
    for what, printed, recomputed in oddities():
        rows.add_row(what, printed, recomputed)
    return rows


def _markdown(outcome: Outcome) -> str:
    text = "# The idle-HLT experiment: published beside simulated\n"
    for kernel in idle_hlt.KERNELS:
        judged = "" if kernel == idle_hlt.JUDGED else ", beside"
        text += f"\n## Kernel {kernel}{judged}\n"
        for recorded, title in ((True, _RECORDED), (False, _PLAIN)):
            rows: list[Sequence[str]] = [
                (
                    row.label,
                    row.idle_hlt,
                    "yes" if row.recorded else "no",
                    row.published_text,
                    row.number(row.simulated),
                    row.ratio_text,
                    row.tolerance,
                    row.band,
                    row.verdict,
                )
                for row in _by_kernel(outcome.rows, kernel)
                if row.recorded is recorded
            ]
            columns = ["quantity", "idle HLT", "recorded", "published", "simulated", "ratio"]
            columns += ["tolerance", "accepted", "verdict"]
            text += f"\n{title}\n\n" + markdown(columns, rows, left=2)
    text += f"\n{_legend()}\n\n## Where the publication does not follow from its own numbers\n\n"
    text += markdown(["quantity", "printed", "from its own numbers"], oddities(), left=3)
    sources = dict.fromkeys(row.source for row in outcome.rows)
    return text + "\n## Sources\n\n" + "".join(f"- {source}\n" for source in sources)


def _exits(outcome: Outcome) -> pl.DataFrame:
    """Return the exits of every run, with the run's name, kernel, idle_hlt, recorded."""
    import polars as pl

    frames = []
    for run in outcome.runs:
        about = [
            pl.lit(run.name).alias("run"),
            pl.lit(run.kernel).alias("kernel"),
            pl.lit(run.idle_hlt).alias("idle_hlt"),
            pl.lit(run.recorded).alias("recorded"),
        ]
        exits = outcome.results[run.name].exits
        frames.append(exits.select(*about, pl.all()))
    return pl.concat(frames)


def save(outcome: Outcome, directory: Path) -> list[Path]:
    """Write everything below `directory`; return the files worth opening."""
    import io

    from svmsim import plot

    table_md, table_json = directory / "table.md", directory / "table.json"
    write_text(table_md, _markdown(outcome))
    write_text(table_json, outcome.to_json())
    for name, result in outcome.results.items():
        result.save(directory / "runs" / f"{name}.json")
    buffer = io.BytesIO()
    _exits(outcome).write_parquet(buffer)
    parquet = directory / "exits.parquet"
    write_bytes(parquet, buffer.getvalue())

    kernel = idle_hlt.JUDGED
    results = {f"idle HLT {mode}": outcome.results[f"{kernel}-{mode}-recorded"] for mode in MODES}
    counts = plot.exit_counts(results, title="Idle HLT removes every hlt exit and no other")
    times = plot.stacked_times(
        host_times(outcome, kernel),
        ylabel="host time per iteration (ns)",
        title="Idle HLT saves the host time of the hlt exit",
    )
    pictures = plot.save(counts.figure, directory / "exit-counts")
    pictures += plot.save(times.figure, directory / "host-time")
    return [table_md, table_json, parquet, *(file for file in pictures if file.suffix == ".png")]


def host_times(outcome: Outcome, kernel: str) -> dict[str, dict[str, float]]:
    """Return host time of one iteration by exit reason (ns), published beside simulated."""
    data = published()["perf"]
    bars = {}
    for mode in MODES:
        result = outcome.results[f"{kernel}-{mode}-recorded"]
        iterations = data[mode]["vintr"]["samples"]
        bars[f"published\nidle HLT {mode}"] = {
            name: data[mode][name]["time_ns"] / iterations for name in EXITS if name in data[mode]
        }
        exits = result.exit_totals
        bars[f"simulated\nidle HLT {mode}"] = {
            name: exits[name]["time_ns"] / result.metrics["iterations"]
            for name in EXITS
            if name in exits
        }
    return bars
