"""Scenarios: what a simulation shall do, from a TOML file or a dict."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from svmsim import _core
from svmsim._files import bad_text, check_output, read_text, same_file
from svmsim._progress import ProgressBar
from svmsim._toml import overrides as toml_overrides
from svmsim._toml import plain
from svmsim.errors import ScenarioError, UserError, problem
from svmsim.result import Result

__all__ = ["Scenario"]


def _check_texts(base_dir: str, overrides: tuple[Any, ...]) -> None:
    """Refuse what cannot cross into C++.

    Raises:
        ScenarioError: an override or the directory is no UTF-8 text.
    """
    problems = []
    if (reason := bad_text(base_dir)) is not None:
        problems.append(problem(f"the name of the directory {reason}", source=base_dir))
    for item in overrides:
        reason = bad_text(item) if isinstance(item, str) else f"is no text, but {item!r}"
        if reason is not None:
            where = item.partition("=")[0] if isinstance(item, str) else ""
            problems.append(problem(f"the override {reason}", source="--set", path=where))
    if problems:
        raise ScenarioError(problems)


def _parsed(file: Path, text: str) -> str:
    """Return TOML text as JSON.

    Raises:
        ScenarioError: it is not TOML, or has what JSON has not.
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        item = problem(f"is not TOML: {error}", source=str(file))
        raise ScenarioError([item]) from None
    except (RecursionError, ValueError) as error:  # nested too deep, or a number of many digits
        item = problem(f"is not TOML that can be read: {error}", source=str(file))
        raise ScenarioError([item]) from None
    return json.dumps(plain("", values, source=str(file)))


@dataclass(frozen=True, slots=True, eq=False)
class Scenario:
    """An immutable, valid scenario. Changing one gives another.

    Make it with `load` or `from_dict`. It holds plain data only, so it can be pickled and sent to
    another process. Two scenarios are equal when they resolve to the same values.
    """

    _name: str
    _source: str
    _base_dir: str
    _overrides: tuple[str, ...] = ()
    _resolved: str = field(default="", repr=False)

    @classmethod
    def load(cls, path: str | Path, overrides: Sequence[str] = ()) -> Scenario:
        """Read a TOML file.

        What is no regular file (`/dev/stdin`) is read once; files that it names are relative to
        the current directory.

        Args:
            path: the file.
            overrides: texts `key=value` as `--set` takes them; a single text is one override.

        Raises:
            ScenarioError: the file cannot be read, or it or an override is wrong; with every
                problem, each with its file, line and key.
        """
        file = Path(path)
        # A text is a sequence of texts too, but never meant as one.
        changes = (overrides,) if isinstance(overrides, str) else tuple(overrides)
        text = read_text(file)
        base_dir = str(file.resolve().parent) if file.is_file() else str(Path.cwd())
        _check_texts(base_dir, changes)
        if file.is_file():
            # The file itself is resolved first: only that knows the lines of what is wrong.
            resolved = _core.resolve(str(file), True, base_dir, list(changes))
            return cls(file.name, _parsed(file, text), base_dir, changes, resolved)
        # A pipe can be read only once, so what is wrong in it has a key, but no line.
        try:
            return cls._make(file.name, _parsed(file, text), base_dir, changes)
        except ScenarioError as error:
            named = {"<dict>": str(file)}
            raise ScenarioError(
                [
                    {**item, "source": named.get(item["source"], item["source"])}
                    for item in error.problems
                ]
            ) from None

    @classmethod
    def from_dict(cls, scenario: Mapping[str, Any], base_dir: str | Path = ".") -> Scenario:
        """Make a scenario of a dict laid out like the TOML file.

        Files that it names are relative to `base_dir`.

        Raises:
            ScenarioError: something in it is wrong; with every problem and its key.
        """
        source = json.dumps(plain("", scenario))
        _check_texts(str(base_dir), ())
        return cls._make("<dict>", source, str(Path(base_dir).resolve()), ())

    @classmethod
    def _make(cls, name: str, source: str, base_dir: str, changes: tuple[str, ...]) -> Scenario:
        _check_texts(base_dir, changes)
        resolved = _core.resolve(source, False, base_dir, list(changes))
        return cls(name, source, base_dir, changes, resolved)

    def with_(self, **changes: Any) -> Scenario:
        """Return the scenario with values changed: `with_(kvm={"avic": True})`.

        A full key goes in as `with_(**{"vm.vm0.vcpus": 2})`; `vm.x` means every VM.

        Raises:
            ScenarioError: a key or value is wrong.
        """
        added = tuple(toml_overrides(changes))
        return self._make(self._name, self._source, self._base_dir, (*self._overrides, *added))

    def overridden(self, overrides: Sequence[str]) -> Scenario:
        """Return the scenario with overrides as `--set` takes them: `["kvm.halt_poll_ns=0"]`.

        Raises:
            ScenarioError: an override is wrong.
        """
        changes = (*self._overrides, *overrides)
        return self._make(self._name, self._source, self._base_dir, changes)

    def set(self, key: str, value: Any) -> Scenario:
        """Return the scenario with one value changed: `set("kvm.halt_poll_ns", 0)`.

        Raises:
            ScenarioError: the key or value is wrong.
        """
        return self.with_(**{key: value})

    @property
    def resolved(self) -> dict[str, Any]:
        """Every parameter with its value, defaults filled in; a fresh copy."""
        return cast("dict[str, Any]", json.loads(self._resolved))

    def files(self) -> list[Path]:
        """Return the files that the scenario names, such as a profile or a recorded workload."""
        found: list[Path] = []
        values: list[Any] = [self.resolved]
        while values:
            value = values.pop()
            if isinstance(value, dict):
                values += value.values()
            elif isinstance(value, list):
                values += value
            elif isinstance(value, str) and "/" in value:
                path = Path(self._base_dir, value)
                found += [path] if path.is_file() else []
        return found

    def run(
        self,
        trace: str | Path | None = None,
        progress: bool | Callable[[float], None] = False,
        *,
        trace_format: str = "",
        markers: bool = False,
        events: bool = False,
        perfetto: str | Path | None = None,
        vcd: str | Path | None = None,
    ) -> Result:
        """Simulate and return the result.

        Args:
            trace: file for the events, in the words of host.kernel.
            trace_format: ``ftrace``, ``perf`` (as perf script prints them) or ``dat`` (trace-cmd's
                binary file); empty = by the suffix of `trace`: .perf, .dat, else ftrace.
            markers: the trace also gets what leaves no exit, as svmsim_guest events: HLT that did
                not exit, IPIs, EOIs and interrupts that AVIC delivered, and so on.
            events: keep the events, for `Result.events`; some 100 bytes for each.
            perfetto: file for a timeline that ui.perfetto.dev shows.
            vcd: file for waveforms of pCPUs and vCPUs, as GTKWave shows them; slows the run down.
            progress: True shows a bar on standard error when it takes more than two seconds; a
                function gets the share of the work done now and then, 0 to 1, or -1 when the
                scenario has no known end; it may raise to stop the simulation.

        Raises:
            UserError: a file cannot be written, or is a file that the scenario names; or there are
                more than 20 million events to keep.
            InternalError: a bug of svmsim.
        """
        for output in (trace, perfetto, vcd):
            if output is None:
                continue
            check_output(Path(output))
            if any(same_file(Path(output), file) for file in self.files()):
                raise UserError([problem("cannot be written: it is an input", source=str(output))])
        target, waveform = ("" if path is None else str(path) for path in (trace, vcd))
        columns: dict[str, Any] | None = {} if events or perfetto is not None else None
        with ProgressBar(self._name, enabled=progress is True) as bar:
            # The bar is passed even when it stays silent: through it an interrupt (Ctrl-C) arrives.
            report = progress if callable(progress) else bar
            changes = list(self._overrides)
            text = _core.run(
                self._source,
                False,
                self._base_dir,
                changes,
                target,
                report,
                waveform=waveform,
                events=columns,
                trace_format=trace_format,
                markers=markers,
            )
        result = Result.from_json(text)
        if columns is not None:
            from svmsim.events import Events

            result.events = Events.of_run(columns, result.scenario)
        if perfetto is not None:
            from svmsim._perfetto import write_perfetto

            assert result.events is not None
            write_perfetto(result.events, Path(perfetto))
        return result

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Scenario) and self._resolved == other._resolved

    def __hash__(self) -> int:
        return hash(self._resolved)

    def _repr_html_(self) -> str:
        from svmsim._html import scenario_html

        return scenario_html(self)

    def __repr__(self) -> str:
        return f"Scenario({', '.join([self._name, *self._overrides])})"
