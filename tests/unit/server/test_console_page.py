"""The page of the console: its modules import existing names, and nothing comes from other
servers."""

from __future__ import annotations

import os
import re
from importlib.resources import files
from pathlib import Path

import pytest

FOLDER = Path(str(files("millstream.server").joinpath("console")))
FILES = sorted(
    str(each.relative_to(FOLDER))
    for each in FOLDER.rglob("*")
    if each.suffix in (".html", ".js", ".css")
)
#: The specifier of an imported module.
MODULE = r'"(\.{1,2}/[\w./]+)"'


def read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


def imported_file(name: str, module: str) -> str:
    return os.path.normpath(Path(name).parent / module)


@pytest.mark.parametrize("name", FILES)
def test_the_page_loads_nothing_external_and_inserts_no_markup(name: str) -> None:
    """The page's security policy would block it, and values of a store could contain markup."""
    text = read(name).replace("http://www.w3.org/2000/svg", "")
    for wrong in ("http://", "https://", "innerHTML", "outerHTML", "insertAdjacentHTML", "eval("):
        assert wrong not in text
    assert not re.search(r"<[^>]*\s(style|on\w+)=", text)


def test_imported_names_exist() -> None:
    """A wrong name would yield an empty page."""
    for name in FILES:
        if not name.endswith(".js"):
            continue
        for names, other in re.findall(r"import \{([^}]*)\} from " + MODULE, read(name)):
            text = read(imported_file(name, other))
            exported = set(re.findall(r"export (?:async )?(?:function|class|const) (\w+)", text))
            imported = {each.split()[0] for each in names.split(",") if each.strip()}
            assert imported <= exported, f"{name} imports from {other}"


def test_each_module_is_used() -> None:
    """Starting from the page."""
    used, waiting = set(), ["index.html"]
    while waiting:
        name = waiting.pop()
        used.add(name)
        text = read(name) if name in FILES else ""
        found = {imported_file(name, module) for module in re.findall(MODULE, text)}
        found |= set(re.findall(r'/assets/([\w./]+)"', text))
        waiting += sorted(found - used)
    assert set(FILES) <= used


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_modules_are_short(name: str) -> None:
    """Like the Python modules: one topic per file, and short enough."""
    text = read(name)
    assert text.startswith("//")
    assert text.count("\n") <= 500
