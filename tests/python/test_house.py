"""Rules of the repository itself: rooms, includes, paths, what the README promises."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import svmsim

INCLUDE = re.compile(r"^\s*#\s*include\s*[<\"](?:\.\./)*([^>\"]+)[>\"]", re.MULTILINE)
SYSTEMC = r"systemc|sysc|tlm"
FLOORS = {
    "svm": rf"(apic|workloads|model|python)/|{SYSTEMC}|pybind11",
    "apic": rf"(workloads|model|python)/|{SYSTEMC}|pybind11",
    "workloads": rf"(model|python)/|{SYSTEMC}|pybind11",
    "model": r"python/|pybind11",
    "model/policy": SYSTEMC,
    "model/guest": SYSTEMC,
    "model/config": SYSTEMC,
    "model/stats": SYSTEMC,
}


def _includes(file: Path) -> list[str]:
    return INCLUDE.findall(file.read_text(encoding="utf-8"))


def _sources(directory: Path) -> Iterator[Path]:
    for pattern in ("*.hpp", "*.h", "*.cpp"):
        yield from sorted(directory.rglob(pattern))


@pytest.mark.parametrize("room", FLOORS)
def test_a_room_includes_only_lower_rooms(root: Path, room: str) -> None:
    forbidden = re.compile(FLOORS[room])
    bad = [
        f"{file.relative_to(root)}: {name}"
        for file in _sources(root / room)
        for name in _includes(file)
        if forbidden.match(name)
    ]
    assert bad == []


def test_the_facade_shows_no_systemc(root: Path) -> None:
    """Not even through what it includes from this repository."""
    seen: set[Path] = set()
    open_files = [root / "model" / "simulation.hpp"]
    while open_files:
        file = open_files.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in _includes(file):
            assert not re.match(SYSTEMC, name), file
            if (root / name).is_file():
                open_files.append(root / name)
    assert len(seen) > 3


def _tracked(root: Path, *patterns: str) -> list[Path]:
    if not (root / ".git").exists():
        pytest.skip("needs a git checkout")
    command = ["git", "ls-files", "-z", "--", *patterns]
    done = subprocess.run(command, cwd=root, check=True, capture_output=True, text=True)
    return [root / name for name in done.stdout.split("\0") if name and (root / name).is_file()]


def test_no_path_of_a_machine_and_no_registry_address(root: Path) -> None:
    places = "|".join(("work", "farm", "root"))
    bad = re.compile(
        rf"(^|[^A-Za-z0-9._/-])/({places})/|--(extra-)?index-"
        + r"url|https?://[^ ]*/(simple|packages)/",
        re.MULTILINE,
    )
    for file in _tracked(root):
        text = file.read_bytes().decode("utf-8", errors="replace")
        assert bad.search(text) is None, file


def test_every_lock_entry_has_hashes(root: Path) -> None:
    text = (root / "requirements.lock").read_text().replace("\\\n", " ")
    entries = [line for line in text.splitlines() if line and not line.lstrip().startswith("#")]
    assert len(entries) > 20
    assert all(re.match(r"[a-z0-9-]+==\S+ +--hash=sha256:", entry) for entry in entries)


def test_files_can_be_read_at_one_sitting(root: Path) -> None:
    long = {
        str(file.relative_to(root)): count
        for file in _tracked(root, "*.cpp", "*.hpp", "*.py")
        if (count := len(file.read_text().splitlines())) > 700
    }
    assert long == {}


def test_every_cpp_test_is_globbed(root: Path) -> None:
    for file in (root / "tests").rglob("*.cpp"):
        if file.name == "test_main.cpp":
            continue
        room = file.relative_to(root / "tests").parts[0]
        assert room in {"svm", "apic", "workloads", "model", "fuzz", "mutation", "oracle"}, file
        # These two have a CMakeLists.txt of their own.
        assert room in {"fuzz", "mutation", "oracle"} or file.name.startswith("test_"), file


def test_readme_shows_the_commands_and_its_picture(root: Path) -> None:
    text = (root / "README.md").read_text()
    for command in ("./scripts/demo", "./scripts/test"):
        assert command in text
        assert os.access(root / command, os.X_OK)
    pictures = re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    assert pictures
    for picture in pictures:
        assert (root / picture).is_file(), picture
    assert "scripts/test" in (root / ".ci" / "run").read_text()


def test_readme_example_runs(root: Path, tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 12
    (tmp_path / "examples").symlink_to(root / "examples")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "hlt" in done.stdout
    assert list(tmp_path.rglob("*.png"))


def test_every_example_resolves(root: Path) -> None:
    examples = sorted((root / "examples").glob("*.toml"))
    assert examples
    for example in examples:
        svmsim.Scenario.load(example)


def test_versions_agree(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    assert svmsim.__version__ == project["version"]
    assert f"VERSION {project['version']}" in (root / "CMakeLists.txt").read_text()
