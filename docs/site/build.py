"""Builds the site from the pages of docs/, other pages of the project, and the API reference.

    python docs/site/build.py FOLDER        # write FOLDER/index.html; warnings are errors

The published site contains the newest version, and older versions in subfolders: build the newest
one into FOLDER, and the others from their tags into FOLDER/VERSION. The version selector reads
versions.json, which contains the versions that were built.

The pages are also read in the repository, so they contain links to files outside of docs/. The site
is built from copies of the pages, in which these links point to the page in the site, or to the
file in the repository if the site does not contain it.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.version import Version

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SITE = Path(__file__).parent
#: Pages from outside of docs/, with their paths in the site.
ABOUT = {
    "ARCHITECTURE.md": "about/architecture.md",
    "CHANGELOG.md": "about/changelog.md",
    "CONTRIBUTING.md": "about/contributing.md",
    "SECURITY.md": "about/security.md",
    "benchmarks/README.md": "about/benchmarks.md",
}
#: The public modules, with descriptions.
REFERENCE = {
    "millstream": "Topologies, applications, settings, stores and queries.",
    "millstream.serdes": "Conversion between objects and bytes.",
    "millstream.testing": "The test driver, a broker for tests, and pytest fixtures.",
    "millstream.errors": "All errors and their attributes.",
    "millstream.parallel": "Subscriptions, as in Decaton.",
    "millstream.lake": "Iceberg and Delta tables.",
    "millstream.assignment": "Custom task assignors.",
}
#: The base URL of files that are not in the site.
REPOSITORY = os.environ.get("MILLSTREAM_REPOSITORY", "https://github.com/millstream/millstream")
_LINK = re.compile(r"(\]\()([^)\s#]+)(#[^)\s]*)?(\))")
_FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def stage(folder: Path) -> None:
    """Write the sources of the site: all pages, with links that work in the site."""
    for page in sorted(DOCS.rglob("*.md")):
        _copy(page, folder / page.relative_to(DOCS), folder)
    for outside, inside in ABOUT.items():
        _copy(ROOT / outside, folder / inside, folder)
    shutil.copytree(DOCS / "images", folder / "images")
    shutil.copy(SITE / "conf.py", folder)
    for files in ("static", "templates"):
        shutil.copytree(SITE / files, folder / "site" / files)
    _reference(folder / "reference")


def _copy(page: Path, copy: Path, folder: Path) -> None:
    def relinked(found: re.Match[str]) -> str:
        target = found[2]
        if re.match(r"[a-z]+:", target):
            return found[0]
        return f"{found[1]}{_place(page, copy, folder, target)}{found[3] or ''}{found[4]}"

    # Code blocks contain no links.
    parts = _FENCED.split(page.read_text(encoding="utf-8"))
    text = "".join(part if part.startswith("```") else _LINK.sub(relinked, part) for part in parts)
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_text(text, encoding="utf-8")


def _place(page: Path, copy: Path, folder: Path, target: str) -> str:
    """Return the target in the site of a link on a page."""
    path = (page.parent / target).resolve()
    within = str(path.relative_to(ROOT))
    if within in ABOUT:
        inside = folder / ABOUT[within]
    elif path.is_relative_to(DOCS) and path.suffix in {".md", ".png", ".svg"}:
        inside = folder / path.relative_to(DOCS)
    else:
        kind = "tree" if path.is_dir() else "blob"
        return f"{REPOSITORY}/{kind}/main/{within}"
    return os.path.relpath(inside, copy.parent)


def _reference(folder: Path) -> None:
    """Write a page for each public module, which Sphinx fills from the docstrings."""
    folder.mkdir()
    rows = "".join(f"| [`{name}`]({name}.md) | {about} |\n" for name, about in REFERENCE.items())
    names = "\n".join(REFERENCE)
    (folder / "index.md").write_text(
        "# Reference\n\nGenerated from the docstrings.\n\n| Module | Content |\n|---|---|\n"
        f"{rows}\n```{{toctree}}\n:hidden:\n\n{names}\n```\n",
        encoding="utf-8",
    )
    owners = _documenting_modules()
    for name, about in REFERENCE.items():
        text = [f"# {name}\n\n{about}\n"]
        text += [
            _entry(name, each) for each in _public(name) if owners[_object(name, each)] == name
        ]
        elsewhere = [each for each in _public(name) if owners[_object(name, each)] != name]
        if elsewhere:
            links = ", ".join(
                f"{{py:obj}}`{each} <{owners[_object(name, each)]}.{each}>`" for each in elsewhere
            )
            text.append(f"\nAlso exported: {links}.\n")
        (folder / f"{name}.md").write_text("".join(text), encoding="utf-8")


def _public(module: str) -> list[str]:
    """Return the public names of a module in the order of `__all__`, or of the source."""
    found = importlib.import_module(module)
    own = [
        name
        for name, value in vars(found).items()
        if inspect.isclass(value) and value.__module__ == module and not name.startswith("_")
    ]
    return list(getattr(found, "__all__", own))


def _object(module: str, name: str) -> str:
    """Return the name of an object in the module that defines it, or its own name for data."""
    value = getattr(importlib.import_module(module), name)
    home = getattr(value, "__module__", None) if callable(value) else None
    return f"{home}.{value.__qualname__}" if home and hasattr(value, "__qualname__") else name


def _documenting_modules() -> dict[str, str]:
    """Return the module whose page describes each object; for errors, `millstream.errors`."""
    modules: dict[str, str] = {}
    for module in ("millstream.errors", *REFERENCE):
        for name in _public(module):
            modules.setdefault(_object(module, name), module)
    return modules


def _entry(module: str, name: str) -> str:
    value = getattr(importlib.import_module(module), name)
    kind = "class" if inspect.isclass(value) else "function" if callable(value) else "data"
    members = "   :members:\n   :show-inheritance:\n" if kind == "class" else ""
    return (
        f"\n```{{eval-rst}}\n.. py:currentmodule:: {module}\n\n"
        f".. auto{kind}:: {module}.{name}\n{members}```\n"
    )


def build(target: Path) -> int:
    """Build the site in a folder. Return Sphinx's exit code, which is not 0 after warnings."""
    with tempfile.TemporaryDirectory(prefix="millstream-site-") as source:
        stage(Path(source))
        command = [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-j", "2"]
        code = subprocess.run([*command, "-b", "html", source, str(target)]).returncode
    if code == 0:
        list_versions(target.parent if _version(target.parent) else target)
    return code


def list_versions(site: Path) -> None:
    """Write versions.json into the folder of each version: all versions, newest first.

    Args:
        site: the folder of the newest version, with the other versions in subfolders.
    """
    older = {folder: version for folder in site.iterdir() if (version := _version(folder))}
    ordered = sorted(older, key=lambda folder: Version(older[folder]), reverse=True)
    built = {site: _version(site), **{folder: older[folder] for folder in ordered}}
    for folder in built:
        versions = [
            {"version": version, "folder": f"{os.path.relpath(other, folder)}/"}
            for other, version in built.items()
        ]
        (folder / "versions.json").write_text(json.dumps(versions, indent=1), encoding="utf-8")


def _version(folder: Path) -> str | None:
    """Return the version of the site in a folder, from Sphinx's inventory."""
    inventory = folder / "objects.inv"
    if not inventory.exists():
        return None
    found = re.search(rb"^# Version: (.+)$", inventory.read_bytes(), re.MULTILINE)
    return found[1].decode() if found else None


def main() -> int:
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    return build(Path(sys.argv[1]).resolve())


if __name__ == "__main__":
    raise SystemExit(main())
