"""Declarations of `map_async`."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from millstream import StreamsBuilder
from millstream.errors import ConfigError
from millstream.serdes import STRING

SECOND = timedelta(seconds=1)


def plain(value: str) -> str:
    return value


async def waits(value: str) -> str:
    return value


async def generates(value: str) -> Any:
    yield value


class Client:
    """Its instances are callable."""

    async def __call__(self, value: str) -> str:
        return value


class Generating:
    """Its instances are callable, and return results that cannot be awaited."""

    async def __call__(self, value: str) -> Any:
        yield value


@pytest.mark.parametrize(
    ("function", "options", "error", "message"),
    [
        (7, {}, TypeError, "needs a function as its mapper"),
        (lambda a, b: a, {}, TypeError, r"calls its mapper as mapper\(value\).*with_key=True"),
        (waits, {"with_key": True}, TypeError, r"mapper\(key, value\).*with_key=False"),
        (generates, {}, TypeError, "generates is an asynchronous generator because it contains"),
        (partial(generates), {}, TypeError, "asynchronous generator"),
        (Generating(), {}, TypeError, "asynchronous generator"),
        (Client, {}, TypeError, r"the class Client as its mapper.* Client\(\.\.\.\)"),
        (waits, {"concurrency": 0}, ConfigError, "concurrency from 1 to 100000, but got 0"),
        (waits, {"concurrency": True}, ConfigError, "concurrency from 1 to 100000, but got True"),
        (waits, {"concurrency": 100_001}, ConfigError, "concurrency from 1 to 100000"),
        (plain, {"concurrency": 2_001}, ConfigError, "2001 threads are too many. .* at most 2000"),
        (waits, {"ordering": "keys"}, ConfigError, "'key', 'none', 'partition', but got 'keys'"),
        (waits, {"timeout": timedelta(0)}, ConfigError, "timeout.* at least 1 ms"),
        (waits, {"timeout": 5}, ConfigError, "takes a timedelta for timeout, but got 5"),
        (plain, {"timeout": SECOND}, ConfigError, "a timeout for a plain function"),
    ],
)
def test_invalid_arguments_are_rejected_at_their_declaration(
    function: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    """Before any record is read, with the line of the program."""
    stream = StreamsBuilder().stream("in", key=STRING, value=STRING)
    with pytest.raises(error, match=message) as caught:
        stream.map_async(function, **options)
    assert "test_map_async.py:" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "options"),
    [
        (waits, {"concurrency": 100_000, "ordering": "none", "timeout": SECOND}),
        (plain, {"concurrency": 2_000, "ordering": "partition"}),
        (Client(), {"timeout": SECOND}),
        (int, {}),
    ],
)
def test_valid_arguments_are_accepted(function: Any, options: dict[str, Any]) -> None:
    """Up to the limits; and a class that creates values when it is called."""
    StreamsBuilder().stream("in", key=STRING, value=STRING).map_async(function, **options)
