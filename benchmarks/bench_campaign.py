"""What a campaign's engine costs: many short runs, and a million rows read back and compared.

    python benchmarks/bench_campaign.py [RUNS] [ROWS]

A simulation is the call into the extension module: from a scenario to its result. Overhead is the
CPU time of all processes that is not spent in simulations, in per cent of that which is; it can be
told beside other work on the machine, the speed-up of two processes cannot.
"""

from __future__ import annotations

import json
import multiprocessing
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

import svmsim as sv
from svmsim import _core
from svmsim.campaign import execute
from svmsim.table.table import ABOUT_FILE

SEEDS = 10
ITERATIONS = 700
"""Of one run, which then takes about 1 ms."""


class Timed:
    """Stands in for the extension module in workers; sums up the CPU time of its calls."""

    def __init__(self) -> None:
        self.total_s = multiprocessing.get_context("fork").Value("d")

    def run(self, *args: Any, **kwargs: Any) -> str:
        """Simulate."""
        begin = time.thread_time()
        text = str(_core.run(*args, **kwargs))
        spent = time.thread_time() - begin
        with self.total_s.get_lock():
            self.total_s.value += spent
        return text


def cpu_s() -> float:
    """CPU time of this process, and of its workers, which have ended."""
    usage = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(item.ru_utime + item.ru_stime for item in usage)


def short_runs(count: int, processes: int) -> float:
    """Run `count` simulations of about 1 ms; print the overhead, return the time it took."""
    timed = Timed()
    execute._core = timed  # type: ignore[attr-defined]
    base = sv.Scenario.from_dict(
        {"vm": [{"pin": [0], "workload": {"kind": "idle_hlt_test", "iterations": ITERATIONS}}]}
    )
    windows = [1000 * number for number in range(count // SEEDS // 2)]
    begin, begin_cpu = time.perf_counter(), cpu_s()
    sweep = {"kvm.idle_hlt": [False, True], "kvm.halt_poll_ns": windows}
    campaign = sv.Campaign(base, sweep, seeds=SEEDS)
    with tempfile.TemporaryDirectory() as directory:
        campaign.run(directory, processes=processes, progress=False)
        elapsed, cpu = time.perf_counter() - begin, cpu_s() - begin_cpu
    simulated = timed.total_s.value
    print(
        f"{len(campaign)} runs, {processes} processes: {elapsed:.2f} s; simulations "
        f"{simulated:.2f} s of CPU ({1e3 * simulated / len(campaign):.2f} ms each), overhead "
        f"{100 * (cpu / simulated - 1):.1f} %"
    )
    return elapsed


def many_rows(count: int) -> None:
    """Read a table of `count` runs back and compare two values of a parameter."""
    random = np.random.default_rng(1)
    half = count // 2
    seeds = half // 50
    frame = pl.DataFrame(
        {
            "run": pl.Series(range(2 * half), dtype=pl.UInt32),
            "configuration": np.repeat(np.arange(100), seeds),
            "seed": np.tile(np.arange(seeds), 100),
            "kvm.idle_hlt": np.repeat([False, True], half),
            "kvm.halt_poll_ns": np.tile(np.repeat(np.arange(50) * 1000, seeds), 2),
            "status": ["ok"] * (2 * half),
            "exits": random.integers(1000, 2000, 2 * half),
        }
    )
    keys = ["kvm.idle_hlt", "kvm.halt_poll_ns"]
    with tempfile.TemporaryDirectory() as directory:
        tables = Path(directory, "tables")
        tables.mkdir()
        frame.write_parquet(tables / "runs.parquet")
        about = {"schema": 1, "name": "rows", "sweep": keys}
        Path(directory, ABOUT_FILE).write_text(json.dumps(about))
        begin = time.perf_counter()
        comparison = sv.ResultTable.load(directory).compare("kvm.idle_hlt", "exits")
        elapsed = time.perf_counter() - begin
    pairs = comparison.overall[0].pairs
    print(f"{2 * half} rows read and compared ({pairs} pairs, 50 configurations): {elapsed:.2f} s")


def main() -> None:
    """Run everything."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    rows = int(sys.argv[2]) if len(sys.argv) > 2 else 1_000_000
    many_rows(1000)  # what is imported late
    many_rows(rows)
    short_runs(100, 1)
    one, two = short_runs(runs, 1), short_runs(runs, 2)
    print(f"two processes are {one / two:.2f} times as fast as one")


if __name__ == "__main__":
    main()
