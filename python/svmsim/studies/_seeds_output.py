"""Tables of the studies that repeat every run with several seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
from rich.text import Text

from svmsim._files import write_bytes, write_text
from svmsim._render import table, titled
from svmsim.studies._seeds import SeedRow
from svmsim.studies._table import TOLERANCES, VERDICT_COLOURS, by_setup, markdown

if TYPE_CHECKING:
    from rich.console import RenderableType

    from svmsim.result import Result

_COLUMNS = ("quantity", "published", "simulated", "by seed", "tol.", "accepted", "verdict")


def _cells(row: SeedRow) -> list[str]:
    numbers = [row.published_text, row.number(row.simulated), row.spread_text]
    return [row.label, *numbers, row.tolerance, row.band]


def judged_view(title: str, rows: Sequence[SeedRow]) -> list[RenderableType]:
    """Return the rows as tables for a terminal, one for each set-up."""
    parts: list[RenderableType] = [Text(title, "bold"), Text()]
    for setup, part in by_setup(rows).items():
        body = table(list(_COLUMNS), left=1)
        for row in part:
            body.add_row(*_cells(row), Text(row.verdict, VERDICT_COLOURS[row.verdict]))
        parts += [titled(setup, body), Text()]
        parts += [Text(f"{row.quantity}: {row.note}.\n", "dim") for row in part if row.note]
    marks = "; ".join(f"{mark}: {text}" for mark, text in TOLERANCES.items())
    return [*parts, Text(f"Tolerance {marks}."), Text()]


def summary(rows: Sequence[SeedRow]) -> Text:
    """Return one line that says whether all verdicts hold."""
    failed = [row for row in rows if not row.holds]
    text = f"{len(failed)} verdicts fail" if failed else "every verdict holds"
    return Text(text, "bold red" if failed else "bold green")


def judged_markdown(title: str, rows: Sequence[SeedRow]) -> str:
    """Return the rows as Markdown."""
    text = f"# {title}\n"
    for setup, part in by_setup(rows).items():
        lines = [[*_cells(row), row.verdict] for row in part]
        text += f"\n## {setup}\n\n" + markdown(list(_COLUMNS), lines)
        text += "".join(f"\n{row.quantity}: {row.note}.\n" for row in part if row.note)
        text += "".join(
            f"\nSource: {source}.\n" for source in dict.fromkeys(r.source for r in part)
        )
    marks = "; ".join(f"{mark}: {meaning}" for mark, meaning in TOLERANCES.items())
    return text + f"\nTolerance {marks}.\n"


def rows_frame(rows: Sequence[SeedRow]) -> pl.DataFrame:
    """Return the rows as a frame, a line for each seed."""
    return pl.DataFrame(
        [
            {
                "setup": row.setup,
                "quantity": row.quantity,
                "unit": row.unit,
                "seed": seed,
                "simulated": value,
                "published": row.published_text,
                "tolerance": row.tolerance,
                "verdict": row.verdict,
            }
            for row in rows
            for seed, value in enumerate(row.values, 1)
        ]
    )


def save_frame(frame: pl.DataFrame, directory: Path, name: str) -> list[Path]:
    """Write a frame as CSV and Parquet; return the files."""
    import io

    buffer = io.BytesIO()
    frame.write_parquet(buffer)
    csv, parquet = directory / f"{name}.csv", directory / f"{name}.parquet"
    write_text(csv, frame.write_csv())
    write_bytes(parquet, buffer.getvalue())
    return [csv, parquet]


def save_judged(
    directory: Path,
    markdown_text: str,
    json_text: str,
    rows: Sequence[SeedRow],
    results: Mapping[str, Sequence[Result]],
) -> list[Path]:
    """Write the table, the rows and every seed's result; return the files worth opening."""
    table_md, table_json = directory / "table.md", directory / "table.json"
    write_text(table_md, markdown_text)
    write_text(table_json, json_text)
    for name, seeds in results.items():
        for seed, result in enumerate(seeds, 1):
            result.save(directory / "runs" / f"{name}-seed{seed}.json")
    return [table_md, table_json, *save_frame(rows_frame(rows), directory, "rows")]
