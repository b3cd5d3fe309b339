"""Pickles objects as their parts if Python pickles them by name or not at all.

A cached function (`functools.lru_cache`), a `typing.NewType` and objects whose `__reduce__` returns
a string are pickled as the names of module variables. However, a worker has a different main
script, and it would load user modules from their files, without the changes that the driver made.
Therefore, if the functions of a module are pickled by value, such objects are pickled as their
parts.
"""

from __future__ import annotations

import functools
import importlib
import operator
import pickle
import sys
import threading
import typing
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import Any, Final

from millstream.spark.code.user_modules import UserModules

_Reduced = tuple[Any, ...]

_CachedFunction: Final = type(functools.lru_cache(lambda: None))
#: The attribute with the lock of a `functools.cached_property`, which exists until Python 3.11. The
#: lock is not pickled, but recreated.
_LOCK: Final = "lock"
#: The code of each function that `functools.singledispatch` returns.
_GENERIC: Final = functools.singledispatch(lambda _: None).__code__  # type: ignore[attr-defined]  # a function
#: The type parameter classes of this Python version except `TypeVar`, which cloudpickle supports.
_PARAMETERS: Final = tuple(
    getattr(typing, name) for name in ("ParamSpec", "TypeVarTuple") if hasattr(typing, name)
)
_ALIAS: Final = getattr(typing, "TypeAliasType", None)


def is_generic(thing: object) -> bool:
    return isinstance(thing, FunctionType) and thing.__code__ is _GENERIC


def is_importable(thing: object, name: str, modules: UserModules) -> bool:
    module = pickle.whichmodule(thing, name)  # type: ignore[attr-defined]  # not in typeshed
    if module in modules:
        return False
    try:
        return operator.attrgetter(name)(sys.modules[module]) is thing
    except (AttributeError, KeyError):
        return False


def reduce_named(thing: Any, name: str) -> _Reduced | None:
    """Reduce an object whose `__reduce__` returned `name`.

    Returns None if the object is not supported.
    """
    if isinstance(thing, _CachedFunction):
        function = thing.__wrapped__
        # `lru_cache` sets this attribute again.
        rest = {name: value for name, value in vars(thing).items() if name != "__wrapped__"}
        return new_cached_function, (function, thing.cache_parameters()), rest, None, None, set_all
    if isinstance(thing, typing.NewType):
        return new_type, (thing.__name__, thing.__supertype__, thing.__module__)
    if isinstance(thing, _PARAMETERS):
        return new_parameter, (type(thing), thing.__name__, thing.__module__)
    if _ALIAS is not None and isinstance(thing, _ALIAS):
        return _ALIAS, (thing.__name__, thing.__value__)
    return _reduce_singleton(thing, name)


def reduce_composed(thing: Any) -> _Reduced | None:
    """Reduce an object with unpicklable internals; return None for other objects.

    These objects are `functools.cached_property` objects, which may contain a lock, and
    `functools.singledispatch` functions, which contain weak references.
    """
    if isinstance(thing, functools.cached_property):
        state = {name: value for name, value in vars(thing).items() if name != _LOCK}
        return new_cached_property, (type(thing), _LOCK in vars(thing)), state, None, None, set_all
    if is_generic(thing):
        generic: Any = thing
        functions = dict(generic.registry)
        default = functions.pop(object)
        return functools.singledispatch, (default,), functions, None, None, register_all
    return None


# The following functions recreate objects in the worker, and set their state.


def new_code(filename: str, make: Callable[..., CodeType], arguments: tuple[Any, ...]) -> CodeType:
    return make(*arguments).replace(co_filename=filename)


def new_cached_function(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    return functools.lru_cache(**parameters)(function)


def new_type(name: str, supertype: Any, module: str) -> Any:
    make: Any = typing.NewType
    made = make(name, supertype)
    made.__module__ = module
    return made


def new_parameter(kind: Callable[[str], Any], name: str, module: str) -> Any:
    made = kind(name)
    made.__module__ = module
    return made


def new_cached_property(kind: Any, has_lock: bool) -> Any:
    made = kind.__new__(kind)
    if has_lock:
        made.lock = threading.RLock()
    return made


def register_all(generic: Any, functions: Mapping[type, Callable[..., Any]]) -> None:
    for kind, function in functions.items():
        generic.register(kind, function)


def set_all(thing: Any, attributes: Mapping[str, Any]) -> None:
    vars(thing).update(attributes)


_singletons: Final[dict[tuple[type, str], Any]] = {}


def new_singleton(kind: type, name: str) -> Any:
    """Return the worker's only object of this class and name, for all pickles.

    A topology and its settings may be pickled separately and compare such objects by identity.
    """
    existing = getattr(sys.modules.get(kind.__module__), name, None)
    if type(existing) is kind:
        return existing
    return _singletons.setdefault((kind, name), object.__new__(kind))


def set_singleton(thing: Any, state: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
    attributes, slots = state
    if attributes:
        vars(thing).update(attributes)
    for name, value in slots.items():
        object.__setattr__(thing, name, value)


def _reduce_singleton(thing: Any, name: str) -> _Reduced | None:
    """Reduce an object that is pickled as a variable name, often a singleton."""
    kind = type(thing)
    try:
        object.__new__(kind)
    except TypeError:
        # The class or one of its bases is not written in Python.
        return None
    slots = {
        slot: getattr(thing, slot)
        for base in kind.__mro__
        for slot in _slots_of(base)
        if slot not in ("__dict__", "__weakref__") and hasattr(thing, slot)
    }
    state = (dict(getattr(thing, "__dict__", {})), slots)
    return new_singleton, (kind, name), state, None, None, set_singleton


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def is_loguru_core(thing: object) -> bool:
    """Return whether an object is a loguru `Core`, which loggers share."""
    kind = type(thing)
    return (kind.__module__, kind.__qualname__) == ("loguru._logger", "Core")


def reduce_loguru_core(core: Any, is_picklable: Callable[[object], bool]) -> _Reduced:
    """Reduce a loguru `Core` with its picklable sinks.

    Files, queues and handlers of `logging` stay in the driver. The same applies to loggers of
    `logging`, which are pickled by name. If all sinks stay in the driver, the logger writes to the
    worker's stderr.
    """
    state = dict(core.__getstate__())
    sinks = state.get("handlers", {})
    state["handlers"] = {number: each for number, each in sinks.items() if is_picklable(each)}
    return _recreate_core, (type(core), state, bool(sinks))


def _recreate_core(kind: Any, state: dict[str, Any], had_sinks: bool) -> Any:
    core = kind.__new__(kind)
    core.__setstate__(state)
    if had_sinks and not core.handlers:
        # The state contains the lowest level of the driver's sinks.
        core.handlers = dict(importlib.import_module("loguru").logger._core.handlers)
    return core
