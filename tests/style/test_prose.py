"""Docstrings start with a short line, and prose avoids the habits listed in CONTRIBUTING.md."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support.source_modules import syntax_nodes

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "millstream").rglob("*.py"))
PAGES = [
    *sorted((ROOT / "docs").rglob("*.md")),
    *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CHANGELOG.md")),
]
MAX_OPENING_CHARS = 79

#: Patterns, with the maximum number of matches per 1,000 words in the package and in the pages.
HABITS = {
    "clauses instead of nouns": (r"what|whatever|those that|those who|that which", 3.0, 4.0),
    "code that talks": (
        r"tells?|told|telling|hears?|heard|asks?|asked|asking|knows?|known|knew|wants?|wanted"
        r"|says?|said|saying|forgets?|forgot|forgotten|remembers?|remembered|patience|patient",
        3.0,
        3.0,
    ),
    "persons": (r"whoever|nobody|somebody|anybody|who|whom", 0.7, 0.5),
}


def docstrings(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the text of each docstring of a module."""
    for node in syntax_nodes(path):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            text = ast.get_docstring(node)
            if text:
                yield getattr(node, "lineno", 1), text


@cache
def package_prose() -> str:
    """All docstrings and comments of the package."""
    texts: list[str] = []
    for path in SOURCES:
        texts.extend(text for _, text in docstrings(path))
        tokens = tokenize.generate_tokens(io.StringIO(path.read_text()).readline)
        texts.extend(token.string for token in tokens if token.type == tokenize.COMMENT)
    return "\n".join(texts)


@cache
def page_prose() -> str:
    """The text of all pages without code."""
    texts = (re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL) for path in PAGES)
    return re.sub(r"`[^`\n]*`", "", "\n".join(texts))


def test_openings_are_short() -> None:
    """The first line of a docstring has fewer than 80 characters."""
    long = [
        f"{path.relative_to(ROOT)}:{line}: {len(opening)} characters"
        for path in SOURCES
        for line, text in docstrings(path)
        if len(opening := text.split("\n")[0]) > MAX_OPENING_CHARS
    ]
    assert not long


@pytest.mark.parametrize("habit", HABITS)
def test_habits_are_rare(habit: str) -> None:
    """The rate of each pattern does not exceed its limits."""
    words, max_in_package, max_in_pages = HABITS[habit]
    pattern = re.compile(rf"\b({words})\b", re.IGNORECASE)
    rates = {
        place: 1_000 * len(pattern.findall(prose)) / len(re.findall(r"[A-Za-z']+", prose))
        for place, prose in (("src", package_prose()), ("pages", page_prose()))
    }
    assert rates["src"] <= max_in_package
    assert rates["pages"] <= max_in_pages


def test_a_bad_sentence_is_counted() -> None:
    """The patterns match whole words only."""
    words = HABITS["clauses instead of nouns"][0]
    found = re.findall(
        rf"\b({words})\b", "What was sent and those that wait; somewhat", re.IGNORECASE
    )
    assert found == ["What", "those that"]
