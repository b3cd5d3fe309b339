"""Refusing wrong arguments where the mistake is made, and not where the first record arrives."""

from __future__ import annotations

import inspect
import re
from abc import ABCMeta
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from millstream.errors import TopologyError
from millstream.serdes import Serde
from millstream.topology.call_site import call_site
from millstream.topology.naming import checked_name
from millstream.unawaited import deferred_advice, is_asynchronous, is_deferred, name_of


def wrong_type(problem: str) -> TypeError:
    """The error that an argument is of a wrong type, with file and line of the user's program."""
    site = call_site()
    return TypeError(f"{problem} (declared at {site})" if site else problem)


def checked_function(
    operation: str,
    parameter: str,
    function: Callable[..., Any],
    *arguments: str,
    with_key: bool | None = None,
    may_yield: bool = False,
) -> None:
    """Refuse what cannot be called, or not with the arguments that it would get, or to no effect.

    Args:
        operation: the method that takes the function.
        parameter: its name there.
        function: the function.
        arguments: the names of what it is called with.
        with_key: whether the key goes before these; None where that is no question.
        may_yield: whether the function may be a generator function.

    Raises:
        TypeError: it is no such function.
    """
    is_refused = is_asynchronous if may_yield else is_deferred
    if callable(function) and is_refused(function):
        raise wrong_type(
            f"{operation}() needs a plain function as its {parameter}. "
            + deferred_advice(name_of(function), function)
        )
    checked_arguments(operation, parameter, function, *arguments, with_key=with_key)


def checked_arguments(
    operation: str,
    parameter: str,
    function: Callable[..., Any],
    *arguments: str,
    with_key: bool | None = None,
) -> None:
    """The same as `checked_function`, for one that may be asynchronous.

    Raises:
        TypeError: it is no such function.
    """
    if not callable(function):
        raise wrong_type(
            f"{operation}() needs a function as its {parameter}, "
            f"but got {type(function).__name__}: {function!r}."
        )
    given = ("key", *arguments) if with_key else arguments
    if takes(function, len(given)):
        return
    hint = ""
    if with_key is not None and takes(function, len(given) + (-1 if with_key else 1)):
        hint = f" Whether it gets the key is up to with_key={not with_key}."
    raise wrong_type(
        f"{operation}() calls its {parameter} as {parameter}({', '.join(given)}), but "
        f"{name_of(function)}{_signature(function)} takes other "
        f"arguments.{hint}"
    )


def takes(function: object, count: int) -> bool:
    """Whether something can be called with so many arguments, as far as that is certain.

    It is for functions, lambdas, methods and classes written in Python, and for
    `functools.partial` of these. Other things that can be called are believed to.

    Args:
        function: what is to be called.
        count: how many arguments there are, all by their positions.
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


def checked_partitioner(operation: str, partitioner: Callable[..., Any] | None) -> None:
    """Refuse what cannot choose a partition; None stands for Kafka's default.

    Raises:
        TypeError: it is no such function.
    """
    if partitioner is not None:
        arguments = ("topic", "key", "value", "number_of_partitions")
        checked_function(operation, "partitioner", partitioner, *arguments)


def checked_topic(operation: str, topic: str | Callable[..., Any]) -> None:
    """Refuse what is neither a topic's name nor a function that chooses one.

    Raises:
        TopologyError: the name is not legal.
        TypeError: it is no such function.
    """
    if isinstance(topic, str):
        checked_name(topic)
    else:
        checked_function(operation, "topic", topic, "key", "value", "record_context")


def checked_extractor(operation: str, extractor: Callable[..., Any] | None) -> None:
    """Refuse what cannot give timestamps; None stands for a default.

    Raises:
        TypeError: it is no such function.
    """
    if extractor is not None:
        checked_function(operation, "timestamp_extractor", extractor, "record", "partition_time")


def checked_serdes(operation: str, **serdes: object) -> None:
    """Refuse what is no serde; None stands for a default.

    Args:
        operation: the method that takes them.
        serdes: what it was given, by the names of its parameters.

    Raises:
        TypeError: one is something else, for example a Python type.
    """
    for parameter, serde in serdes.items():
        if serde is not None and not isinstance(serde, Serde):
            raise wrong_type(
                f"{operation}() needs a Serde as its {parameter}, but got {serde!r}. Take one "
                "from millstream.serdes, for example STRING, or make a Serde of two functions."
            )


def topic_names(
    taker: str, topics: str | Sequence[str] | re.Pattern[str]
) -> tuple[tuple[str, ...], re.Pattern[str] | None]:
    """The topics that a source reads: their names, each once, or a pattern.

    Args:
        taker: what reads them, for errors.
        topics: a topic, several, or a pattern.

    Raises:
        TopologyError: there is none, or one has a name that is not legal.
        TypeError: these are no topics.
    """
    if isinstance(topics, re.Pattern):
        return (), topics
    listed = (topics,) if isinstance(topics, str) else topics
    if not isinstance(listed, Iterable):
        raise wrong_type(
            f"{taker} reads a topic, several, or a pattern from re.compile(...), but got "
            f"{topics!r}."
        )
    names = tuple(dict.fromkeys(listed))
    if not names:
        raise TopologyError(f"{taker} needs at least one topic.", declared_at=call_site())
    for name in names:
        checked_name(name)
    return names, None


def store_names(operation: str, stores: str | Sequence[str]) -> tuple[str, ...]:
    """The names that `stores=` gives: one, or several.

    Raises:
        TypeError: these are no names.
    """
    names = (stores,) if isinstance(stores, str) else stores
    if not isinstance(names, Sequence | set | frozenset) or not all(
        isinstance(name, str) for name in names
    ):
        raise wrong_type(
            f"{operation}() takes the names of stores, but got {stores!r}. Add a store with "
            "StreamsBuilder.add_state_store, and give its name here."
        )
    return tuple(names)


def _signature(function: Callable[..., Any]) -> inspect.Signature | None:
    """The parameters of a function of Python's own; None where they might be untrue."""
    inner = function
    while isinstance(inner, partial):
        inner = inner.func
    if isinstance(inner, type):
        # Only a class that leaves it to its __init__ to say what it is made of.
        made_plainly = type(inner) in (type, ABCMeta) and "__new__" not in _inherited(inner)
        if not made_plainly or not isinstance(_inherited(inner).get("__init__"), FunctionType):
            return None
    elif not isinstance(inner, FunctionType | MethodType):
        return None
    try:
        # What a decorator has wrapped may take other arguments than the wrapper.
        return inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):
        return None


def _inherited(kind: type) -> dict[str, Any]:
    """What a class and those above it define, but for `object`."""
    return {name: vars(each)[name] for each in reversed(kind.__mro__[:-1]) for name in vars(each)}
