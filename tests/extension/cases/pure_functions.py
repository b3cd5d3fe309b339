"""Fuzz target: the functions on bytes."""

from __future__ import annotations

import random
from typing import Any

from extension.cases.values import MAX_LONG, Trace, outcome, shown, value_of
from millstream.native import compiled
from millstream.operators.joins.foreign_key_formats import murmur3_128, pure_murmur3_128
from millstream.state.storage.value_formats import with_times

compiled_with_times = compiled(with_times, "with_times")

_SIZES = (0, 1, 7, 8, 9, 15, 16, 17, 31, 32, 33, 100, 1_000)
_KINDS = ("bytearray", "memoryview", "every second byte", "array", "Sub")
_INVALID = (None, "text", 5, ("Faulty", None))
_TIMES = (0, -1, 1, MAX_LONG, -MAX_LONG - 1, MAX_LONG + 1, "x", None, 1.5, ("Faulty", None))


def _bytes(rng: random.Random) -> Any:
    data = rng.randbytes(rng.choice(_SIZES))
    kind = rng.random()
    # A view of every second byte that has no second byte is an ordinary view.
    if kind < 0.5 or len(data) < 2:
        return data
    return (rng.choice(_KINDS), data) if kind < 0.9 else rng.choice(_INVALID)


def generate(rng: random.Random) -> Trace:
    steps: Trace = []
    for _ in range(rng.randrange(1, 20)):
        steps.append(("murmur3_128", _bytes(rng)))
        columns = [
            (
                _bytes(rng),
                rng.choice(_TIMES) if rng.random() < 0.1 else rng.randrange(2**45),
            )
            for _ in range(rng.randrange(6))
        ]
        steps.append(("with_times", columns))
    return steps


def run(trace: Trace) -> list[str]:
    """Compare results. Errors are compared by whether there is one: buffers that only one
    implementation accepts occur in no serializer."""
    differences: list[str] = []
    for name, argument in trace:
        if name == "murmur3_128":
            data = value_of(argument)
            both = [outcome(each, data) for each in (pure_murmur3_128, murmur3_128)]
        else:
            values = [value_of(value) for value, _ in argument]
            times = [value_of(time) for _, time in argument]
            both = [outcome(each, values, times) for each in (with_times, compiled_with_times)]
        (expected, failure), (found, other_failure) = both
        if bool(failure) != bool(other_failure) or shown(expected) != shown(found):
            differences.append(
                f"{name}: {failure or shown(expected)}, {other_failure or shown(found)}"
            )
    return differences
