"""Events of a run as a table, and the table as events again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from svmsim.events import FIELDS, Events

__all__ = ["events_frame", "events_of", "load_columns", "save_columns"]


def save_columns(path: Path, columns: Mapping[str, Any]) -> None:
    """Write what `_core.run` gives, in a worker, which has no polars."""
    threads = columns["threads"]
    with path.open("wb") as file:
        np.savez(
            file,
            kinds=np.array(columns["kinds"]),
            tids=np.array([tid for tid, _ in threads], dtype=np.int64),
            names=np.array([name for _, name in threads], dtype=np.str_),
            **{name: columns[name] for name in ("time_ns", "kind", "cpu", "tid", "fields")},
        )


def load_columns(path: Path) -> dict[str, Any]:
    """Read what `save_columns` wrote."""
    with np.load(path) as file:
        columns: dict[str, Any] = {
            name: file[name] for name in ("time_ns", "kind", "cpu", "tid", "fields")
        }
        columns["kinds"] = [str(name) for name in file["kinds"]]
        pairs = zip(file["tids"], file["names"], strict=True)
        columns["threads"] = [(int(tid), str(name)) for tid, name in pairs]
    return columns


def events_frame(columns: Mapping[str, Any], scenario: Mapping[str, Any]) -> pl.DataFrame:
    """Return the events of a run of a resolved scenario as the table `events`."""
    frame = Events.of_run(columns, scenario).frame
    names = pl.DataFrame(
        columns["threads"], schema={"tid": pl.Int64, "task": pl.String}, orient="row"
    )
    return (
        frame.with_columns(
            pl.col("event").cast(pl.String), pl.col("cpu", "tid", "vcpu").cast(pl.Int64)
        )
        .join(names, on="tid", how="left", maintain_order="left")
        .select(
            "time_ns", "event", "cpu", "tid", "task", "vm", "vcpu",
            *(f"field_{index}" for index in range(FIELDS)),
        )
    )  # fmt: skip


def events_of(frame: pl.DataFrame) -> Events:
    """Return what `events_frame` had."""
    kinds = frame["event"].unique(maintain_order=True).to_list()
    numbers = {name: number for number, name in enumerate(kinds)}
    fields = frame.select(f"field_{index}" for index in range(FIELDS)).to_numpy()
    tasks = frame.select("tid", "task").unique(maintain_order=True).sort("tid")
    vcpus = frame.select("tid", "vm", "vcpu").drop_nulls().unique(maintain_order=True)
    columns = {
        "time_ns": frame["time_ns"].to_numpy().astype(np.uint64),
        "kind": frame["event"].replace_strict(numbers, return_dtype=pl.UInt8).to_numpy(),
        "cpu": frame["cpu"].to_numpy().astype(np.int32),
        "tid": frame["tid"].to_numpy().astype(np.int32),
        "fields": np.ascontiguousarray(fields, dtype=np.uint64),
        "kinds": kinds,
        "threads": list(tasks.iter_rows()),
    }
    return Events(columns, {tid: (vm, vcpu) for tid, vm, vcpu in vcpus.iter_rows()})
