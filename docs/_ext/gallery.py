"""The gallery: each script of docs/gallery is run when the site is built."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sphinx.errors import ExtensionError

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def _page(script: Path, title: str, words: str) -> str:
    text = script.read_text(encoding="utf-8")
    body = text.split('"""', 2)[2].strip()
    return (
        f"# {title}\n\n{words}\n\n"
        f"```{{image}} {script.stem}.svg\n:alt: {title}\n:width: 34em\n```\n\n"
        f"[docs/gallery/{script.name}](../../gallery/{script.name}):\n\n```python\n{body}\n```\n"
    )


def _make(script: Path, target: Path) -> None:
    """Run a script, which saves one picture of its own name, and write its page."""
    doc = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))
    if not doc:
        raise ExtensionError(f"{script}: no docstring, which is the page's text")
    title, _, words = doc.partition("\n")
    picture, page = target / f"{script.stem}.svg", target / f"{script.stem}.md"
    root = script.parents[2]
    with tempfile.TemporaryDirectory() as directory:
        for name in ("examples", "docs"):
            Path(directory, name).symlink_to(root / name)
        done = subprocess.run(
            [sys.executable, "-W", "error", str(script)],
            cwd=directory,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        made = Path(directory, f"{script.stem}.svg")
        if done.returncode != 0 or not made.is_file():
            raise ExtensionError(f"{script} failed, or saved no {made.name}:\n{done.stderr}")
        picture.write_bytes(made.read_bytes())
    page.write_text(_page(script, title.rstrip("."), words.strip()), encoding="utf-8")


def run_gallery(app: Sphinx) -> None:
    """Run every script, as many at once as there are CPUs."""
    source = Path(app.srcdir)
    target = source / "_generated" / "gallery"
    target.mkdir(parents=True, exist_ok=True)
    scripts = sorted((source / "gallery").glob("*.py"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda script: _make(script, target), scripts))
    for old in target.iterdir():
        if old.stem not in {script.stem for script in scripts}:
            old.unlink()


def setup(app: Sphinx) -> dict[str, Any]:
    """Register with Sphinx."""
    app.connect("builder-inited", run_gallery)
    return {"parallel_read_safe": True, "version": "1"}
