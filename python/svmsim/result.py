"""Results of simulations: plain data, seen as polars frames."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

from svmsim._files import unreadable, write_text
from svmsim._result_check import faults
from svmsim.errors import UserError, problem

if TYPE_CHECKING:  # polars is imported when a frame is asked for, since it is slow and large
    import polars as pl
    from rich.console import Console, ConsoleOptions, RenderResult

    from svmsim.events import Events

__all__ = ["EXIT_COLUMNS", "Result"]

SCHEMA = 1
_MOST_FAULTS = 20
EXIT_COLUMNS = (
    "count",
    "time_ns",
    "min_ns",
    "max_ns",
    "mean_ns",
    "handling_ns",
    "polling_ns",
    "blocked_ns",
    "runqueue_ns",
    "cstate_ns",
    "error_pct",
)
"""What is known of each exit reason; `time_ns` is perf's, kvm_exit to the next kvm_entry, and
`error_pct` the standard error of its mean in per cent of it."""


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


class Result:
    """The result of one simulation; what `svmsim run --json` writes.

    Times are in ns of simulated time, unless a name says otherwise. Frames are made anew at each
    access and may be changed freely.
    """

    def __init__(self, data: Mapping[str, Any]) -> None:
        """Take the parsed JSON of a result.

        Raises:
            UserError: it is no result, a damaged one, or one of another schema.
        """
        if not isinstance(data, Mapping):
            raise UserError([problem("is not a JSON object")])
        data = dict(data)
        if data.get("schema") != SCHEMA or "exits" not in data:
            text = f"is not an svmsim result of schema {SCHEMA}"
            raise UserError([problem(text, path="schema")])
        wrong = faults(data)
        if wrong:
            raise UserError([problem(what, path=path) for path, what in wrong[:_MOST_FAULTS]])
        self._data = data
        self.events: Events | None = None
        """What happened, when `Scenario.run` was asked for it; no part of the JSON."""

    @classmethod
    def from_json(cls, text: str) -> Result:
        """Return the result that `to_json` wrote.

        Raises:
            UserError: the text is no JSON, or not of a result.
        """
        try:
            data = json.loads(text, parse_constant=_no_constant)
        except RecursionError:
            raise UserError([problem("is not JSON: nested too deep")]) from None
        except ValueError as error:  # of JSON, or of a number with too many digits
            raise UserError([problem(f"is not JSON: {error}")]) from None
        return cls(data)

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read a result from a file that `save` or `svmsim run --json` wrote.

        Raises:
            UserError: the file cannot be read, or holds no result.
        """
        file = Path(path)
        reason = unreadable(file)
        if reason is not None:
            raise UserError([problem(f"cannot be read: {reason}", source=str(path))])
        try:
            return cls.from_json(file.read_text(encoding="utf-8-sig", errors="replace"))
        except OSError as error:
            text = f"cannot be read: {(error.strerror or str(error)).lower()}"
            raise UserError([problem(text, source=str(path))]) from None
        except UserError as error:
            raise UserError([{**item, "source": str(path)} for item in error.problems]) from None

    def to_json(self) -> str:
        """Return the result as JSON text with a final newline, keys in a fixed order."""
        return json.dumps(self._data, indent=2, ensure_ascii=False) + "\n"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain data; a fresh copy."""
        return cast("dict[str, Any]", json.loads(self.to_json()))

    def save(self, path: str | Path) -> None:
        """Write the result as JSON, making missing directories.

        Raises:
            UserError: the file cannot be written.
        """
        write_text(Path(path), self.to_json())

    @property
    def scenario(self) -> dict[str, Any]:
        """The resolved scenario."""
        return cast("dict[str, Any]", self._data["scenario"])

    @property
    def version(self) -> str:
        """The version of svmsim that simulated."""
        return cast(str, self._data["version"])

    @property
    def sim_time_ns(self) -> int:
        """Simulated time."""
        return cast(int, self._data["sim_time_ns"])

    @property
    def wall_time_s(self) -> float:
        """Time that the simulation took; the one value that differs between equal runs."""
        return cast(float, self._data["wall_time_s"])

    @property
    def exit_totals(self) -> dict[str, dict[str, Any]]:
        """By exit name, summed over all vCPUs: the values of `EXIT_COLUMNS`."""
        return cast("dict[str, dict[str, Any]]", self._data["exits"])

    @property
    def workload(self) -> dict[str, Any]:
        """The workload's `kind` and what it measured (`metrics`)."""
        return cast("dict[str, Any]", self._data["workload"])

    @property
    def metrics(self) -> dict[str, Any]:
        """What the workload measured; for a harness `iterations` and `cycles_per_iteration`."""
        return cast("dict[str, Any]", self.workload.get("metrics", {}))

    @property
    def failure(self) -> str:
        """Why the workload ended early, as when its own check failed; empty when it did not."""
        return cast(str, self.workload.get("failure", ""))

    @property
    def advice(self) -> list[dict[str, str]]:
        """What could be set better: `id`, `text`, `setting` of each."""
        return cast("list[dict[str, str]]", self._data.get("advice", []))

    @property
    def exits(self) -> pl.DataFrame:
        """Frame of (vm, vcpu, exit) and `EXIT_COLUMNS`; one row for each exit that occurred."""
        rows = [
            {"vm": vcpu["vm"], "vcpu": vcpu["vcpu"], "exit": name}
            | {column: values.get(column) for column in EXIT_COLUMNS}
            for vcpu in self._data["vcpus"]
            for name, values in vcpu["exits"].items()
        ]
        return self._frame(
            rows, ("vm", "vcpu", "exit", *EXIT_COLUMNS), floats={"mean_ns", "error_pct"}
        )

    @property
    def halts(self) -> pl.DataFrame:
        """Frame of (vm, vcpu) and `EXIT_COLUMNS` of its halts: hlt and idle-halt exits together.

        `time_ns` is `handling_ns` + `polling_ns` + `blocked_ns` + `runqueue_ns` + `cstate_ns`. A
        vCPU without HLT exits has a row of zeros.
        """
        rows = [
            {"vm": vcpu["vm"], "vcpu": vcpu["vcpu"]}
            | {column: vcpu.get("halt", {}).get(column, 0) for column in EXIT_COLUMNS}
            for vcpu in self._data["vcpus"]
        ]
        return self._frame(rows, ("vm", "vcpu", *EXIT_COLUMNS), floats={"mean_ns", "error_pct"})

    @property
    def busy_reason(self) -> str:
        """Why the host is busy although its guests are idle, in one line; empty when it is not.

        Polling saturation, timer storm or halt storm, with the figures behind it.
        """
        return cast(str, self._data.get("busy_reason", ""))

    @property
    def tasks(self) -> pl.DataFrame:
        """Frame of the host's own threads: name, tid, run_ns, loops, and their wake-up latency.

        The latency is wakeup_count, wakeup_mean_ns, wakeup_p50_ns, wakeup_p99_ns, wakeup_max_ns:
        from the end of a sleep to the first instruction.
        """
        rows = []
        for task in self._data.get("tasks", []):
            plain = {name: value for name, value in task.items() if name != "wakeup"}
            latency = {f"wakeup_{name}": value for name, value in task["wakeup"].items()}
            rows.append(plain | latency)
        columns = [f"wakeup_{name}" for name in ("count", "mean_ns", "p50_ns", "p99_ns", "max_ns")]
        first = ("name", "tid", "run_ns", "loops", *columns)
        return self._frame(rows, first, floats={"wakeup_mean_ns"})

    @property
    def vcpus(self) -> pl.DataFrame:
        """Frame of (vm, vcpu) and KVM's statistics of it, named as in KVM's binary statistics."""
        rows = [
            {"vm": vcpu["vm"], "vcpu": vcpu["vcpu"], **vcpu["stats"]}
            for vcpu in self._data["vcpus"]
        ]
        return self._frame(rows, ("vm", "vcpu"))

    @property
    def pcpus(self) -> pl.DataFrame:
        """Frame of pcpu, guest_ns, host_ns, poll_ns, idle_ns, idle_<state>_ns, context_switches."""
        rows = []
        for pcpu in self._data["pcpus"]:
            idle = pcpu["idle_ns"]
            states = {f"idle_{name}_ns": time for name, time in idle.items()}
            rows.append({**pcpu, "idle_ns": sum(idle.values()), **states})
        return self._frame(rows, ("pcpu", "guest_ns", "host_ns", "poll_ns", "idle_ns"))

    @property
    def latency(self) -> pl.DataFrame:
        """Frame of latency kind (wakeup, ipi), count, mean_ns, p50_ns, p99_ns, max_ns."""
        rows = [{"kind": kind, **values} for kind, values in self._data["latency"].items()]
        return self._frame(rows, ("kind", "count", "mean_ns", "p50_ns", "p99_ns", "max_ns"))

    @staticmethod
    def _frame(
        rows: list[dict[str, Any]], first: tuple[str, ...], floats: set[str] | None = None
    ) -> pl.DataFrame:
        import polars as pl

        names = list(dict.fromkeys([*first, *(name for row in rows for name in row)]))
        columns = {name: [row.get(name) for row in rows] for name in names}
        texts = {"vm", "exit", "kind", "name"}

        def column(name: str, values: list[Any]) -> pl.Series:
            if name in texts:
                return pl.Series(name, values, dtype=pl.String)
            if any(isinstance(value, list) for value in values):
                return pl.Series(name, values, dtype=pl.List(pl.Int64))
            real = name in (floats or set()) or any(isinstance(v, float) for v in values)
            return pl.Series(name, values, dtype=pl.Float64 if real else pl.Int64)

        return pl.DataFrame([column(name, values) for name, values in columns.items()])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from svmsim._render import perf_text, result_view

        yield perf_text(self)
        yield result_view(self)

    def _repr_html_(self) -> str:
        from svmsim._html import result_html

        return result_html(self)

    def __repr__(self) -> str:
        counts = ", ".join(f"{name} {n}" for name, n in self._counts())
        return f"Result({self.workload.get('kind', '?')}: {counts or 'no exits'})"

    def _counts(self) -> Iterator[tuple[str, int]]:
        for name, values in self.exit_totals.items():
            yield name, values["count"]
