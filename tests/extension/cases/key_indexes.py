"""Fuzz target: the key index, also while `stored_keys` changes or reads it."""

from __future__ import annotations

import random
from typing import Any

from extension.cases.values import KEYS, MAX_LONG, Trace, outcome, value_of
from millstream.native import compiled
from millstream.state.windows.key_index import PureKeyIndex
from millstream.state.windows.window_keys import SESSIONS, WINDOWS, session_key, window_key

CompiledKeyIndex = compiled(PureKeyIndex, "KeyIndex")

#: More than the index accepts without a query.
_MANY = 10_001


def _time(rng: random.Random) -> int:
    return rng.choice((0, 1, rng.randrange(50), rng.randrange(50), 2**40, MAX_LONG))


def _stored(rng: random.Random, layout: str) -> Any:
    key = rng.choice(KEYS)
    if layout == "windows":
        return window_key(key, _time(rng), rng.choice((0, 0, 1, 2**31 - 1)))
    stored = session_key(key, _time(rng), _time(rng))
    return ("Sub", stored) if rng.random() < 0.1 else stored


def generate(rng: random.Random) -> Trace:
    layout = rng.choice(("windows", "sessions"))
    bounds = (
        0,
        1,
        -1,
        2**40,
        MAX_LONG,
        MAX_LONG - 1,
        -MAX_LONG - 1,
        MAX_LONG + 1,
        2**100,
        -(2**100),
    )

    def bound() -> int:
        return rng.choice(bounds) if rng.random() < 0.3 else rng.randrange(50)

    steps: Trace = [("layout", layout)]
    for _ in range(rng.randrange(1, 80)):
        kind = rng.random()
        if kind < 0.45:
            steps.append(("add", _stored(rng, layout)))
        elif kind < 0.6:
            steps.append(("remove", rng.randrange(100)))
        elif kind < 0.9:
            steps.append(("of_key", rng.choice(KEYS), bound(), bound()))
        elif kind < 0.99:
            reactions = ("add", "remove", "read", "raise", "none", "none")
            steps.append(("react", [rng.choice(reactions) for _ in range(rng.randrange(4))]))
        elif rng.random() < 0.05:
            steps.append(("add_many", rng.choice(KEYS)))
    return steps


class _Side:
    """An index, and its source of stored keys, which reacts when it is read."""

    def __init__(self, kind: Any, layout: str) -> None:
        self._layout = WINDOWS if layout == "windows" else SESSIONS
        self._stored: list[bytes] = []
        self.reactions: list[str] = []
        self.index = kind(self._layout, self._read)

    def _read(self) -> Any:
        found = list(self._stored)
        reaction = self.reactions.pop() if self.reactions else "none"
        if reaction == "raise":
            raise ValueError("stored keys")
        if reaction == "read":
            self.index.of_key(b"a", 0, 5)
        elif reaction == "add":
            self.add(window_key(b"a", 3) if self._layout is WINDOWS else session_key(b"a", 3, 4))
        elif reaction == "remove" and self._stored:
            self.remove(0)
        return iter(found)

    def add(self, stored: bytes) -> None:
        self._stored.append(stored)
        self.index.add(stored)

    def remove(self, number: int) -> None:
        if self._stored:
            self.index.remove(self._stored.pop(number % len(self._stored)))

    def add_many(self, key: bytes) -> None:
        for time in range(_MANY):
            self.add(
                window_key(key, time) if self._layout is WINDOWS else session_key(key, 0, time)
            )

    def react(self, reactions: list[str]) -> None:
        self.reactions = list(reactions)

    def of_key(self, key: bytes, first: int, last: int) -> Any:
        return self.index.of_key(key, first, last)


def run(trace: Trace) -> list[str]:
    layout = next((step[1] for step in trace if step[0] == "layout"), "windows")
    sides = [_Side(kind, layout) for kind in (PureKeyIndex, CompiledKeyIndex)]
    for name, *arguments in trace:
        if name == "layout":
            continue
        values = [value_of(each) for each in arguments]
        expected, found = (outcome(getattr(side, name), *values) for side in sides)
        if expected != found:
            return [f"{name} {arguments}: {expected}, {found}"]
        states = [(side.index.needs_fill, len(side.reactions)) for side in sides]
        if states[0] != states[1]:
            return [f"needs_fill after {name} {arguments}: {states}"]
    return []
