"""The documentation says what is so. The whole site is built, without warnings, by scripts/test."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

PAGES = ("README.md", "docs")


def extension(root: Path, name: str) -> ModuleType:
    pytest.importorskip("sphinx", reason="Sphinx is not installed")
    spec = importlib.util.spec_from_file_location(name, root / "docs" / "_ext" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def pages(root: Path) -> Iterator[Path]:
    for name in PAGES:
        place = root / name
        yield from [place] if place.is_file() else sorted(place.rglob("*.md"))


def blocks(page: Path, language: str) -> list[str]:
    pattern = rf"^```{language}\n(.*?)^```"
    return re.findall(pattern, page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_tutorial_runs(root: Path, tmp_path: Path) -> None:
    code = "\n".join(blocks(root / "docs" / "tutorial.md", "python"))
    assert "sv.Campaign(" in code
    (tmp_path / "examples").symlink_to(root / "examples")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    without, polling = (float(line.split()[0]) for line in done.stdout.splitlines()[:2])
    assert polling < without / 2  # as the page says
    assert (tmp_path / "out" / "polling.png").is_file()
    assert (tmp_path / "out" / "naps" / "campaign.json").is_file()


def commands() -> dict[str, Any]:
    import typer

    from svmsim._all_commands import app

    found: dict[str, Any] = {}

    def add(command: Any, name: str) -> None:
        inner = getattr(command, "commands", None)
        if inner is None:
            found[name] = command
        for key, one in (inner or {}).items():
            add(one, f"{name} {key}".strip())

    add(typer.main.get_command(app), "")
    return found


def test_commands_in_the_documentation_exist(root: Path) -> None:
    known = commands()
    seen = 0
    for page in pages(root):
        for block in blocks(page, "sh"):
            for line in re.findall(r"^svmsim (.*?)(?:\s+#.*|\s*[|;].*)?$", block, re.MULTILINE):
                words = shlex.split(line)
                if words[0].startswith("-"):
                    continue
                name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
                assert name in known, f"{page.name}: svmsim {line}"
                options = {option for p in known[name].params for option in p.opts}
                for word in words:
                    if word.startswith("-") and word != "-":
                        assert word.partition("=")[0] in options, f"{page.name}: svmsim {line}"
                seen += 1
    assert seen > 20


def test_links_lead_to_files(root: Path) -> None:
    for page in pages(root):
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s]+)", text):
            if "://" in target or "_generated/" in target:
                continue
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_page_is_in_the_contents(root: Path) -> None:
    index = (root / "docs" / "index.md").read_text()
    for page in (root / "docs").rglob("*.md"):
        name = page.relative_to(root / "docs").with_suffix("").as_posix()
        if not name.startswith("_") and name != "index":
            assert re.search(rf"^{re.escape(name)}$", index, re.MULTILINE), name


def test_what_classes_leave_out(root: Path) -> None:
    declared = extension(root, "declared")
    text = (
        "/// Rings bells (APM vol. 2, 1.2).\n/// Left out: their\n/// weight.\nclass Bell {\n"
        "/// Says nothing of it.\nstruct Other {\n/// Left out: no class follows.\nint x;\n"
    )
    assert list(declared._classes(text)) == [
        ("Bell", "Rings bells (APM vol. 2, 1.2).", "their weight.")
    ]
    assert "`GuestCpu` (svm/guest_cpu.hpp)" in declared.left_out_page(root)


def test_docstrings_may_have_markdown(root: Path) -> None:
    declared = extension(root, "declared")
    lines = ["Use `run`, not ``this``.", "```python", "x = `1`", "```", "End."]
    declared.markdown_docstring(None, "", "", None, None, lines)
    assert lines == [
        "Use ``run``, not ``this``.",
        "",
        ".. code-block:: python",
        "",
        "    x = `1`",
        "",
        "End.",
    ]


def test_every_parameter_is_in_the_reference(root: Path) -> None:
    import json

    from svmsim import _core

    declared = extension(root, "declared")
    items = json.loads(_core.describe())["parameters"]
    page = declared.parameters_page(items)
    for item in items:
        section, _, name = item["path"].rpartition(".")
        assert f"\n## {section}\n" in page
        assert f"\n`{name}`\n: " in page
    assert declared.commands_page().count("\n## ") == len(commands())
