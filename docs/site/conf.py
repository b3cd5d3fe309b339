"""Sphinx settings of the documentation site, which build.py builds.

The environment variable `MILLSTREAM_SITE_URL` contains the URL of the published site. Only the page
for unknown addresses and the tags for search engines and social networks depend on it.
"""

from __future__ import annotations

import inspect
import os
import re
from importlib.metadata import version as installed
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

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
templates_path = ["site/templates"]

html_theme = "furo"
html_title = f"Millstream {release}"
html_static_path = ["images/logo", "site/static"]
html_css_files = ["site.css"]
html_js_files = [("versions.js", {"defer": "defer"})]
html_favicon = "site/static/favicon.svg"
html_theme_options = {
    "light_logo": "millstream-light.svg",
    "dark_logo": "millstream-dark.svg",
    "sidebar_hide_name": True,
    "top_of_page_buttons": [],
}
html_copy_source = False
html_baseurl = os.environ.get("MILLSTREAM_SITE_URL", "")
if html_baseurl and not html_baseurl.endswith("/"):
    html_baseurl += "/"
html_additional_pages = {"404": "404.html"}
# The page for unknown addresses has no relative links. Without a URL, the site is at the root.
html_context = {"site_root": html_baseurl or "/"}

# Anchors as on GitHub, where the pages are also read.
myst_heading_anchors = 6
myst_enable_extensions = ["colon_fence"]

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
napoleon_google_docstring = True
# Code is copied without prompts and results.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

_UNPARSABLE = re.compile(r"= <(?:[^<>]|<[^<>]*>)*>")
_MAX_SUMMARY = 200
_WIDE_PIXELS = 640
_LONG_CELL = 60


class Pictures(SphinxTransform):
    """Adapts pictures to the color scheme and to small screens.

    In dark mode, a screenshot `NAME-light.png` is replaced by `NAME-dark.png`, if it exists.
    Screenshots are links to their full size. Wide diagrams scroll instead of becoming illegible.
    """

    default_priority = 500

    def apply(self, **_: Any) -> None:
        folder = Path(self.document["source"]).parent
        for image in list(self.document.findall(nodes.image)):
            uri = image["uri"]
            if uri.endswith(".svg") and (folder / uri).exists():
                width = re.search(r'<svg[^>]* width="(\d+)"', (folder / uri).read_text())
                if width and int(width[1]) > _WIDE_PIXELS:
                    image["classes"].append("wide")
            elif uri.endswith(".png"):
                # Sphinx links pictures with a width to their files.
                image["width"] = "100%"
                dark_uri = uri.replace("-light.png", "-dark.png")
                if dark_uri != uri and (folder / dark_uri).exists():
                    dark = image.deepcopy()
                    dark["uri"] = dark_uri
                    image["classes"].append("only-light")
                    dark["classes"].append("only-dark")
                    image.parent.insert(image.parent.index(image) + 1, dark)


class Tables(SphinxTransform):
    """Marks the columns with sentences, which would be too narrow next to columns with code."""

    default_priority = 500

    def apply(self, **_: Any) -> None:
        for table in self.document.findall(nodes.tgroup):
            rows = [row.children for row in table.findall(nodes.row)]
            for column in zip(*rows, strict=False):
                if max(len(cell.astext()) for cell in column) > _LONG_CELL:
                    for cell in column:
                        cell["classes"].append("long")


def add_summary(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: nodes.document | None
) -> None:
    """Set the page's summary for search engines and social networks: its first paragraph."""
    paragraphs = doctree.findall(nodes.paragraph) if doctree else ()
    # Not those in tables and lists.
    texts = (each.astext() for each in paragraphs if isinstance(each.parent, nodes.section))
    text = " ".join(next(texts, "").split())
    if len(text) > _MAX_SUMMARY:
        text = text[:_MAX_SUMMARY].rpartition(" ")[0] + " …"
    context["summary"] = text


def drop_generic_docs(
    app: Sphinx, kind: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Remove the docstrings of built-in types from constants, and those of named tuples' fields."""
    text = inspect.getdoc(value) if type(value).__module__ == "builtins" else None
    of_type = kind == "data" and text and lines[:1] == text.splitlines()[:1]
    if of_type or (lines and lines[0].startswith("Alias for field number")):
        lines.clear()


def make_parsable(
    app: Sphinx,
    kind: str,
    name: str,
    value: Any,
    options: Any,
    signature: str | None,
    returned: str | None,
) -> tuple[str, str | None] | None:
    """Replace defaults such as `<factory>`, with which Sphinx cannot parse the signature."""
    if signature is None:
        return None
    return _UNPARSABLE.sub("= ...", signature), returned


def setup(app: Sphinx) -> None:
    app.add_transform(Pictures)
    app.add_transform(Tables)
    app.connect("html-page-context", add_summary)
    app.connect("autodoc-process-docstring", drop_generic_docs)
    app.connect("autodoc-process-signature", make_parsable)
