"""The types of the C extension's arguments and results."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, TypeAlias

#: Topic, partition, keys, values, timestamps, the first offset, all offsets if there are gaps,
#: headers if any record has some, the leader epoch of the last record (-1 if unknown).
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
#: librdkafka's error code and message, topic, partition and offset; the partition is -2 for an
#: error of the client itself.
Event: TypeAlias = tuple[int, str, str | None, int, int]
#: Keys of entries, values, timestamps, places, offsets and headers.
Columns: TypeAlias = tuple[list[bytes], list[Any], list[int], list[Any], list[int], list[Any]]
#: For each change the key of the entry and the index of its record (None if each record has one);
#: then keys, values, timestamps, places, offsets and headers (None if there are none) of the
#: records, and an array for the index of the record whose Python function is called.
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
