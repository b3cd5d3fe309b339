"""Marks the first and the last record of a Millstream program."""

from __future__ import annotations

import cProfile
from collections.abc import Sequence
from typing import Any

import marks
from arguments import Arguments

from millstream.serdes import Serde


class Progress:
    """Counts the work of a stream thread, and marks its start and end.

    It runs in the stream thread, which is a Spark process, so the marks are in a file. If
    requested, it also profiles the thread between the two marks.

    Args:
        arguments: the arguments of the program.
        expected: the count at the end.
    """

    def __init__(self, arguments: Arguments, expected: int) -> None:
        self._marks = arguments.marks
        self._expected = expected
        self._profile = arguments.profile
        self._profiler: cProfile.Profile | None = None
        self._has_begun = False
        self._done = 0

    def begin(self) -> None:
        """Mark the first record, on the first call."""
        if self._has_begun:
            return
        self._has_begun = True
        marks.put(self._marks, "first")
        if self._profile is not None:
            self._profiler = cProfile.Profile()
            self._profiler.enable()

    def add(self, count: int = 1) -> None:
        """Add to the count, and mark the end when the expected count is reached."""
        self._done += count
        if count == 0 or self._done != self._expected:
            return
        marks.put(self._marks, "last")
        if self._profile is not None and self._profiler is not None:
            self._profiler.disable()
            self._profiler.dump_stats(self._profile)
            self._profiler = None


class MarkingSerde(Serde[Any]):
    """A wrapped serde that marks the first decoded record."""

    def __init__(self, inner: Serde[Any], progress: Progress) -> None:
        super().__init__(
            inner.serialize, inner.deserialize, immutable=inner.immutable, name=inner.name
        )
        self.inner = inner
        self.progress = progress

    def serialize_many(self, topic: str, values: Sequence[Any]) -> list[bytes | None]:
        """Encode a batch with the wrapped serde."""
        return self.inner.serialize_many(topic, values)

    def deserialize_many(self, topic: str, payloads: Sequence[bytes | None]) -> list[Any]:
        """Decode a batch."""
        if payloads:
            self.progress.begin()
        return self.inner.deserialize_many(topic, payloads)


class CountingSerde(MarkingSerde):
    """A wrapped serde that also counts decoded records.

    Args:
        inner: the wrapped serde.
        progress: the counter.
        topic: the only topic to count, because a store may use the same serde.
    """

    def __init__(self, inner: Serde[Any], progress: Progress, topic: str | None = None) -> None:
        super().__init__(inner, progress)
        self.topic = topic

    def deserialize_many(self, topic: str, payloads: Sequence[bytes | None]) -> list[Any]:
        """Decode a batch and count it."""
        values = super().deserialize_many(topic, payloads)
        if self.topic in (None, topic):
            self.progress.add(len(payloads))
        return values
