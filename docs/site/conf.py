"""Sphinx settings of the documentation site, which build.py builds."""

from __future__ import annotations

from importlib.metadata import version as installed

project = "Millstream"
author = copyright = "The Millstream developers"
release = version = installed("millstream")

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
root_doc = "index"
exclude_patterns = ["generators", "site"]

html_theme = "furo"
html_title = f"Millstream {release}"

# Anchors as on GitHub, where the pages are also read.
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
# Code is copied without prompts and results.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
