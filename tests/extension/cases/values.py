"""Values of traces: Python literals, and objects with unusual behavior.

A trace consists of Python literals, so that it can be printed, reduced and repeated. A tuple
`(kind, argument)` with a kind of `KINDS` describes an object that no literal can express.
"""

from __future__ import annotations

import array
import random
from collections.abc import Callable, Sequence
from typing import Any, Final, SupportsIndex

from millstream.native import extension


def library() -> Any:
    """Return the extension, whose functions are passed unusual arguments."""
    found = extension()
    assert not isinstance(found, str), found
    return found


#: A trace: a list of steps. Only lists are reduced, tuples stay as they are.
Trace = list[Any]
MAX_LONG: Final = 2**63 - 1


class Sub(bytes):
    """A subclass of bytes."""


class SameHash(bytes):
    """Bytes whose hashes are all equal."""

    __slots__ = ()

    def __hash__(self) -> int:
        return 7

    __eq__ = bytes.__eq__


class Faulty:
    """An object whose special methods raise errors."""

    def _fail(self, *_: object) -> Any:
        raise ZeroDivisionError("faulty")

    __index__ = __bytes__ = __len__ = __iter__ = __getitem__ = __bool__ = __add__ = __hash__ = _fail
    __eq__ = __repr__ = __call__ = _fail


class Number:
    """An integer that is not an int."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __index__(self) -> int:
        return self.number

    def __add__(self, other: SupportsIndex) -> Number:
        return Number(self.number + other.__index__())

    def __repr__(self) -> str:
        return f"Number({self.number})"


KINDS: Final[dict[str, Callable[[Any], Any]]] = {
    "Sub": Sub,
    "SameHash": SameHash,
    "Faulty": lambda _: Faulty(),
    "Number": Number,
    "float": float,
    "bytearray": bytearray,
    "memoryview": memoryview,
    "every second byte": lambda data: memoryview(bytes(data) * 2)[::2],
    "zeros": bytes,
    "array": lambda data: array.array("b", data),
}


def value_of(described: Any) -> Any:
    """Return the object of a description; lists are copied."""
    if isinstance(described, tuple) and len(described) == 2 and described[0] in KINDS:
        return KINDS[described[0]](described[1])
    return list(described) if isinstance(described, list) else described


def shown(value: Any) -> str:
    """Describe a value with its type, also if its `repr` fails."""
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join(map(shown, value))})"
    if isinstance(value, Faulty):
        return "Faulty"
    if isinstance(value, memoryview):
        return f"memoryview {bytes(value)!r}"
    return f"{type(value).__name__} {value!r}"


def outcome(call: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """Return the result of a call and "", or None and the type of its exception.

    Raises:
        SystemError: the call raised it, which is always a fault of C code.
    """
    try:
        return call(*arguments), ""
    except SystemError:
        raise
    except (Exception, KeyboardInterrupt) as error:
        return None, type(error).__name__


def table_order(key: bytes) -> tuple[bytes, int]:
    """Return a sort key for keys of a table, in which equal bytes can have different hashes."""
    return bytes(key), hash(key)


#: Record keys: short ones, which repeat, a long one, and some that are similar to stored keys.
KEYS: Final[Sequence[bytes]] = (b"", b"a", b"b", b"ab", b"a" * 100, bytes(8), b"\xff" * 9)


def some_key(rng: random.Random) -> Any:
    """Return a description of a key."""
    key = rng.choice([*KEYS, b"%d" % rng.randrange(12), b"%d" % rng.randrange(300)])
    kind = rng.random()
    return ("Sub", key) if kind < 0.05 else ("SameHash", key) if kind < 0.1 else key


def chosen(rng: random.Random, count: int, most: int) -> list[int]:
    """Return up to `most` indices below `count`, which may repeat."""
    return [rng.randrange(count) for _ in range(rng.randrange(most))] if count else []
