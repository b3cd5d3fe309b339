"""Settings of the documentation's site: `make site` builds it, and fails at a warning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import millstream

ROOT = Path(__file__).parents[2]

project = "Millstream"
author = "The Millstream developers"
copyright = author
release = version = re.search(
    r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE
)[1]  # type: ignore[index]

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
source_suffix = {".md": "markdown"}
exclude_patterns = ["site"]
root_doc = "index"
nitpicky = False

html_theme = "furo"
html_title = f"Millstream {release}"
html_static_path: list[str] = []
html_theme_options = {"sidebar_hide_name": False}

myst_enable_extensions = ["colon_fence", "linkify"]
myst_heading_anchors = 4
#: Comments of the pages, for their tests.
myst_html_meta: dict[str, str] = {}
suppress_warnings = ["myst.header"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autosummary_generate = True
napoleon_google_docstring = True

#: Pages that lie outside of this folder, by the page here that shows them.
OUTSIDE = {
    "../ARCHITECTURE.md": "about/architecture.md",
    "../CHANGELOG.md": "about/changelog.md",
    "../CONTRIBUTING.md": "about/contributing.md",
    "../SECURITY.md": "about/security.md",
    "../benchmarks/README.md": "about/benchmarks.md",
}


def _led_home(app: Any, name: str, source: list[str]) -> None:
    """Have links to what lies outside lead to the pages that show it."""
    up = "../" * name.count("/")
    for outside, inside in OUTSIDE.items():
        source[0] = source[0].replace(f"]({up}{outside}", f"]({up}{inside}")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _led_home)
    assert millstream.__all__
