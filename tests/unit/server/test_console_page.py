"""The page of the console: modules that find each other, and nothing from elsewhere."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path

import pytest

FOLDER = Path(str(files("millstream.server").joinpath("console")))
FILES = sorted(each.name for each in FOLDER.iterdir() if each.suffix in (".html", ".js", ".css"))


def read(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", FILES)
def test_nothing_comes_from_elsewhere_or_is_written_into_the_page_as_text(name: str) -> None:
    """The page's policy would stop it, and somebody's value in a store would be markup."""
    text = read(name).replace("http://www.w3.org/2000/svg", "")
    for wrong in ("http://", "https://", "innerHTML", "outerHTML", "insertAdjacentHTML", "eval("):
        assert wrong not in text
    assert not re.search(r"<[^>]*\s(style|on\w+)=", text)


def test_what_is_imported_is_there() -> None:
    """By name: a wrong one is an empty page."""
    for name in FILES:
        if not name.endswith(".js"):
            continue
        for names, other in re.findall(r'import \{([^}]*)\} from "\./([\w.]+)"', read(name)):
            exported = set(
                re.findall(r"export (?:async )?(?:function|class|const) (\w+)", read(other))
            )
            wanted = {each.split()[0] for each in names.split(",") if each.strip()}
            assert wanted <= exported, f"{name} imports from {other}"


def test_each_module_is_used() -> None:
    """Beginning with the page."""
    used, waiting = set(), ["index.html"]
    while waiting:
        name = waiting.pop()
        used.add(name)
        found = re.findall(r'(?:"\./|/assets/)([\w.]+)"', read(name)) if name in FILES else []
        waiting += [each for each in found if each not in used]
    assert set(FILES) <= used


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".js")])
def test_modules_stay_readable(name: str) -> None:
    """As the Python beside them: one idea a file, and few enough lines."""
    text = read(name)
    assert text.startswith("//")
    assert text.count("\n") <= 500
