"""What scenarios, results and campaigns look like in a notebook: HTML with every text escaped."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from svmsim.campaign import Campaign
    from svmsim.result import Result
    from svmsim.scenario import Scenario

__all__ = ["campaign_html", "html_table", "result_html", "scenario_html"]

_MOST_ROWS = 40


def html_table(
    headings: list[str], rows: list[list[str]], *, left: int = 1, caption: str = ""
) -> str:
    """Return an HTML table, every text in it escaped; the first `left` columns hold texts."""

    def cells(tag: str, row: list[str]) -> str:
        align = ("left" if index < left else "right" for index in range(len(row)))
        return "".join(
            f'<{tag} style="text-align: {side}">{html.escape(cell)}</{tag}>'
            for side, cell in zip(align, row, strict=True)
        )

    title = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', headings)}</tr></thead>"
    return f"<table>{title}{head}<tbody>{body}</tbody></table>"


def scenario_html(scenario: Scenario) -> str:
    """Return the parameters that differ from their defaults, and the workload, as a table."""
    from svmsim import _core
    from svmsim._render import value_text
    from svmsim.table.paths import flattened

    described = {item["path"]: item for item in json.loads(_core.describe())["parameters"]}
    rows = []
    for key, value in flattened(scenario.resolved):
        short = key if key in described else _without_name(key)
        about = described.get(short, {"unit": "", "default": None, "doc": ""})
        fixed = about["default"] is None and not key.startswith("vm.")
        if fixed or value == about["default"]:
            continue  # costs come from the profile
        unit = f" {about['unit']}" if about["unit"] else ""
        rows.append([key, f"{value_text(value)}{unit}", about["doc"]])
    caption = f"{scenario!r}: what is not the default"
    return html_table(["parameter", "value", "meaning"], rows, left=3, caption=caption)


def _without_name(key: str) -> str:
    """Return the declared key of a VM's parameter: vm.NAME.x is vm.x."""
    parts = key.split(".")
    return ".".join([parts[0], *parts[2:]]) if len(parts) > 2 else key


def result_html(result: Result) -> str:
    """Return the exit table in perf's order, and what the workload measured."""
    from svmsim._render import value_text

    exits = result.exit_totals
    count = sum(item["count"] for item in exits.values()) or 1
    time = sum(item["time_ns"] for item in exits.values()) or 1
    rows = [
        [
            name,
            f"{item['count']:,}",
            f"{100 * item['count'] / count:.2f} %",
            f"{100 * item['time_ns'] / time:.2f} %",
            *(f"{item[key] / 1e3:,.2f}" for key in ("min_ns", "max_ns", "mean_ns")),
        ]
        for name, item in sorted(exits.items(), key=lambda pair: (-pair[1]["count"], pair[0]))
    ]
    headings = ["VM-EXIT", "samples", "samples %", "time %", "min (us)", "max (us)", "mean (us)"]
    caption = f"{result.workload.get('kind', 'run')}: {result.sim_time_ns / 1e6:,.3f} ms simulated"
    text = html_table(headings, rows, caption=caption)
    text += _halts_html(result)
    if result.busy_reason:
        text += f"<p>Busy host: {html.escape(result.busy_reason)}</p>"
    metrics = [[name, value_text(value)] for name, value in result.metrics.items()]
    if metrics:
        text += html_table(["metric", "value"], metrics)
    if result.failure:
        text += f"<p><b>The workload failed:</b> {html.escape(result.failure)}</p>"
    return text


def _halts_html(result: Result) -> str:
    """Return where the time of halts went, by vCPU; nothing when none halted with an exit."""
    parts = ("handling", "polling", "blocked", "runqueue", "cstate")
    rows = [
        [
            f"{row['vm']} vCPU {row['vcpu']}",
            f"{row['count']:,}",
            *(f"{row[f'{part}_ns'] / 1e3:,.2f}" for part in parts),
        ]
        for row in result.halts.iter_rows(named=True)
        if row["count"]
    ]
    headings = ["halts of", "count", *(f"{part} (us)" for part in parts)]
    return html_table(headings, rows[:_MOST_ROWS]) if rows else ""


def campaign_html(campaign: Campaign) -> str:
    """Return what is swept."""
    from svmsim._render import value_text

    rows = [
        [name, ", ".join(value_text(value) for value in values[:_MOST_ROWS]), str(len(values))]
        for name, values in campaign.sweep.items()
    ]
    runs = f"{len(campaign.configurations):,} configurations, {len(campaign):,} runs"
    caption = f"{campaign.name}: {runs}"
    if campaign.question:
        caption += f". {campaign.question}"
    seeds = ", ".join(map(str, campaign.seeds[:_MOST_ROWS]))
    rows.append(["seeds", seeds, str(len(campaign.seeds))])
    return html_table(["swept", "values", "count"], rows, left=2, caption=caption)
