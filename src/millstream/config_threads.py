"""How many stream threads: a number, or a least and a most between which they come and go."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from millstream.errors import ConfigError

#: One number, or the least and the most.
Threads = int | tuple[int, int]

_RANGE: Final = re.compile(r"(\d+)\s*-\s*(\d+)")
_MUST_BE: Final = "must be an int, or a pair (least, most) of them as in (1, 8)"


class ThreadsSetting:
    """For type checkers: given as a number or a pair in a list or tuple, one of `Threads`
    afterwards.

    Only of use in the class that is called: mypy does not find it in a base class.
    """

    def __get__(self, instance: object, owner: Any = None) -> Threads:
        raise NotImplementedError

    def __set__(self, instance: object, value: int | Sequence[int]) -> None: ...


def checked_threads(name: str, value: Any) -> Threads:
    """A number of threads, or a pair of them, in its final form: two equal ones are one number.

    Raises:
        ConfigError: it is neither, or its numbers cannot be.
    """
    if isinstance(value, list | tuple):
        if len(value) != 2:
            raise ConfigError(f"{name} is {value!r}, but {_MUST_BE}.")
        least, most = (_number(name, value, each) for each in value)
        if most < least:
            raise ConfigError(
                f"{name} is {value!r}, but the first of the pair is the least: write "
                f"({most}, {least})."
            )
        return least if least == most else (least, most)
    return _number(name, value, value)


def parse_threads(name: str, text: str) -> Threads:
    """What a properties file says: `4`, or `1-8`.

    Raises:
        ConfigError: it says neither.
    """
    stripped = text.strip()
    pair = _RANGE.fullmatch(stripped)
    if pair is not None:
        return int(pair[1]), int(pair[2])
    try:
        return int(stripped)
    except ValueError:
        raise ConfigError(f"{name} is {text!r}, but must be a number, or two as in 1-8.") from None


def bounds_of(threads: Threads) -> tuple[int, int]:
    """The least and the most: of a number twice the same."""
    return threads if isinstance(threads, tuple) else (threads, threads)


def _number(name: str, given: Any, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f"{name} is {given!r} ({type(given).__name__}), but {_MUST_BE}.")
    if value < 1:
        raise ConfigError(
            f"{name} is {given!r}, but must be at least 1: without a thread nothing is processed."
        )
    return value
