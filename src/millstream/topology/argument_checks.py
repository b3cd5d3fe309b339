"""Checks of DSL arguments.

The checks raise errors at the declaration, not at the first record.
"""

from __future__ import annotations

import inspect
import re
from abc import ABCMeta
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from millstream.async_checks import deferred_advice, is_asynchronous, is_deferred, name_of
from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.state.builders.store_builder import StoreBuilder
from millstream.topology.call_site import call_site
from millstream.topology.naming import checked_name


def type_error(problem: str) -> TypeError:
    """Return a `TypeError` that names the file and line of the declaration."""
    site = call_site()
    return TypeError(f"{problem} (declared at {site})" if site else problem)


def check_function(
    operation: str,
    parameter: str,
    function: Callable[..., Any],
    *arguments: str,
    with_key: bool | None = None,
    may_yield: bool = False,
) -> None:
    """Check that a function accepts the arguments that an operation passes to it.

    Coroutine functions are rejected, and so are generator functions unless `may_yield` is set,
    because the operation would not execute their bodies.

    Args:
        with_key: whether the key is passed before `arguments`; None if the operation has no
            `with_key` option.

    Raises:
        TypeError: the function is not callable, has the wrong signature, or is asynchronous.
    """
    is_unsupported = is_asynchronous if may_yield else is_deferred
    if callable(function) and is_unsupported(function):
        raise type_error(
            f"{operation}() needs a plain function as its {parameter}. "
            + deferred_advice(name_of(function), function)
        )
    check_signature(operation, parameter, function, *arguments, with_key=with_key)


def check_signature(
    operation: str,
    parameter: str,
    function: Callable[..., Any],
    *arguments: str,
    with_key: bool | None = None,
) -> None:
    """Check the signature of a function that may be asynchronous.

    See `check_function`.

    Raises:
        TypeError: the function is not callable or has the wrong signature.
    """
    if not callable(function):
        raise type_error(
            f"{operation}() needs a function as its {parameter}, "
            f"but got {type(function).__name__}: {function!r}."
        )
    passed = ("key", *arguments) if with_key else arguments
    if accepts_arguments(function, len(passed)):
        return
    hint = ""
    if with_key is not None and accepts_arguments(function, len(passed) + (-1 if with_key else 1)):
        hint = f" To call it with{'out' if with_key else ''} the key, pass with_key={not with_key}."
    raise type_error(
        f"{operation}() calls its {parameter} as {parameter}({', '.join(passed)}), but "
        f"{name_of(function)}{_signature(function)} takes different arguments.{hint}"
    )


def accepts_arguments(function: object, count: int) -> bool:
    """Return whether a callable accepts `count` positional arguments.

    The check covers functions, lambdas, methods and classes written in Python, and
    `functools.partial` objects of these. Other callables are assumed to accept any number of
    arguments.
    """
    if not callable(function):
        return False
    signature = _signature(function)
    if signature is None:
        return True
    try:
        signature.bind(*range(count))
    except TypeError:
        return False
    return True


def check_partitioner(operation: str, partitioner: Callable[..., Any] | None) -> None:
    """Check a custom partitioner; None stands for Kafka's default.

    Raises:
        TypeError: the partitioner is not a function with the expected signature.
    """
    if partitioner is not None:
        arguments = ("topic", "key", "value", "number_of_partitions")
        check_function(operation, "partitioner", partitioner, *arguments)


def check_topic(operation: str, topic: str | Callable[..., Any]) -> None:
    """Check the topic of a sink: a name, or a function that chooses the topic.

    Raises:
        TopologyError: the name is not legal.
        TypeError: the function does not have the expected signature.
    """
    if isinstance(topic, str):
        checked_name(topic)
    else:
        check_function(operation, "topic", topic, "key", "value", "record_context")


def check_timestamp_extractor(operation: str, extractor: Callable[..., Any] | None) -> None:
    """Check a timestamp extractor; None stands for the default.

    Raises:
        TypeError: the extractor is not a function with the expected signature.
    """
    if extractor is not None:
        check_function(operation, "timestamp_extractor", extractor, "record", "partition_time")


def check_serdes(operation: str, **serdes: object) -> None:
    """Check that arguments are serdes; None stands for a default.

    Raises:
        TypeError: an argument is not a serde, for example a Python type.
    """
    for parameter, serde in serdes.items():
        if serde is not None and not isinstance(serde, Serde):
            raise type_error(
                f"{operation}() needs a Serde as its {parameter}, but got {serde!r}. Use one "
                "from millstream.serdes, for example STRING, or make a Serde from two functions."
            )


def check_store_builder(builder: object) -> None:
    """Check that an object is a store builder; suppliers, for example, are rejected.

    Raises:
        TypeError: the object is not a store builder.
    """
    if not isinstance(builder, StoreBuilder):
        raise type_error(
            "A store must be added as a builder, which includes the serdes, for example "
            f"Stores.key_value_builder(supplier, STRING, LONG), but got {builder!r}."
        )


def topic_names(
    reader: str, topics: str | Sequence[str] | re.Pattern[str]
) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    """Return the topics that a source reads: their distinct names, or a pattern.

    Raises:
        TopologyError: `topics` is empty, or a name is not legal.
        TypeError: `topics` is neither a name, a collection of names nor a pattern.
    """
    if isinstance(topics, re.Pattern):
        return (), topics
    listed = (topics,) if isinstance(topics, str) else topics
    if not isinstance(listed, Iterable):
        raise type_error(
            f"{reader} takes a topic, several topics, or a pattern from re.compile(...), but got "
            f"{topics!r}."
        )
    names = tuple(dict.fromkeys(listed))
    if not names:
        raise TopologyError(f"{reader} needs at least one topic.", declared_at=call_site())
    for name in names:
        checked_name(name)
    return names, None


def store_names(operation: str, stores: str | Sequence[str]) -> tuple[str, ...]:
    """Return the store names in a `stores=` argument.

    Raises:
        TypeError: the argument is neither a name nor a collection of names.
    """
    names = (stores,) if isinstance(stores, str) else stores
    if not isinstance(names, Sequence | set | frozenset) or not all(
        isinstance(name, str) for name in names
    ):
        raise type_error(
            f"{operation}() takes the names of stores, but got {stores!r}. Add the store with "
            "StreamsBuilder.add_state_store, and pass its name here."
        )
    return tuple(names)


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """Return the signature of a Python function.

    Returns None if `inspect` may report a wrong one.
    """
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    if isinstance(inner, type):
        # A metaclass or a __new__ method may take different arguments than __init__.
        uses_init_only = type(inner) in (type, ABCMeta) and "__new__" not in _inherited_attributes(
            inner
        )
        if not uses_init_only or not isinstance(
            _inherited_attributes(inner).get("__init__"), FunctionType
        ):
            return None
    elif not isinstance(inner, FunctionType | MethodType):
        return None
    try:
        # A decorated function may take different arguments than its wrapper.
        return inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def _inherited_attributes(kind: type) -> dict[str, Any]:
    """Return the attributes that a class and its bases, except `object`, define."""
    return {name: vars(each)[name] for each in reversed(kind.__mro__[:-1]) for name in vars(each)}
