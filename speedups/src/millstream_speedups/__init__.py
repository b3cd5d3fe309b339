"""Reads and writes Kafka's records as columns, by the librdkafka of confluent-kafka.

    settings["plugin.library.paths"] = PLUGIN
    producer = confluent_kafka.Producer(settings)
    client = attach(producer)

The objects of confluent-kafka stay what they are: settings, transactions, callbacks, logs and
assignments are theirs. Only records do not go through them, as they make an object and a call of
each. `attach` has to follow on the same thread, before another client is made there.

`murmur3_128` and `with_times` do what Python takes long for, and need no client.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import cimpl

from millstream_speedups import _native
from millstream_speedups._native import Client, attach, murmur3_128, with_times
from millstream_speedups.shapes import Event, Run

__all__ = [
    "Client",
    "Event",
    "PLUGIN",
    "Run",
    "UNAVAILABLE_BECAUSE",
    "attach",
    "murmur3_128",
    "with_times",
]

_LIBRARY: Final[str] = cimpl.__file__

#: What librdkafka is told to load, under `plugin.library.paths`.
PLUGIN: Final[str] = _native.__file__
#: Why nothing of this can be used; None where it can.
UNAVAILABLE_BECAUSE: Final = _native.load(_LIBRARY)
