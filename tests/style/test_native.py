"""The C extension follows the rule about references of `native/python.h`, as far as a text
search can check it: no borrowed reference lives across a call that can run Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

NATIVE: Final = Path(__file__).parents[2] / "native"
SOURCES: Final = sorted(NATIVE.glob("*.[ch]"))

#: Functions of the interpreter that return borrowed references.
BORROWS: Final = re.compile(
    r"\b(Py(?:List|Tuple|Dict)_GetItem\w*|Py(?:List|Tuple)_GET_ITEM|PyDict_(?:Next|SetDefault)"
    r"|PySequence_Fast\w*|PyWeakref_Get\w+|PyCell_GET|PyImport_AddModule|PyModule_GetDict"
    r"|PyEval_Get(?:Builtins|Globals|Locals)|PySys_GetObject|PyStructSequence_GetItem)\("
)
#: The helpers that turn these into new references.
HELPERS: Final = {"PyList_GetItem", "PyTuple_GetItem", "PyDict_GetItemWithError"}

#: An object in an entry, which any Python code can replace.
OBJECT: Final = re.compile(r"\bentry->(?:value|place|headers|key_bytes|stored|raw)\b")
#: The permitted uses of such an object: it is converted to a new reference, compared with None, or
#: assigned.
OWNED: Final = re.compile(r"(?:\bheld\(|\bis_none\(|&)(?:step->)?$")
#: The files that define entries, and access them where no Python code runs.
OWNERS: Final = {"entries.h", "entry_table.h"}

#: A result that does not show whether a function failed.
HIDES_FAILURE: Final = re.compile(r"return PyErr_Occurred\(\) \? NULL : Py_NewRef\(Py_None\)")


def statements(path: Path) -> str:
    """The text of a file without its comments."""
    return re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)


def borrowed(path: Path) -> list[str]:
    """The calls in a file that return borrowed references."""
    found = BORROWS.findall(statements(path))
    if path.name == "python.h":
        assert sorted(found) == sorted(HELPERS), "each helper calls one of them once"
        return []
    return found


def unowned(path: Path) -> list[str]:
    """The objects of entries that a file uses without a reference."""
    if path.name in OWNERS:
        return []
    text = statements(path)
    return [
        text[text.rfind("\n", 0, found.start()) + 1 : found.end()].strip()
        for found in OBJECT.finditer(text)
        if not OWNED.search(text[: found.start()])
    ]


def test_references_are_owned() -> None:
    assert [f"{path.name}: {each}" for path in SOURCES for each in borrowed(path)] == []
    assert [f"{path.name}: {each}" for path in SOURCES for each in unowned(path)] == []


def test_violations_are_detected(tmp_path: Path) -> None:
    """Each kind has one correct and one wrong line."""
    wrong = tmp_path / "wrong.c"
    wrong.write_text(
        "PyObject *one = PyList_GetItem(list, 0), *other = list_item(list, 0);\n"
        "/* PyTuple_GetItem(tuple, 0) */ PyDict_Next(dict, &at, &key, &value);\n"
        "PyObject *sum = PyNumber_Add(entry->value, held(entry->value));\n"
        "int none = is_none(entry->value) || is_none(step->entry->value); call(step->entry->raw);\n"
        "set(&entry->headers, nothing); entry->used_seq = 5;\n"
    )
    assert borrowed(wrong) == ["PyList_GetItem", "PyDict_Next"]
    assert [line.rsplit("(", 1)[1] for line in unowned(wrong)] == [
        "entry->value",
        "step->entry->raw",
    ]


def test_a_failed_function_never_returns_none() -> None:
    """The result of a loop must show a failure; a pending exception is not enough."""
    for name in ("fold.c", "sessions.c"):
        text = statements(NATIVE / name)
        assert not HIDES_FAILURE.search(text), name
        assert re.search(r"return (none_unless\(|failed \? NULL)", text), name
