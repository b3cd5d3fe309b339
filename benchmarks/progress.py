"""How a program of ours tells when it decodes its first record, and when the last was there."""

from __future__ import annotations

import cProfile
from collections.abc import Sequence
from typing import Any

import marks
from arguments import Arguments

from millstream.serdes import Serde


class Progress:
    """Counts what a stream thread does, and marks the first and the last of it.

    It works in the stream thread, a process of Spark's; the marks go to a file. If a profile is
    asked for, it also profiles that thread between the two marks.

    Args:
        arguments: of the program.
        expected: how much there is to count.
    """

    def __init__(self, arguments: Arguments, expected: int) -> None:
        self._marks = arguments.marks
        self._expected = expected
        self._profile = arguments.profile
        self._profiler: cProfile.Profile | None = None
        self._has_begun = False
        self._done = 0

    def begin(self) -> None:
        """Marks the first record, the first time that it is called."""
        if self._has_begun:
            return
        self._has_begun = True
        marks.put(self._marks, "first")
        if self._profile is not None:
            self._profiler = cProfile.Profile()
            self._profiler.enable()

    def add(self, count: int = 1) -> None:
        """Counts some more; marks the end when all that is expected was there."""
        self._done += count
        if count == 0 or self._done != self._expected:
            return
        marks.put(self._marks, "last")
        if self._profile is not None and self._profiler is not None:
            self._profiler.disable()
            self._profiler.dump_stats(self._profile)
            self._profiler = None


class Reading(Serde[Any]):
    """Another serde, which also tells that a first record is decoded."""

    def __init__(self, inner: Serde[Any], progress: Progress) -> None:
        super().__init__(
            inner.serialize, inner.deserialize, immutable=inner.immutable, name=inner.name
        )
        self.inner = inner
        self.progress = progress

    def serialize_many(self, topic: str, values: Sequence[Any]) -> list[bytes | None]:
        """Encodes a batch as the other one does."""
        return self.inner.serialize_many(topic, values)

    def deserialize_many(self, topic: str, datas: Sequence[bytes | None]) -> list[Any]:
        """Decodes a batch."""
        if datas:
            self.progress.begin()
        return self.inner.deserialize_many(topic, datas)


class Counting(Reading):
    """Another serde, which also counts what is decoded.

    Args:
        inner: the other one.
        progress: what counts.
        topic: whose records count, as a store may decode with the same serde; all if not said.
    """

    def __init__(self, inner: Serde[Any], progress: Progress, topic: str | None = None) -> None:
        super().__init__(inner, progress)
        self.topic = topic

    def deserialize_many(self, topic: str, datas: Sequence[bytes | None]) -> list[Any]:
        """Decodes a batch and counts it."""
        values = super().deserialize_many(topic, datas)
        if self.topic in (None, topic):
            self.progress.add(len(datas))
        return values
