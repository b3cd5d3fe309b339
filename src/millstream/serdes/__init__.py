"""Serdes convert keys and values to bytes and back.

The constants are compatible with the Java serdes of the same name, so that topics and state can be
shared with Java applications. `JSON`, `json_of` and `msgpack_of` are for objects; `Serde` creates a
serde from two functions. `avro`, `protobuf` and `json_schema` use a schema registry. A serde
converts single values or lists of values; lists are several times as fast.

Example:
    >>> STRING.serialize("topic", "tea"), BYTES.serialize("topic", b"tea")
    (b'tea', b'tea')
    >>> for serde in (LONG, INTEGER, SHORT):
    ...     print(serde.serialize("topic", 258).hex(" "))
    00 00 00 00 00 00 01 02
    00 00 01 02
    01 02
    >>> DOUBLE.serialize("topic", 1.5).hex(" "), FLOAT.serialize("topic", 1.5).hex(" ")
    ('3f f8 00 00 00 00 00 00', '3f c0 00 00')
    >>> BOOLEAN.deserialize("topic", BOOLEAN.serialize("topic", True))
    True
    >>> import uuid
    >>> UUID.serialize("topic", uuid.UUID(int=7))
    b'00000000-0000-0000-0000-000000000007'
    >>> JSON.deserialize("topic", b'{"n": [1, 2]}')
    {'n': [1, 2]}
    >>> VOID.deserialize("topic", None)
"""

from millstream.serdes._list import list_of
from millstream.serdes._numbers import DOUBLE, FLOAT, INTEGER, LONG, SHORT
from millstream.serdes._registry import avro, json_schema, protobuf
from millstream.serdes._serde import Serde
from millstream.serdes._text import BOOLEAN, BYTES, JSON, STRING, UUID, VOID
from millstream.serdes._typed import json_of, msgpack_of
from millstream.serdes._windowed import session_windowed, time_windowed

__all__ = [
    "BOOLEAN",
    "BYTES",
    "DOUBLE",
    "FLOAT",
    "INTEGER",
    "JSON",
    "LONG",
    "SHORT",
    "STRING",
    "Serde",
    "UUID",
    "VOID",
    "avro",
    "json_of",
    "json_schema",
    "list_of",
    "msgpack_of",
    "protobuf",
    "session_windowed",
    "time_windowed",
]
