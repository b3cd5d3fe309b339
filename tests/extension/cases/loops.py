"""Fuzz target: the loops over entries, with user functions that misbehave."""

from __future__ import annotations

import random
from typing import Any, Final

from extension.cases.sides import ERRORS, CacheSide
from extension.cases.values import MAX_LONG, Trace, some_key

_VALUES: Final = (1, 1, 2, -1, 2**70, ("float", "nan"), None, "text", b"x", [1], ("Number", 3))
_TIMES: Final = (0, 1, -1, -5, MAX_LONG, -MAX_LONG - 1)
#: Options of a call: columns as iterators, headers, several changes per record, copied values.
_OPTIONS: Final = ("own", "spread", "repeat", "range", "iterators", "headers")


def generate(rng: random.Random) -> Trace:
    steps: Trace = [_step(rng) for _ in range(rng.randrange(1, 12))]
    return [*steps, ("flush", None)]


def _step(rng: random.Random) -> tuple[Any, ...]:
    reactions = [reaction(rng) for _ in range(rng.choice((0, 2, 10, 100)))]
    kind = rng.random()
    if kind < 0.5:
        return (*call(rng, "fold_step", rng.choice((3, 30, 400))), reactions)
    if kind < 0.7:
        return (*call(rng, "count_step", rng.choice((3, 30, 400))), reactions)
    return (*action(rng), reactions)


def call(rng: random.Random, name: str, most: int) -> tuple[Any, ...]:
    """A call of a loop with up to `most` records."""
    values = (1, 1, None) if name == "count_step" else _VALUES
    records = [
        (
            some_key(rng),
            rng.choice(values),
            rng.choice(_TIMES) if rng.random() < 0.1 else rng.randrange(100),
            rng.randrange(3),
        )
        for _ in range(rng.randrange(1, most))
    ]
    return (name, records, " ".join(each for each in _OPTIONS if rng.random() < 0.4))


def action(rng: random.Random) -> tuple[Any, ...]:
    """An action of a user function, or between two calls."""
    return rng.choice(
        (
            ("put", some_key(rng)),
            ("pop", some_key(rng)),
            ("clear",),
            ("value", some_key(rng), rng.choice(_VALUES)),
            ("value", some_key(rng), rng.choice(_VALUES)),
            ("change", some_key(rng), rng.choice(_VALUES), rng.randrange(100)),
            ("change", some_key(rng), rng.choice(_VALUES), rng.randrange(100)),
            ("drop_dirty",),
            ("seq", rng.randrange(100_000)),
            ("flush",),
            ("queue", some_key(rng)),
            ("queue_all",),
            ("evict", rng.randrange(2_000)),
            ("pop_order",),
            ("drop_removed",),
            ("collect",) if rng.random() < 0.1 else ("flush",),
            call(rng, "fold_step", 4),
            call(rng, "count_step", 4),
        )
    )


def reaction(rng: random.Random) -> tuple[Any, Any]:
    """What a user function does and returns."""
    does = action(rng) if rng.random() < 0.25 else None
    results = ("default", "default", "in place", "none", "record", "aggregate", "error", "value")
    result: Any = rng.choice(results)
    if result == "error":
        result = rng.choice(sorted(ERRORS))
    return does, rng.choice(_VALUES) if result == "value" else result


def run(trace: Trace) -> list[str]:
    """Compare the logs of both implementations; return the first difference."""
    sides = [CacheSide(speedups) for speedups in (False, None)]
    for step in trace:
        for side in sides:
            side.perform(step)
        if sides[0].log != sides[1].log:
            break
    for side in sides:
        side.end()
    logs = [side.log for side in sides]
    for expected, found in zip(*logs, strict=False):
        if expected != found:
            return [f"Python: {expected}\nC: {found}"]
    return [] if len(logs[0]) == len(logs[1]) else [f"more in one log: {logs[0]}, {logs[1]}"]
