"""The API of the C extension. The import fails if the extension is missing.

It reads and writes Kafka records as columns, with the librdkafka of confluent-kafka.

    settings["plugin.library.paths"] = PLUGIN
    producer = confluent_kafka.Producer(settings)
    client = attach(producer)

confluent-kafka's objects still handle settings, transactions, callbacks, logs and assignments. Only
records bypass them, because they need an object and a call per record. Call `attach` on the same
thread, before that thread creates another client.

The other functions replace slow Python code and need no client.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import cimpl

# Without the extension, `from millstream.native import _native` is not a ModuleNotFoundError.
import millstream.native._native as _native
from millstream.native._native import (
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
    mark_flushed,
    murmur3_128,
    new_entries,
    remove_entries,
    sorted_by_change,
    with_times,
)
from millstream.native.shapes import Event, Run

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
    "sorted_by_change",
    "murmur3_128",
    "new_entries",
    "remove_entries",
    "mark_flushed",
    "with_times",
]

_LIBRARY: Final[str] = cimpl.__file__

#: The value for librdkafka's setting `plugin.library.paths`.
PLUGIN: Final[str] = _native.__file__
#: Why the extension is not usable; None if it is.
UNAVAILABLE_BECAUSE: Final = _native.load(_LIBRARY)
