"""Settings of the documentation's site, which build.py makes."""

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

# As on GitHub, where the pages are read as well.
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
# Copied code has no prompts and no results.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
