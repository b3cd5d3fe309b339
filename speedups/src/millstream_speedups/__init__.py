"""Reads and writes Kafka's records as columns, by the librdkafka of confluent-kafka.

    settings["plugin.library.paths"] = PLUGIN
    producer = confluent_kafka.Producer(settings)
    client = attach(producer)

The objects of confluent-kafka stay what they are: settings, transactions, callbacks, logs and
assignments are theirs. Only records do not go through them, as they make an object and a call of
each. `attach` has to follow on the same thread, before another client is made there.

Whatever else is here does what Python takes long for, and needs no client.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import cimpl

from millstream_speedups import _native
from millstream_speedups._native import (
    VERSION,
    CachedEntry,
    Client,
    EntryTable,
    EvictionOrder,
    KeyIndex,
    attach,
    columns_of,
    count_entries,
    fold_entries,
    fold_sessions,
    in_order,
    murmur3_128,
    new_entries,
    remove_entries,
    settle_entries,
    with_times,
)
from millstream_speedups.shapes import Event, Run

__all__ = [
    "CachedEntry",
    "Client",
    "EntryTable",
    "Event",
    "EvictionOrder",
    "KeyIndex",
    "PLUGIN",
    "Run",
    "UNAVAILABLE_BECAUSE",
    "VERSION",
    "attach",
    "columns_of",
    "count_entries",
    "fold_entries",
    "fold_sessions",
    "in_order",
    "murmur3_128",
    "new_entries",
    "remove_entries",
    "settle_entries",
    "with_times",
]

_LIBRARY: Final[str] = cimpl.__file__

#: What librdkafka is told to load, under `plugin.library.paths`.
PLUGIN: Final[str] = _native.__file__
#: Why nothing of this can be used; None where it can.
UNAVAILABLE_BECAUSE: Final = _native.load(_LIBRARY)
