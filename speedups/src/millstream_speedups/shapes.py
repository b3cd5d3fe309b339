"""What is read, as the C part gives it."""

from __future__ import annotations

from typing import TypeAlias

#: Topic, partition, keys, values, timestamps, the first offset, all of them where there are gaps,
#: headers where any record has some, the leader epoch of the last (-1 where it is not known).
Run: TypeAlias = tuple[
    str,
    int,
    list[bytes | None],
    list[bytes | None],
    list[int],
    int,
    list[int] | None,
    list[tuple[tuple[str, bytes | None], ...]] | None,
    int,
]
#: librdkafka's number of an error and what it says, topic, partition and offset.
Event: TypeAlias = tuple[int, str, str | None, int, int]
