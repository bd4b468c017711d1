"""What the validation prints and writes."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.text import Text

from svmsim._files import write_text
from svmsim._render import table, titled
from svmsim.studies._table import markdown
from svmsim.validation.judge import SEEDS, Judgement
from svmsim.validation.published import CLASSES

if TYPE_CHECKING:
    from svmsim.validation.outcome import Outcome

_COLUMNS = ("id", "quantity", "published", "simulated", "class", "accepted", "verdict")
_COLOURS = {"holds": "green", "fails": "bold red"}


def _cells(judgement: Judgement) -> list[str]:
    number = judgement.number
    published, simulated = number(judgement.item.published), number(judgement.simulated)
    return [
        judgement.item.id,
        judgement.label,
        published,
        simulated,
        judgement.item.kind,
        judgement.band,
    ]


def _summary(outcome: Outcome) -> str:
    parts = []
    for kind in CLASSES:
        held, total = outcome.counts(kind)
        if total:
            parts.append(f"{kind} {held} of {total}")
    return "hold: " + ", ".join(parts)


def terminal(outcome: Outcome) -> RenderableType:
    """Return the table for a terminal."""
    body = table(_COLUMNS, left=2)
    body.columns[0].no_wrap, body.columns[1].no_wrap = True, False
    for judgement in outcome.judgements:
        verdict = Text(judgement.verdict, _COLOURS[judgement.verdict])
        body.add_row(*_cells(judgement), verdict)
    parts: list[RenderableType] = [titled("Published beside simulated", body), Text()]
    marks = "; ".join(f"{kind}: {text}" for kind, text in CLASSES.items())
    parts += [Text(f"Class {marks}."), Text()]
    misfits = [judgement for judgement in outcome.judgements if not judgement.holds]
    if misfits:
        why = table(["does not fit", "why"], left=2)
        why.columns[1].no_wrap = False
        for judgement in misfits:
            why.add_row(judgement.item.id, judgement.reason)
        parts += [why, Text()]
    colour = "bold green" if outcome.holds else "bold red"
    parts.append(Text(_summary(outcome), colour))
    return Group(*parts)


def _rows(judgements: Iterable[Judgement]) -> str:
    lines = []
    for judgement in judgements:
        verdict = judgement.verdict if judgement.holds else "**does not fit**"
        lines.append([*_cells(judgement), verdict])
    return markdown(_COLUMNS, lines, left=2)


def page(outcome: Outcome) -> str:
    """Return the page of the docs."""
    text = _HEAD
    for kind, meaning in CLASSES.items():
        held, total = outcome.counts(kind)
        text += f"| {kind} | {meaning} | {held} of {total} |\n"
    text += _BEHIND_CLASSES
    for row, group in groupby(outcome.judgements, key=lambda judgement: judgement.item.row):
        own = list(group)
        text += (
            f"\n## {row.id}: {row.setup}\n\nPublished: {row.figures}.\nSource: {row.source}.\n\n"
        )
        text += _rows(own)
        scenarios = [j.item for j in own if j.item.scenario]
        if scenarios:
            text += "\n"
        for item in scenarios:
            text += f"* {item.id}: {item.scenario}.\n"
        for judgement in own:
            if not judgement.holds:
                text += f"* **{judgement.item.id} does not fit**: {judgement.reason}.\n"
    return text + _NOT_JUDGED


_HEAD = """\
# Published measurements

Every published measurement that svmsim was given, as a scenario. This page is written by
`svmsim validate -o docs/validation.md`. Figures stand in `python/svmsim/validation/published.toml`;
each has one function beside it, which builds the scenarios and takes the figure from their results.
No scenario changes a cost: what is judged is the profiles.

| class | what is demanded | hold |
| :-- | :-- | --: |
"""

_BEHIND_CLASSES = f"""
The command ends with status 0 when every E and D item holds and four fifths of the R items do. A
sign (D) without a band is the reduction from the greater figure in per cent, the mean of
{len(SEEDS)} paired seeds; it has to exceed their standard deviation.

```sh
svmsim validate                              # the table
svmsim validate --only C-05,C-10.saving      # a row, an item
svmsim validate --set host.cost.t_world=1500 # which figures a cost moves
svmsim validate --json items.json --out out/ # for programs; with every result
```
"""

_NOT_JUDGED = """
## What is not judged

* The +5 % of the whole self-IPI loop with idle HLT (row 1.1): `t_halt_abort` reproduces it, and
  `svmsim study idle-hlt` shows it with and without; either sign may be right on another CPU.
* Percentages that the publications print and that do not follow from their own numbers:
  `svmsim study idle-hlt` lists them.
* Absolute values of SAP HANA and of Passmark, of which only the direction is demanded.
"""


def save(outcome: Outcome, directory: Path) -> list[Path]:
    """Write the table and every result below a directory; return the files worth opening."""
    table_md, table_json = directory / "table.md", directory / "table.json"
    write_text(table_md, page(outcome))
    write_text(table_json, outcome.to_json())
    for name, result in outcome.results.items():
        result.save(directory / "runs" / f"{name}.json")
    return [table_md, table_json]
