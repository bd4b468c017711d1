"""Results of many runs: a data set of Parquet tables, read when they are needed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from svmsim.errors import UserError, problem
from svmsim.result import Result
from svmsim.table.metrics import metric_names, metric_values
from svmsim.table.paths import differing_keys, value_at
from svmsim.table.rows import TableBuilder
from svmsim.table.schema import SCHEMA, TABLES, table_schema

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console, ConsoleOptions, RenderResult

    from svmsim.analysis.comparison import Comparison
    from svmsim.analysis.exits import Exits
    from svmsim.analysis.halts import Halts
    from svmsim.analysis.ipi import Ipi
    from svmsim.analysis.latency import Latency
    from svmsim.analysis.sched import Sched
    from svmsim.campaign.journal import Record

__all__ = ["ResultTable"]

ABOUT_FILE = "campaign.json"
TABLES_DIRECTORY = "tables"
NEW_TABLES_DIRECTORY = ".tables.new"
EVENTS_DIRECTORY = "events"
JOURNAL_DIRECTORY = "journal"

_UNFINISHED = "the campaign is unfinished: the same `svmsim sweep` finishes it"


def _table_file(directory: Path, name: str) -> Path:
    """Return the file of a table; after a kill while tables are replaced, the new one."""
    new = directory / NEW_TABLES_DIRECTORY / f"{name}.parquet"
    return new if new.is_file() else directory / TABLES_DIRECTORY / f"{name}.parquet"


class ResultTable:
    """The results of a campaign, or of any results put together by `of`.

    Its tables are declared in `svmsim.table.schema` and described in docs/results.md. They are
    read lazily: `scan` gives a polars LazyFrame, `frame` a DataFrame with the swept parameters.
    """

    def __init__(
        self,
        about: Mapping[str, Any],
        *,
        path: Path | None = None,
        frames: Mapping[str, pl.DataFrame] | None = None,
    ) -> None:
        self._about = dict(about)
        self._path = path
        self._frames = dict(frames or {})
        self.records: dict[str, Record] = {}
        """Where single results stand in the journal, once one was asked for."""

    @classmethod
    def load(cls, path: str | Path) -> ResultTable:
        """Open the directory that a campaign wrote.

        Raises:
            UserError: there are no results of a campaign, or of another version of the tables.
        """
        directory = Path(path)
        file = directory / ABOUT_FILE
        try:
            about = json.loads(file.read_text(encoding="utf-8"))
        except OSError:
            text = "holds no results of a campaign"
            if (directory / JOURNAL_DIRECTORY).is_dir():
                text = _UNFINISHED
            raise UserError([problem(text, source=str(path))]) from None
        except ValueError as error:
            text = f"is damaged: {error}"
            raise UserError([problem(text, source=str(file))]) from None
        if not isinstance(about, dict) or about.get("schema") != SCHEMA:
            text = f"is not of schema {SCHEMA}"
            raise UserError([problem(text, source=str(file))])
        places = (TABLES_DIRECTORY, NEW_TABLES_DIRECTORY)
        if not any((directory / name).is_dir() for name in places):
            raise UserError([problem(_UNFINISHED, source=str(path))])
        damaged = [
            problem("is damaged: the same `svmsim sweep` makes it anew", source=str(file))
            for name, size in about.get("tables", {}).items()
            for file in [_table_file(directory, name)]
            if not file.is_file() or file.stat().st_size != size
        ]
        if damaged:
            raise UserError(damaged)
        return cls(about, path=directory)

    @classmethod
    def of(
        cls,
        results: Mapping[str, Result] | Iterable[Result],
        *,
        name: str = "results",
    ) -> ResultTable:
        """Put results of single runs together; what differs in their scenarios is what was swept.

        Labels of a mapping become the column `label`; equal scenarios are one configuration.

        Raises:
            UserError: there are no results.
        """
        labels = list(results) if isinstance(results, Mapping) else None
        chosen = list(results.values() if isinstance(results, Mapping) else results)
        if not chosen:
            raise UserError([problem("no results: give at least one")])
        keys = differing_keys([result.scenario for result in chosen])
        builder = TableBuilder()
        numbers: dict[str, int] = {}
        for number, result in enumerate(chosen):
            swept: dict[str, Any] = {} if labels is None else {"label": labels[number]}
            swept |= {key: value_at(result.scenario, key) for key in keys}
            scenario = json.loads(json.dumps(result.scenario))
            seed = scenario.get("run", {}).get("seed", 0)
            scenario.setdefault("run", {})["seed"] = 1
            text = json.dumps(scenario)
            identity = json.dumps([text, swept], default=str)
            if identity not in numbers:
                numbers[identity] = len(numbers)
                configuration: dict[str, Any] = {
                    "label": label_of(swept),
                    "scenario": text,
                    "inputs": "{}",
                    "swept": {k: v for k, v in swept.items() if k != "label"},
                }
                if labels is not None:
                    configuration["label"] = labels[number]
                builder.add_configuration(numbers[identity], configuration)
            digest = hashlib.sha256(f"{text}{result.version}{seed}".encode()).hexdigest()
            run = {
                "run": number,
                "run_id": digest[:20],
                "configuration": numbers[identity],
                "seed": seed,
                "version": result.version,
                "build": None,
            }
            builder.add_run(run, swept, {"status": "ok", "result": result.to_dict()})
        swept_names = [*(["label"] if labels is not None else []), *keys]
        about = {"schema": SCHEMA, "name": name, "question": "", "sweep": swept_names}
        return cls(about, frames=builder.frames())

    @property
    def path(self) -> Path | None:
        """The campaign's directory; None when the table is in memory alone."""
        return self._path

    @property
    def about(self) -> dict[str, Any]:
        """What campaign.json says: name, question, version, what was swept, counts of runs."""
        return dict(self._about)

    @property
    def name(self) -> str:
        """Name of the campaign."""
        return str(self._about.get("name", ""))

    @property
    def sweep(self) -> tuple[str, ...]:
        """The swept parameters, which are columns of `runs` and `configurations`."""
        return tuple(self._about.get("sweep", ()))

    def scan(self, table: str) -> pl.LazyFrame:
        """Return a table as a LazyFrame: nothing is read until it is collected.

        Raises:
            UserError: there is no such table, or it is not there.
        """
        schema = table_schema(table)
        if table in self._frames:
            return self._frames[table].lazy()
        if table == "events":
            return self._scan_events()
        if self._path is None:
            text = "these results have no such table"
            raise UserError([problem(text, path=table)])
        file = _table_file(self._path, schema.name)
        if not file.is_file():
            raise UserError([problem("cannot be read: no such file", source=str(file))])
        return pl.scan_parquet(file)

    def _scan_events(self) -> pl.LazyFrame:
        if self._path is None or not self.has_events:
            text = "no events were kept: set events = true in the campaign"
            raise UserError([problem(text, path="events")])
        directory = self._path / EVENTS_DIRECTORY
        numbers = self.scan("runs").select("run", "run_id")
        events = pl.scan_parquet(directory / "*.parquet", include_file_paths="run_id")
        run_id = pl.col("run_id").str.extract(r"([0-9a-f]+)\.parquet$")
        joined = events.with_columns(run_id).join(numbers, on="run_id", maintain_order="left")
        return joined.select("run", pl.exclude("run", "run_id"))

    @property
    def has_events(self) -> bool:
        """Whether the campaign's directory has the events of runs."""
        directory = self._path / EVENTS_DIRECTORY if self._path is not None else None
        return directory is not None and any(directory.glob("*.parquet"))

    def in_memory(self) -> ResultTable:
        """Return the same results, read whole, for when their directory goes away."""
        names = [name for name in TABLES if name != "events"]
        if self.has_events:
            names.append("events")
        return ResultTable(self._about, frames={name: self.scan(name).collect() for name in names})

    @property
    def runs(self) -> pl.LazyFrame:
        """The table `runs`, one row for each run."""
        return self.scan("runs")

    @property
    def configurations(self) -> pl.DataFrame:
        """The table `configurations`, one row for each."""
        return self.scan("configurations").collect()

    def frame(self, table: str = "runs") -> pl.DataFrame:
        """Return a table as a DataFrame, with configuration, seed and swept values in each row.

        Raises:
            UserError: there is no such table.
        """
        rows = self.scan(table)
        if table in ("runs", "configurations"):
            return rows.collect()
        keys = self.runs.select("run", "configuration", "seed", *self.sweep)
        columns = [name for name in rows.collect_schema().names() if name != "run"]
        joined = keys.join(rows, on="run", maintain_order="right")
        return joined.select("run", "configuration", "seed", *self.sweep, *columns).collect()

    def metrics(self) -> list[str]:
        """Return the names that `metric`, `compare` and plots take."""
        return metric_names(self.scan)

    def metric(self, name: str) -> pl.DataFrame:
        """Return run, configuration, seed, the swept parameters and `value` of a metric.

        Metrics are numeric columns of `runs` (`busy_ns`), `exits.hlt.count`, `exits.count` (all
        reasons), `halts.halt_wait_ns`, `latency.wakeup.p99_ns`, `pcpus.poll_ns`,
        `workload.cycles_per_iteration`. Failed runs have no value.

        Raises:
            UserError: there is no such metric; with the nearest.
        """
        values = metric_values(name, self.scan)
        keys = self.runs.select("run", "configuration", "seed", *self.sweep).collect()
        return keys.join(values, on="run", how="left", maintain_order="left")

    def summary(self, metric: str, by: str | Sequence[str] | None = None) -> pl.DataFrame:
        """Return the mean of a metric with its 95 % bootstrap interval for each combination.

        Args:
            metric: as for `metric`.
            by: swept parameters; default: all.

        Returns:
            Frame of the parameters, runs, mean, low, high; the interval of a single run is null.

        Raises:
            UserError: there is no such metric, or no such swept parameter.
        """
        from svmsim.analysis.summary import summary

        return summary(self, metric, by)

    def compare(
        self,
        key: str | None = None,
        metric: str | Sequence[str] | None = None,
        *,
        baseline: Any = None,
    ) -> Comparison:
        """Compare the values of a swept parameter, paired by everything else and the seed.

        Args:
            key: the parameter; default: the campaign's `compare`, or the first that is swept.
            metric: names as for `metric`; default: the campaign's, or exits, times and latencies.
            baseline: the value that others are compared with; default: False, or the first.

        Raises:
            UserError: there is no such parameter, value or metric.
        """
        from svmsim.analysis.comparison import compare_key

        if key is None:
            key = self._about.get("compare") or (self.sweep[0] if self.sweep else "")
        metrics = [metric] if isinstance(metric, str) else metric
        return compare_key(self, key, metrics, baseline)

    @property
    def exits(self) -> Exits:
        """Analyses of VM exits: what there were and what they cost."""
        from svmsim.analysis.exits import Exits

        return Exits(self)

    @property
    def halts(self) -> Halts:
        """Analyses of halts: polling, blocking, waking up."""
        from svmsim.analysis.halts import Halts

        return Halts(self)

    @property
    def ipi(self) -> Ipi:
        """Analyses of IPIs: latency, the exits that they cost, AVIC."""
        from svmsim.analysis.ipi import Ipi

        return Ipi(self)

    @property
    def sched(self) -> Sched:
        """Analyses of physical CPUs: who used them, how long vCPUs waited for them."""
        from svmsim.analysis.sched import Sched

        return Sched(self)

    @property
    def latency(self) -> Latency:
        """Analyses of latencies, and of the CPU time burnt for them."""
        from svmsim.analysis.latency import Latency

        return Latency(self)

    def result(self, run: int) -> Result:
        """Return the whole result of one run, with its events if the campaign kept them.

        Raises:
            UserError: there is no such run, it failed, or the table is in memory alone.
        """
        from svmsim.table.single import single_result

        return single_result(self, run)

    @property
    def failures(self) -> pl.DataFrame:
        """The runs that failed, with their errors; those whose workload failed as well."""
        bad = (pl.col("status") != "ok") | pl.col("failure").is_not_null()
        names = ["run", "run_id", "seed", *self.sweep, "status", "error", "failure"]
        return self.runs.filter(bad).select(names).collect()

    def to_pandas(self, table: str = "runs") -> pd.DataFrame:
        """Return `frame(table)` as a pandas DataFrame.

        Raises:
            UserError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            text = "needs pandas: pip install svmsim[pandas]"
            raise UserError([problem(text, path="to_pandas")]) from None
        rows = self.frame(table)
        return pd.DataFrame({name: rows[name].to_list() for name in rows.columns})

    def _repr_html_(self) -> str:
        from svmsim.table.view import table_html

        return table_html(self)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from svmsim.table.view import table_view

        yield table_view(self)

    def __len__(self) -> int:
        return int(self.runs.select(pl.len()).collect().item())

    def __repr__(self) -> str:
        swept = ", ".join(self.sweep) or "nothing"
        return f"ResultTable({self.name}: {len(self)} runs over {swept})"


def label_of(swept: Mapping[str, Any]) -> str:
    """Return swept values in words: `idle_hlt=true, halt_poll_ns=0`; last parts of keys."""
    from svmsim._render import value_text

    lasts = [key.rpartition(".")[2] for key in swept]
    shown: Sequence[str] = lasts if len(set(lasts)) == len(lasts) else list(swept)
    parts = zip(shown, swept.values(), strict=True)
    return ", ".join(f"{name}={value_text(value)}" for name, value in parts) or "base"
