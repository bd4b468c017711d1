"""Mutation testing of svm/ and apic/: see scripts/mutate.

A mutant is one source file with one change. Its object is compiled and linked before the room's
archive, so that it takes the place of the original. Mutants that do not compile, or that compile to
the original's bytes, are no mutants and are replaced by the next of the sample.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

ROOT = Path(__file__).resolve().parents[2]
# The code that decides, by room; tables of names, readers of files and printers are not it.
# Rules of apic/ that stand in headers are compiled into several objects, and are left out.
SOURCES = {
    "svm": [
        "svm/event_delivery*.cpp",
        "svm/exception*.cpp",
        "svm/execute*.cpp",
        "svm/hlt.cpp",
        "svm/instruction_rules.cpp",
        "svm/intercept*.cpp",
        "svm/pause_filter*.cpp",
        "svm/permission_map.cpp",
        "svm/vmrun*.cpp",
        "svm/clean_bits*.cpp",
        "svm/sev_es*.cpp",
    ],
    "apic": [
        "apic/apic_registers.cpp",
        "apic/apic_timer.cpp",
        "apic/io_apic.cpp",
        "apic/local_apic*.cpp",
        "apic/avic/*.cpp",
    ],
}
TEST_TIMEOUT_S = 60
NO_MUTANT = "no mutant"


@dataclass(frozen=True)
class Mutant:
    """One changed line of one source."""

    source: str
    line: int
    before: str
    after: str
    text: str


@dataclass(frozen=True)
class Verdict:
    mutant: Mutant
    killer: str  # "cases", "unit tests", "" = survived, NO_MUTANT


def decision_sources(room: str) -> list[Path]:
    found = {path for pattern in SOURCES[room] for path in ROOT.glob(pattern)}
    return sorted(found)


def changed_line(original: list[str], mutated: list[str]) -> tuple[int, str, str]:
    for number, (before, after) in enumerate(zip(original, mutated, strict=False), 1):
        if before != after:
            return number, before.strip(), after.strip()
    return len(original), "", ""


def mutants_of(source: Path, mutate: str) -> list[Mutant]:
    """All changes that the generator knows for a file, in the order of its lines."""
    with tempfile.TemporaryDirectory() as directory:
        subprocess.run(
            [mutate, str(source), "--noCheck", "--mutantDir", directory],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd=directory,
        )
        original = source.read_text().splitlines()
        found = set()
        for path in Path(directory).iterdir():
            text = path.read_text()
            line, before, after = changed_line(original, text.splitlines())
            if before.startswith(("//", "#", "using ", "namespace ", "[[")):
                continue
            if '"' in before:  # a name or a message, which decides nothing
                continue
            relative = str(source.relative_to(ROOT))
            found.add(Mutant(relative, line, before, after, text))
    return sorted(found, key=lambda mutant: (mutant.line, mutant.after))


class Workshop:
    """Compiles and links mutants with the commands of the build tree."""

    def __init__(self, tree: Path, room: str) -> None:
        self._tree = tree
        self._archive = f"libsvmsim_{room}.a"
        self._unit_tests = f"test_{room}"
        commands = json.loads((tree / "compile_commands.json").read_text())
        self._compile = {
            str(Path(entry["file"]).relative_to(ROOT)): shlex.split(entry["command"])
            for entry in commands
        }
        self._link = {
            name: self._link_command(name) for name in ("svmsim_run_cases", self._unit_tests)
        }
        self._originals = {
            str(source.relative_to(ROOT)): self._original(source)
            for source in decision_sources(room)
        }

    def _original(self, source: Path) -> bytes:
        """The code of an unchanged source, compiled as its mutants are."""
        with tempfile.TemporaryDirectory(dir=self._tree) as directory:
            copy = Path(directory) / source.name
            copy.write_text(source.read_text())
            compiled = Path(directory) / "original.o"
            if not self._build_object(str(source.relative_to(ROOT)), copy, compiled):
                sys.exit(f"{source} does not compile")
            return code_of(compiled)

    def _link_command(self, target: str) -> list[str]:
        listing = subprocess.run(
            ["ninja", "-C", str(self._tree), "-t", "commands", "-s", f"tests/{target}"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        command = listing.strip().splitlines()[-1]
        words = shlex.split(command)
        return [word for word in words if word not in (":", "&&")]

    def judge(self, mutant: Mutant) -> Verdict:
        with tempfile.TemporaryDirectory(dir=self._tree) as directory:
            source = Path(directory) / Path(mutant.source).name
            source.write_text(mutant.text)
            mutated = Path(directory) / "mutant.o"
            if not self._build_object(mutant.source, source, mutated):
                return Verdict(mutant, NO_MUTANT)
            if code_of(mutated) == self._originals[mutant.source]:
                return Verdict(mutant, NO_MUTANT)
            for target, killer, arguments in (
                ("svmsim_run_cases", "cases", []),
                (self._unit_tests, "unit tests", ["--abort-after=1", "--no-breaks"]),
            ):
                program = Path(directory) / target
                if not self._link_program(target, mutated, program):
                    return Verdict(mutant, NO_MUTANT)
                if not passes([str(program), *arguments]):
                    return Verdict(mutant, killer)
        return Verdict(mutant, "")

    def _build_object(self, name: str, source: Path, output: Path) -> bool:
        command = [word for word in self._compile[name] if not word.endswith("ccache")]
        command[command.index("-o") + 1] = str(output)
        command[command.index("-c") + 1] = str(source)
        for flag in ("-MD", "-Werror"):
            if flag in command:
                command.remove(flag)
        for flag in ("-MT", "-MF"):
            if flag in command:
                del command[command.index(flag) : command.index(flag) + 2]
        done = subprocess.run([*command, "-g0"], cwd=self._tree, capture_output=True, check=False)
        return done.returncode == 0

    def _link_program(self, target: str, mutated: Path, output: Path) -> bool:
        command = list(self._link[target])
        command[command.index("-o") + 1] = str(output)
        archive = next(i for i, word in enumerate(command) if word.endswith(self._archive))
        command.insert(archive, str(mutated))
        done = subprocess.run(command, cwd=self._tree, check=False, capture_output=True)
        return done.returncode == 0


def code_of(path: Path) -> bytes:
    """The code of an object, without what depends on the name of its source."""
    sections = path.with_suffix(".bin")
    subprocess.run(["objcopy", "--strip-all", str(path), str(sections)], check=True)
    return sections.read_bytes()


def passes(command: list[str]) -> bool:
    environment = {**os.environ, "RC_PARAMS": "seed=20240604 max_success=20"}
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=TEST_TIMEOUT_S, env=environment, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def judge_sample(workshop: Workshop, mutants: list[Mutant], count: int, jobs: int) -> list[Verdict]:
    """The verdicts of the first `count` real mutants, in the order of the sample."""
    verdicts: list[Verdict] = []
    columns = (TextColumn("mutants"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        ThreadPoolExecutor(jobs) as pool,
        Progress(*columns, console=Console(stderr=True)) as progress,
    ):
        task = progress.add_task("", total=count)
        waiting = iter(mutants)
        while len(verdicts) < count:
            batch = [next(waiting, None) for _ in range(2 * jobs)]
            present = [mutant for mutant in batch if mutant is not None]
            if not present:
                break
            for verdict in pool.map(workshop.judge, present):
                if verdict.killer != NO_MUTANT and len(verdicts) < count:
                    verdicts.append(verdict)
                    progress.advance(task)
                    if not sys.stderr.isatty() and len(verdicts) % 20 == 0:
                        print(f"{len(verdicts)} of {count} mutants", file=sys.stderr, flush=True)
    return verdicts


def report(verdicts: list[Verdict], total: int, seed: int) -> str:
    cases = sum(verdict.killer == "cases" for verdict in verdicts)
    units = sum(verdict.killer == "unit tests" for verdict in verdicts)
    survivors = [verdict.mutant for verdict in verdicts if verdict.killer == ""]
    size = len(verdicts)
    lines = [
        f"{size} mutants (seed {seed}) of {total} possible changes.",
        "",
        "| noticed by | mutants | share |",
        "|---|--:|--:|",
        f"| conformance cases | {cases} | {100 * cases / size:.1f} % |",
        f"| only the unit tests | {units} | {100 * units / size:.1f} % |",
        f"| nobody | {len(survivors)} | {100 * len(survivors) / size:.1f} % |",
        "",
        "Only the unit tests notice:",
        "",
    ]
    unit_only = [verdict.mutant for verdict in verdicts if verdict.killer == "unit tests"]
    for title, mutants in (("", unit_only), ("Nobody notices:", survivors)):
        if title:
            lines += ["", title, ""]
        ordered = sorted(mutants, key=lambda mutant: (mutant.source, mutant.line))
        lines += [f"* `{m.source}:{m.line}` `{m.before}` → `{m.after}`" for m in ordered]
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutate", required=True, help="universalmutator's command")
    parser.add_argument("--tree", type=Path, required=True, help="build tree")
    parser.add_argument("--room", choices=sorted(SOURCES), default="svm")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--report", type=Path, help="also write the report here")
    options = parser.parse_args()
    mutate = str(Path(options.mutate).resolve())
    mutants = [
        mutant for source in decision_sources(options.room) for mutant in mutants_of(source, mutate)
    ]
    random.Random(options.seed).shuffle(mutants)
    workshop = Workshop(options.tree.resolve(), options.room)
    verdicts = judge_sample(workshop, mutants, options.count, options.jobs)
    text = report(verdicts, len(mutants), options.seed)
    sys.stdout.write(text)
    if options.report is not None:
        options.report.write_text(text)
    killed = sum(verdict.killer == "cases" for verdict in verdicts)
    return 0 if killed >= 0.9 * len(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
