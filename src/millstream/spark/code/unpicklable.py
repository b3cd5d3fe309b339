"""Finds the unpicklable object in a large object graph, and the path to it.

"cannot pickle '_thread.lock' object" is of little use for a whole topology. The search tries the
parts of an unpicklable object one by one, descends into the first part that fails, and ends at an
object whose parts are all picklable, which is the culprit.
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

from millstream.errors import summary_of
from millstream.spark.code.named_objects import is_generic
from millstream.spark.code.user_modules import imported_names

#: How deep the search descends, and how many parts of one object it tries.
_MAX_DEPTH: Final = 60
_MAX_PARTS: Final = 10_000
#: Attributes of a class that its pickle does not contain.
_NOT_PICKLED: Final = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__msgspec_cache__"}
)


class UnpicklableObject(NamedTuple):
    path: str
    type_name: str
    reason: str
    node: str | None


class _Step(NamedTuple):
    name: str
    part: Any


def find_unpicklable(thing: Any, what: str, attempt: Callable[[Any], bytes]) -> UnpicklableObject:
    """Find the culprit in an unpicklable object.

    `attempt` pickles an object, or raises an error.
    """
    path = [what]
    node: str | None = None
    # The list keeps the objects alive, because ids are only unique among existing objects.
    visited = [thing]
    reason = _failure(thing, attempt) or ""
    for _ in range(_MAX_DEPTH):
        named = _node_name(thing)
        if named is not None:
            # Drop the path to the node, which consists of internal objects only.
            kind = "store" if "Store" in type(thing).__name__ else "node"
            path, node = [f"{kind} '{named}'"], named
        step = _failing_part(thing, attempt, {id(other) for other in visited})
        if step is None:
            break
        thing = step.part
        visited.append(thing)
        path.append(step.name)
        reason = _failure(thing, attempt) or reason
    return UnpicklableObject(_format_path(path, node), _type_name(thing), reason, node)


def _failing_part(thing: Any, attempt: Callable[[Any], bytes], seen: set[int]) -> _Step | None:
    for number, step in enumerate(_parts(thing)):
        if number >= _MAX_PARTS:
            return None
        if id(step.part) not in seen and _failure(step.part, attempt) is not None:
            return step
    return None


def _failure(thing: Any, attempt: Callable[[Any], bytes]) -> str | None:
    try:
        attempt(thing)
    except Exception as error:
        return summary_of(error)
    return None


def _parts(thing: Any) -> Iterator[_Step]:
    """Yield the parts that a pickle of the object contains."""
    if isinstance(thing, types.FunctionType):
        yield from _parts_of_function(thing)
    elif isinstance(thing, types.MethodType):
        yield _Step(f"object of method '{thing.__name__}'", thing.__self__)
        yield _Step(f"method '{thing.__name__}'", thing.__func__)
    elif isinstance(thing, functools.cached_property):
        # Its lock is not pickled.
        yield _Step("function", thing.func)
    elif isinstance(thing, functools.partial):
        yield _Step("function of partial", thing.func)
        yield from (_Step(f"argument {n}", part) for n, part in enumerate(thing.args))
        yield from (_Step(f"argument '{name}'", part) for name, part in thing.keywords.items())
    elif isinstance(thing, types.ModuleType):
        yield from (_Step(f"variable '{name}'", part) for name, part in list(vars(thing).items()))
    elif isinstance(thing, type):
        yield from (_Step(f"class attribute '{name}'", part) for name, part in _members(thing))
    elif isinstance(thing, staticmethod | classmethod):
        yield _Step("function", thing.__func__)
    elif isinstance(thing, property):
        accessors = (("getter", thing.fget), ("setter", thing.fset), ("deleter", thing.fdel))
        yield from (_Step(name, part) for name, part in accessors if part is not None)
    elif isinstance(thing, dict):
        for key, part in list(thing.items()):
            yield _Step(f"key {_short(key)}", key)
            yield _Step(f"item {_short(key)}", part)
    elif isinstance(thing, list | tuple | set | frozenset):
        yield from (_Step(f"item {n}", part) for n, part in enumerate(thing))
    else:
        yield from _parts_of_object(thing)


def _parts_of_function(function: types.FunctionType) -> Iterator[_Step]:
    if is_generic(function):
        for kind, part in list(vars(function)["registry"].items()):
            yield _Step(f"function for {kind.__name__}", part)
        return
    names = function.__code__.co_freevars
    for name, cell in zip(names, function.__closure__ or (), strict=False):
        try:
            yield _Step(f"closure variable '{name}'", cell.cell_contents)
        except ValueError:
            # The variable is not assigned yet, so it is not pickled.
            continue
    for name in sorted(_global_names(function.__code__)):
        if name in function.__globals__:
            yield _Step(f"global variable '{name}'", function.__globals__[name])
    yield from (_Step(f"default {n}", p) for n, p in enumerate(function.__defaults__ or ()))
    defaults = function.__kwdefaults__ or {}
    yield from (_Step(f"default of '{name}'", part) for name, part in defaults.items())
    yield from (_Step(f"attribute '{name}'", part) for name, part in vars(function).items())
    for name, _ in imported_names(function):
        if name in sys.modules:
            yield _Step(f"module '{name}' imported in its body", sys.modules[name])


def _global_names(code: types.CodeType) -> set[str]:
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _global_names(constant)
    return names


def _members(kind: type) -> Iterator[tuple[str, Any]]:
    for base in kind.__mro__[:-1]:
        for name, part in list(vars(base).items()):
            # Slot descriptors are recreated with their class and never pickled.
            if name not in _NOT_PICKLED and not isinstance(part, types.MemberDescriptorType):
                yield name, part


def _parts_of_object(thing: Any) -> Iterator[_Step]:
    yield from (_Step(str(name), part) for name, part in _state(thing))
    yield _Step("class", type(thing))
    try:
        reduced = thing.__reduce_ex__(4)
    except Exception:
        # The object itself rejects pickling, so it is the culprit.
        return
    if isinstance(reduced, tuple):
        for part in reduced[1:]:
            if isinstance(part, tuple | dict):
                yield from _parts(part)


def _state(thing: Any) -> Iterator[tuple[str, Any]]:
    own = getattr(thing, "__dict__", None)
    if isinstance(own, dict):
        yield from list(own.items())
    for base in type(thing).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(thing, name):
                yield name, getattr(thing, name)


def _node_name(thing: Any) -> str | None:
    """Return the name of a node or store of the topology; None for other objects."""
    if isinstance(thing, type) or not type(thing).__module__.startswith("millstream."):
        return None
    name = getattr(thing, "name", None)
    return name if isinstance(name, str) else None


def _format_path(path: list[str], node: str | None) -> str:
    """Format a path as `node 'X' mapper → closure variable 'lock'`."""
    if node is not None and len(path) > 1:
        path = [f"{path[0]} {path[1]}", *path[2:]]
    return " → ".join(path)


def _type_name(thing: Any) -> str:
    kind = type(thing)
    name = kind.__qualname__
    return name if kind.__module__ == "builtins" else f"{kind.__module__}.{name}"


def _short(key: Any) -> str:
    text = repr(key)
    return text if len(text) <= 40 else text[:37] + "..."
