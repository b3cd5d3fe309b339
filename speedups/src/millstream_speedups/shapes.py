"""What the C part takes and gives."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, TypeAlias

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
#: librdkafka's number of an error and what it says, topic, partition and offset; of an error of the
#: client itself the partition is -2.
Event: TypeAlias = tuple[int, str, str | None, int, int]
#: Keys of entries, values, timestamps, places, offsets and headers.
Columns: TypeAlias = tuple[list[bytes], list[Any], list[int], list[Any], list[int], list[Any]]
#: The key of an entry and the index of its record (None where each has one) for each change; then
#: keys, values, timestamps, places, offsets and headers (None where there are none) of the records,
#: and room for the index of the record that Python is called for.
Updates: TypeAlias = tuple[
    list[bytes],
    list[int] | None,
    list[Any],
    list[Any],
    list[int],
    Iterable[Any],
    Iterable[int],
    list[Any] | None,
    "array[int]",
]
