"""Writes docs/api.txt: every public name with its parameters, one per line.

    python docs/generators/generate_api.py                  # rewrite the list
    python docs/generators/generate_api.py --check          # exit code 1 if it is out of date
    python docs/generators/generate_api.py --release 0.2.0  # also save it for a release

The lists of the releases are in docs/released. A test compares the current list with that of the
newest release: CHANGELOG.md must mention all removed and changed names.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from generated import write_or_check

DOCS = Path(__file__).parents[1]
LIST = DOCS / "api.txt"
RELEASED = DOCS / "released"
MODULES = (
    "millstream",
    "millstream.assignment",
    "millstream.errors",
    "millstream.lake",
    "millstream.parallel",
    "millstream.serdes",
    "millstream.testing",
)


def api_lines() -> list[str]:
    """Return the sorted lines of docs/api.txt."""
    return sorted({line for name in MODULES for line in _of_module(importlib.import_module(name))})


def _of_module(module: Any) -> Iterator[str]:
    names = getattr(module, "__all__", None)
    if names is None:
        # millstream.errors has no __all__: list all classes that it defines.
        names = [
            name
            for name, value in vars(module).items()
            if inspect.isclass(value) and value.__module__ == module.__name__ and name[0] != "_"
        ]
    for name in names:
        yield from _of(f"{module.__name__}.{name}", getattr(module, name))


def _of(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        bases = ", ".join(base.__name__ for base in value.__bases__ if base is not object)
        yield f"class {name}({bases})"
        yield from _members(name, value)
    elif inspect.isroutine(value):
        yield f"def {name}{_signature(value)}"
    else:
        yield f"value {name}: {type(value).__name__}"


def _members(name: str, value: type) -> Iterator[str]:
    """Yield the members that this package defines; inherited ones depend on Python's version."""
    own = {
        member: inside
        for owner in reversed(value.__mro__)
        if owner.__module__.partition(".")[0] == "millstream"
        for member, inside in vars(owner).items()
    }
    for member, inside in sorted(own.items()):
        if member == "__init__" or not member.startswith("_"):
            yield from _member(f"{name}.{member}", inside)
    if hasattr(value, "_fields"):
        yield f"def {name}.__new__{_signature(value.__new__)}"


def _member(name: str, inside: Any) -> Iterator[str]:
    if isinstance(inside, staticmethod | classmethod):
        yield f"def {name}{_signature(inside.__func__)}"
    elif isinstance(inside, property):
        yield f"property {name}"
    elif inspect.isroutine(inside):
        yield f"def {name}{_signature(inside)}"
    else:
        yield f"attribute {name}"


def _signature(function: Any) -> str:
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return "(…)"
    parameters = [
        # Types are omitted, because mypy checks them. Defaults that are objects are omitted,
        # because their repr would contain their address.
        each.replace(
            annotation=inspect.Parameter.empty,
            default=each.default if _is_plain(each.default) else ...,
        )
        for each in signature.parameters.values()
    ]
    plain = signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)
    return str(plain)


def _is_plain(default: Any) -> bool:
    if isinstance(default, tuple):
        return all(map(_is_plain, default))
    is_none = default is None or default is inspect.Parameter.empty
    return is_none or isinstance(default, str | int | float)


def newest_release() -> Path | None:
    """Return the list of the newest release, or None before the first one."""
    found = sorted(
        RELEASED.glob("*.txt"), key=lambda path: [int(part) for part in path.stem.split(".")]
    )
    return found[-1] if found else None


def missing() -> list[str]:
    """Return the lines of the newest release that are no longer in the list."""
    released = newest_release()
    if released is None:
        return []
    now = set(api_lines())
    return [line for line in released.read_text(encoding="utf-8").splitlines() if line not in now]


def main() -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--release", metavar="VERSION", help="also save the list for this release")
    options, others = parser.parse_known_args()
    text = "\n".join(api_lines()) + "\n"
    saved = [(RELEASED / f"{options.release}.txt", text)] if options.release else []
    return write_or_check(__doc__, [*saved, (LIST, text)], others)


if __name__ == "__main__":
    raise SystemExit(main())
