"""What a store is asked for in bytes: what travels to the thread that owns it."""

from __future__ import annotations

import enum
import struct
from typing import Final

import msgspec

from millstream.state.storage.bytes_store import ByteItems

#: How a count, and the times of a version, are given as bytes.
COUNT: Final = struct.Struct(">q")
VERSION: Final = struct.Struct(">qq")
#: Stands for "until now" among the times of a version.
STILL_VALID: Final = -(1 << 63)


class ReadKind(enum.Enum):
    """What a read gives, and which fields of it count."""

    #: No pairs: to see whether the store is there.
    NOTHING = "nothing"
    #: The value of `key`.
    GET = "get"
    #: From `key` to `upto`, both included; None leaves that side open.
    RANGE = "range"
    #: What begins with `key`.
    PREFIX = "prefix"
    #: About how many keys there are.
    COUNT = "count"
    #: The window of `key` that starts at `first`.
    WINDOW = "window"
    #: The windows of `key` that start from `first` to `last`.
    WINDOWS = "windows"
    #: The windows of the keys from `key` to `upto` that start from `first` to `last`.
    WINDOW_RANGE = "window range"
    #: The session of `key` from `first` to `last`.
    SESSION = "session"
    #: The sessions of `key` that end at `first` or later and start at `last` or earlier.
    SESSIONS = "sessions"
    #: The same of the keys from `key` to `upto`.
    SESSION_RANGE = "session range"
    #: The version of `key` that was valid at `first`; None for the latest one.
    VERSION = "version"
    #: The versions of `key` that were valid at any time from `first` to `last`.
    VERSIONS = "versions"


class Read(msgspec.Struct, frozen=True, array_like=True):
    """What is read of one store. Which fields count, the kind says.

    Args:
        kind: what is read.
        key: a serialized key: the one asked for, the first one of a range, a prefix.
        upto: the last serialized key of a range.
        first: a time, in milliseconds.
        last: another one.
        reverse: whether pairs come in the opposite order.
        past_cache: whether what the record cache holds is left out.
        begin: of windows and sessions of many keys, and of sessions of a key: a stored key. What
            comes before it, in the order in which pairs come, is left out.
    """

    kind: ReadKind
    key: bytes | None = None
    upto: bytes | None = None
    first: int | None = None
    last: int | None = None
    reverse: bool = False
    past_cache: bool = False
    begin: bytes | None = None


def nothing() -> ByteItems:
    """No pairs."""
    yield from ()


def one(key: bytes, value: bytes | None) -> ByteItems:
    """The one pair, or none where there is no value."""
    if value is not None:
        yield key, value
