"""Objects that Python pickles by name, and others that cannot be pickled although their parts can.

A cached function (`functools.lru_cache`), a `typing.NewType` and objects whose `__reduce__` returns
a string are pickled as the names of variables of their modules. In a worker the main script is
another one, and user modules would be loaded from their files, without the changes that the driver
made. So these objects travel as their parts, wherever functions of their module travel as code.
"""

from __future__ import annotations

import functools
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
#: The attribute of a cached function that is set when it is recreated.
_WRAPPED: Final = "__wrapped__"
#: Attributes of `functools.cached_property` that are made anew: until Python 3.11 it had a lock.
_LOCK: Final = "lock"
#: The code of each function that `functools.singledispatch` returns.
_GENERIC: Final = functools.singledispatch(lambda _: None).__code__  # type: ignore[attr-defined]  # a function
#: Type parameters of this Python, without `TypeVar`, which cloudpickle knows.
_PARAMETERS: Final = tuple(
    getattr(typing, name) for name in ("ParamSpec", "TypeVarTuple") if hasattr(typing, name)
)
_ALIAS: Final = getattr(typing, "TypeAliasType", None)


def is_generic(thing: object) -> bool:
    """Whether a thing is a function of `functools.singledispatch`."""
    return isinstance(thing, FunctionType) and thing.__code__ is _GENERIC


def is_importable(thing: object, name: str, modules: UserModules) -> bool:
    """Whether workers get the thing by importing its module.

    Args:
        thing: what is pickled by name.
        name: its qualified name.
        modules: those that travel as code.
    """
    module = pickle.whichmodule(thing, name)  # type: ignore[attr-defined]  # not in typeshed
    if module in modules:
        return False
    try:
        return operator.attrgetter(name)(sys.modules[module]) is thing
    except (AttributeError, KeyError):
        return False


def reduce_named(thing: Any, name: str) -> _Reduced | None:
    """How to recreate an object that Python pickles by name; None where that is not known.

    Args:
        thing: an object whose `__reduce__` returns a string.
        name: that string.
    """
    if isinstance(thing, _CachedFunction):
        function = thing.__wrapped__
        rest = {name: value for name, value in vars(thing).items() if name != _WRAPPED}
        return new_cached_function, (function, thing.cache_parameters()), rest, None, None, set_all
    if isinstance(thing, typing.NewType):
        return new_type, (thing.__name__, thing.__supertype__, thing.__module__)
    if isinstance(thing, _PARAMETERS):
        return new_parameter, (type(thing), thing.__name__, thing.__module__)
    if _ALIAS is not None and isinstance(thing, _ALIAS):
        return _ALIAS, (thing.__name__, thing.__value__)
    return _reduce_singleton(thing, name)


def reduce_composed(thing: Any) -> _Reduced | None:
    """How to recreate an object whose helpers cannot be pickled; None if it is not one of these.

    Args:
        thing: a `functools.cached_property`, which may hold a lock, or a function of
            `functools.singledispatch`, which holds weak references.
    """
    if isinstance(thing, functools.cached_property):
        state = {name: value for name, value in vars(thing).items() if name != _LOCK}
        return new_cached_property, (type(thing), _LOCK in vars(thing)), state, None, None, set_all
    if is_generic(thing):
        generic: Any = thing
        functions = dict(generic.registry)
        default = functions.pop(object)
        return new_generic, (default,), functions, None, None, register_all
    return None


def reduce_code(code: CodeType, reduce: Callable[[CodeType], _Reduced]) -> _Reduced:
    """How to recreate the code of a function under the name of its file.

    From version 3.1.3 on, cloudpickle replaces the name, which tracebacks need.

    Args:
        code: of a function.
        reduce: cloudpickle's own way.
    """
    return new_code, (code.co_filename, *reduce(code))


def new_code(filename: str, make: Callable[..., CodeType], arguments: tuple[Any, ...]) -> CodeType:
    """In the worker: the code of a function."""
    return make(*arguments).replace(co_filename=filename)


def new_cached_function(function: Callable[..., Any], parameters: Mapping[str, Any]) -> Any:
    """In the worker: a function with an empty cache of its own."""
    return functools.lru_cache(**parameters)(function)


def new_type(name: str, supertype: Any, module: str) -> Any:
    """In the worker: a `typing.NewType`."""
    make: Any = typing.NewType
    made = make(name, supertype)
    made.__module__ = module
    return made


def new_parameter(kind: Callable[[str], Any], name: str, module: str) -> Any:
    """In the worker: a parameter of a generic type."""
    made = kind(name)
    made.__module__ = module
    return made


def new_cached_property(kind: Any, has_lock: bool) -> Any:
    """In the worker: a cached property that has no function yet."""
    made = kind.__new__(kind)
    if has_lock:
        made.lock = threading.RLock()
    return made


def new_generic(default: Callable[..., Any]) -> Any:
    """In the worker: a function of `functools.singledispatch` with its default only."""
    return functools.singledispatch(default)


def register_all(generic: Any, functions: Mapping[type, Callable[..., Any]]) -> None:
    """In the worker: give such a function what it does for each class."""
    for kind, function in functions.items():
        generic.register(kind, function)


def set_all(thing: Any, attributes: Mapping[str, Any]) -> None:
    """In the worker: give an object its attributes."""
    vars(thing).update(attributes)


_singletons: Final[dict[tuple[type, str], Any]] = {}


def new_singleton(kind: type, name: str) -> Any:
    """In the worker: the object of that class and name, the same in each pickle.

    A topology and its settings may travel apart, and compare such an object by identity.
    """
    known = getattr(sys.modules.get(kind.__module__), name, None)
    if type(known) is kind:
        return known
    return _singletons.setdefault((kind, name), object.__new__(kind))


def set_singleton(thing: Any, state: tuple[Mapping[str, Any], Mapping[str, Any]]) -> None:
    """In the worker: give such an object its attributes and slots."""
    attributes, slots = state
    if attributes:
        vars(thing).update(attributes)
    for name, value in slots.items():
        object.__setattr__(thing, name, value)


def _reduce_singleton(thing: Any, name: str) -> _Reduced | None:
    """An object that says which variable it is, the usual way to have it only once."""
    kind = type(thing)
    try:
        object.__new__(kind)
    except TypeError:
        # Of a class that is not written in Python, or derived from one.
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
