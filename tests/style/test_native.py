"""The C extension keeps the rule about references of `speedups/native/python.h`, as text shows it:
no borrowed reference lives across a call that can run Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

NATIVE: Final = Path(__file__).parents[2] / "speedups" / "native"
SOURCES: Final = sorted(NATIVE.glob("*.[ch]"))

#: Functions of the interpreter that return borrowed references.
BORROWS: Final = re.compile(
    r"\b(Py(?:List|Tuple|Dict)_GetItem\w*|Py(?:List|Tuple)_GET_ITEM|PyDict_(?:Next|SetDefault)"
    r"|PySequence_Fast\w*|PyWeakref_Get\w+|PyCell_GET|PyImport_AddModule|PyModule_GetDict"
    r"|PyEval_Get(?:Builtins|Globals|Locals)|PySys_GetObject|PyStructSequence_GetItem)\("
)
#: The helpers that turn these into new references.
HELPERS: Final = {"PyList_GetItem", "PyTuple_GetItem", "PyDict_GetItemWithError"}

#: An object in an entry, which any call of Python can replace.
OBJECT: Final = re.compile(r"\bentry->(?:value|place|headers|key_bytes|stored|raw)\b")
#: Taken as a new reference, compared with None, or given another object.
TAKEN: Final = re.compile(r"(?:\bheld\(|\bis_none\(|&)(?:step->)?$")
#: They define what an entry is, and look at one where no Python runs.
OWNERS: Final = {"entries.h", "entry_table.h"}

#: What says nothing about whether a function has failed.
HIDES: Final = re.compile(r"return PyErr_Occurred\(\) \? NULL : Py_NewRef\(Py_None\)")


def statements(path: Path) -> str:
    """The text of a file without its comments."""
    return re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)


def borrowed(path: Path) -> list[str]:
    """The calls in a file that return borrowed references."""
    found = BORROWS.findall(statements(path))
    if path.name == "python.h":
        assert sorted(found) == sorted(HELPERS), "each helper calls one of them, once"
        return []
    return found


def untaken(path: Path) -> list[str]:
    """The objects of entries that a file uses without a reference."""
    if path.name in OWNERS:
        return []
    text = statements(path)
    return [
        text[text.rfind("\n", 0, found.start()) + 1 : found.end()].strip()
        for found in OBJECT.finditer(text)
        if not TAKEN.search(text[: found.start()])
    ]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_references_are_owned(path: Path) -> None:
    assert borrowed(path) == []
    assert untaken(path) == []


def test_what_breaks_the_rule_is_found(tmp_path: Path) -> None:
    """The test itself: of each kind one line that is right and one that is wrong."""
    wrong = tmp_path / "wrong.c"
    wrong.write_text(
        "PyObject *one = PyList_GetItem(list, 0), *other = list_item(list, 0);\n"
        "/* PyTuple_GetItem(tuple, 0) */ PyDict_Next(dict, &at, &key, &value);\n"
        "PyObject *sum = PyNumber_Add(entry->value, held(entry->value));\n"
        "int none = is_none(entry->value) || is_none(step->entry->value); call(step->entry->raw);\n"
        "set(&entry->headers, nothing); entry->used_seq = 5;\n"
    )
    assert borrowed(wrong) == ["PyList_GetItem", "PyDict_Next"]
    assert [line.rsplit("(", 1)[1] for line in untaken(wrong)] == [
        "entry->value",
        "step->entry->raw",
    ]


def test_a_failed_function_never_returns_none() -> None:
    """Its loops end with their own result; an exception alone does not tell it."""
    for name in ("fold.c", "sessions.c"):
        text = statements(NATIVE / name)
        assert not HIDES.search(text), name
        assert re.search(r"return (none_unless\(|failed \? NULL)", text), name
