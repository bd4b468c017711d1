"""The halt-polling study's table: each published figure beside the simulated ones."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from svmsim.result import Result
from svmsim.studies._seeds import (
    NOT_JUDGED,
    Results,
    SeedRow,
    Sheet,
    above,
    around,
    below,
    each_seed,
)

TRANSACTIONS = {"delete_100": "worker", "insert_100": "worker", "delete_1": "client"}
TRANSACTIONS |= {"update_1": "client"}
"""The task sets of the transactions, each with the task whose rounds are the transactions."""


def published() -> dict[str, Any]:
    """Return the published figures, as halt_polling_published.toml lays them out."""
    path = Path(__file__).with_name("halt_polling_published.toml")
    return tomllib.loads(path.read_text(encoding="utf-8"))


def round_us(result: Result, task: str) -> float:
    """Return the mean time of a round of a task, in us."""
    name = f"{task}_round_mean_ns"
    metrics = result.metrics
    return float(metrics[name] if name in metrics else metrics[f"vm0.0.{name}"]) / 1e3


def share_pct(result: Result, *kinds: str) -> float:
    """Return the share of pCPU time of kinds (`guest`, `host`, `poll`) in per cent."""
    pcpus = result.pcpus
    busy = sum(float(pcpus[f"{kind}_ns"].sum()) for kind in kinds)
    return 100 * busy / (result.sim_time_ns * len(pcpus))


def change_pct(old: float, new: float) -> float:
    """Return how much `new` differs from `old`, in per cent."""
    return 100 * (new - old) / old


def _ping_pong(results: Results, part: dict[str, Any]) -> list[SeedRow]:
    sheet = Sheet("Ping-pong, one pinned vCPU, AVIC off, windows of 300 us", part["source"])
    times = {
        name: each_seed(lambda r: round_us(r, "client"), results[f"ping-pong-{name}"])
        for name in ("host", "guest-poll", "host-poll", "no-poll")
    }
    for name, values in times.items():
        public = part.get(name.replace("-", "_"))
        if public is not None:
            sheet.add(f"round, {name}", values, public, NOT_JUDGED, unit="us")

    def gaps(slow: str, fast: str) -> list[float]:
        return [a - b for a, b in zip(times[slow], times[fast], strict=True)]

    public = part["guest_poll"] - part["host"]
    sheet.add("guest-poll minus host", gaps("guest-poll", "host"), public, above(0), unit="us")
    public = part["host_poll"] - part["guest_poll"]
    sheet.add(
        "host-poll minus guest-poll",
        gaps("host-poll", "guest-poll"),
        public,
        above(0),
        unit="us",
    )
    sheet.add(
        "no-poll minus host-poll",
        gaps("no-poll", "host-poll"),
        None,
        above(0),
        unit="us",
    )
    public = (part["guest_poll"] - part["host"]) / (part["host_poll"] - part["host"])
    overheads = zip(gaps("guest-poll", "host"), gaps("host-poll", "host"), strict=True)
    ratios = [guest / host for guest, host in overheads]
    band = around(public, part["overhead_ratio_band"])
    sheet.add("overhead, guest-poll : host-poll", ratios, public, band, digits=3)
    return sheet.rows


def _transactions(results: Results, part: dict[str, Any]) -> list[SeedRow]:
    rows: list[SeedRow] = []
    for tasks, task in TRANSACTIONS.items():
        public = part[tasks]
        sheet = Sheet(f"{public['test']}: change of the time against the base", part["source"])

        def change(base: Result, other: Result, task: str = task) -> float:
            return change_pct(round_us(base, task), round_us(other, task))

        base = results[f"{tasks}-base"]
        for setting, key, words in (
            ("guest-spin", "guest_spin_pct", "guest spin 800 us, host window 0"),
            ("host-poll", "host_poll_pct", "host window 800 us"),
        ):
            values = each_seed(change, base, results[f"{tasks}-{setting}"])
            band = above(0) if public[key] > 0 else below(0)
            sheet.add(words, values, public[key], band, unit="%")
        rows += sheet.rows
    return rows


def _tcp_rr(results: Results, part: dict[str, Any]) -> list[SeedRow]:
    sheet = Sheet("TCP_RR, one pinned vCPU, host limited to C1", part["source"])

    def ratio(fast: Result, slow: Result) -> float:
        return round_us(fast, "client") / round_us(slow, "client")

    def saving(fast: Result, slow: Result) -> float:
        return round_us(slow, "client") - round_us(fast, "client")

    always, dynamic, none = (results[f"tcp-rr-{n}"] for n in ("always", "dynamic", "no-poll"))
    public = part["always_us"] / part["no_poll_us"]
    band = around(public, part["ratio_band"])
    sheet.add(
        "transaction, always : no poll", each_seed(ratio, always, none), public, band, digits=3
    )
    low, high = part["saving_us"]
    band = ("A", low, high)
    sheet.add("saving of a halt", each_seed(saving, always, none), (low, high), band, unit="us")
    public = part["dynamic_us"] / part["always_us"]
    values = each_seed(ratio, dynamic, always)
    band = ("R", 1 - part["dynamic_band"], 1 + part["dynamic_band"])
    sheet.add("transaction, dynamic : always", values, public, band, digits=3)
    return sheet.rows


def _nanosleep(results: Results, part: dict[str, Any]) -> list[SeedRow]:
    sheet = Sheet("nanosleep(10 us) in a loop, window of 500 us", part["source"])
    runs = results["nanosleep"]
    busy = part["host_cycles"]
    public = 100 * part["guest_cycles"] / (busy + part["guest_cycles"])
    band = below(part["most_guest_share_pct"], "R")
    values = each_seed(lambda r: share_pct(r, "guest"), runs)
    sheet.add("share of guest mode", values, public, band, unit="%", digits=1)
    band = above(part["least_busy_pct"], "R")
    values = each_seed(lambda r: share_pct(r, "guest", "host", "poll"), runs)
    sheet.add("pCPU busy", values, 100.0, band, unit="%", digits=1)
    return sheet.rows


def _block_io(results: Results, part: dict[str, Any]) -> list[SeedRow]:
    sheet = Sheet("Block I/O of 20 to 100 us, window of 500 us", part["source"])

    def throughput(one: Result, other: Result) -> float:
        return round_us(other, "writer") / round_us(one, "writer")

    poll, idle, none = (results[f"block-io-{n}"] for n in ("poll", "idle-poll", "no-poll"))
    band = above(part["least_poll_of_idle_poll"], "R")
    values = each_seed(throughput, poll, idle)
    public = part["poll_of_idle_poll"]
    sheet.add("throughput, poll : idle=poll", values, public, band, digits=3)
    low, high = (pct / part["no_poll_pct"] for pct in part["poll_pct"])
    note = (
        "a write of the published guest is several wake-ups of vCPU and I/O thread, and its host"
        " was not limited to C1; here one wake-up is one write"
    )
    values = each_seed(throughput, poll, none)
    sheet.add("throughput, poll : no poll", values, (low, high), NOT_JUDGED, digits=2, note=note)
    values = each_seed(lambda r: share_pct(r, "guest", "host", "poll"), poll)
    sheet.add("pCPU busy, poll", values, 100.0, NOT_JUDGED, unit="%", digits=1)
    return sheet.rows


def judged_rows(results: Results) -> list[SeedRow]:
    """Return the table from the results of the published set-ups by name."""
    data = published()
    return [
        *_ping_pong(results, data["ping_pong"]),
        *_transactions(results, data["transactions"]),
        *_tcp_rr(results, data["tcp_rr"]),
        *_nanosleep(results, data["nanosleep"]),
        *_block_io(results, data["block_io"]),
    ]
