"""Sphinx: `sphinx-build -W docs out/docs` builds the site; it needs svmsim installed."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

_DOCS = Path(__file__).parent
sys.path.insert(0, str(_DOCS / "_ext"))

project = "svmsim"
version = release = tomllib.loads((_DOCS.parent / "pyproject.toml").read_text())["project"][
    "version"
]
html_title = f"svmsim {version}"
html_theme = "furo"
html_show_copyright = False
html_copy_source = False

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.intersphinx",
    "declared",
    "gallery",
]
intersphinx_mapping: dict[str, tuple[str, None]] = {}  # the build needs no network
exclude_patterns = ["_build", "_ext"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
suppress_warnings = ["misc.highlighting_failure"]  # "..." in examples is no Python

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
autodoc_default_options = {"members": True, "show-inheritance": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
