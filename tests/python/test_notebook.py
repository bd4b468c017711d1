"""What notebooks and shells show."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import svmsim as sv
from svmsim import _sweep_commands
from svmsim._commands import app


class Cells(HTMLParser):
    """Checks that tags are closed, and collects the texts of cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        del attrs
        assert tag in {"table", "caption", "thead", "tbody", "tr", "th", "td", "p", "b"}
        self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] in ("td", "th", "caption"):
            self.cells.append(data)


def test_html(small: sv.Scenario) -> None:
    evil = "<script>alert(1)</script>"
    scenario = small.with_(kvm={"idle_hlt": False})
    cells = Cells(scenario._repr_html_()).cells
    assert cells[cells.index("kvm.idle_hlt") + 1] == "false"
    assert "vm.workload.kind" in cells
    assert "kvm.avic" not in cells  # its default
    assert not any(cell.startswith("host.cost") for cell in cells)
    result = scenario.run()
    cells = Cells(result._repr_html_()).cells
    assert cells[cells.index("hlt") + 1] == "100"
    assert "iterations" in cells
    campaign = sv.Campaign(
        small, {"kvm.idle_hlt": [False, True]}, seeds=2, name=evil, question="<b>why</b>"
    )
    cells = Cells(campaign._repr_html_()).cells
    assert "false, true" in cells
    table = campaign.run(progress=False)
    for shown in (table, table.compare("kvm.idle_hlt"), campaign):
        text = shown._repr_html_()
        assert "<script>" not in text
        Cells(text)
    assert any(evil in cell for cell in Cells(table._repr_html_()).cells)


def _complete(words: list[str], directory: Path) -> list[str]:
    """What bash is offered for the last of the words."""
    environment = {
        **os.environ,
        "_SVMSIM_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(["svmsim", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-m", "svmsim"],
        cwd=directory,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.split()


def test_completion(tmp_path: Path, small: sv.Scenario) -> None:
    assert _sweep_commands.sweep in {command.callback for command in app.registered_commands}
    commands = _complete([""], tmp_path)
    names = {c.name or c.callback.__name__ for c in app.registered_commands if c.callback}
    assert {"run", "sweep", "compare", "sensitivity", "report", "plot"} <= names
    assert names <= {*commands, "import_"} | {"import"}
    assert "kvm.idle_hlt=" in _complete(["run", "x.toml", "--set", "kvm.i"], tmp_path)
    assert _complete(["run", "x.toml", "--set", "host.kernel="], tmp_path)[:2] == [
        "host.kernel=6.1",
        "host.kernel=6.12",
    ]
    sv.Campaign(small, {"kvm.idle_hlt": [False, True]}).run(tmp_path / "out", progress=False)
    assert _complete(["compare", "out", "--key", ""], tmp_path) == ["kvm.idle_hlt"]
    assert "exits.hlt.count" in _complete(["compare", "out", "-m", "exits.h"], tmp_path)


def test_completion_script(tmp_path: Path) -> None:
    environment = {**os.environ, "_SVMSIM_COMPLETE": "source_bash"}
    done = subprocess.run(
        [sys.executable, "-m", "svmsim"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "svmsim" in done.stdout
