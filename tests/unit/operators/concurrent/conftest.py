"""Records and calls of concurrent operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from millstream.operators.concurrent.concurrent_calls import Call
from millstream.operators.record_batch import Batch, Origin
from millstream.record import TopicPartition

PLACE = TopicPartition("in", 0)

Calls = Callable[..., list[Call]]


@pytest.fixture
def calls() -> Calls:
    """Return a function that makes calls for values. Their units are the first letters, or None."""

    def make(
        values: Sequence[Any], *, units: bool = True, place: TopicPartition = PLACE
    ) -> list[Call]:
        size = len(values)
        nothing: list[Any] = [None] * size
        origin = Origin(place, list(range(size)))
        batch = Batch(nothing, list(values), [0] * size, range(size), origin)
        return [Call(batch, i, str(v)[0] if units else None) for i, v in enumerate(values)]

    return make
