"""Read requests with serialized keys, sent to the thread that owns the store."""

from __future__ import annotations

import enum
import struct
from typing import Final

import msgspec

from millstream.state.storage.bytes_store import ByteItems

#: The byte formats of a count and of the validity of a version.
COUNT: Final = struct.Struct(">q")
VERSION: Final = struct.Struct(">qq")
#: The encoded end of validity of a version that is still valid.
STILL_VALID: Final = -(1 << 63)


class ReadKind(enum.Enum):
    """The kind of a read, which determines the fields of the request that are used."""

    #: Reads nothing, but checks that the store is available.
    NOTHING = "nothing"
    #: The value of `key`.
    GET = "get"
    #: The keys from `key` to `last_key`, both inclusive; None leaves that side open.
    RANGE = "range"
    #: The keys that start with `key`.
    PREFIX = "prefix"
    #: The approximate number of keys.
    COUNT = "count"
    #: The window of `key` that starts at `first`.
    WINDOW = "window"
    #: The windows of `key` that start from `first` to `last`.
    WINDOWS = "windows"
    #: The windows of the keys from `key` to `last_key` that start from `first` to `last`.
    WINDOW_RANGE = "window range"
    #: The session of `key` from `first` to `last`.
    SESSION = "session"
    #: The sessions of `key` that end at `first` or later and start at `last` or earlier.
    SESSIONS = "sessions"
    #: The sessions of the keys from `key` to `last_key`, with the times of `SESSIONS`.
    SESSION_RANGE = "session range"
    #: The version of `key` that was valid at `first`; the latest one if `first` is None.
    VERSION = "version"
    #: The versions of `key` that were valid at any time from `first` to `last`.
    VERSIONS = "versions"


class ReadRequest(msgspec.Struct, frozen=True, array_like=True):
    """A read request to one store. The kind determines the fields that are used.

    Times are in milliseconds.

    Args:
        key: a serialized key: the requested one, the first of a range, or a prefix.
        skip_cache: whether to leave out the contents of the record cache.
        begin: a stored key from which to start, in reads of windows and sessions of several keys
            and of sessions of one key. Pairs before it, in the order of the read, are left out.
    """

    kind: ReadKind
    key: bytes | None = None
    last_key: bytes | None = None
    first: int | None = None
    last: int | None = None
    reverse: bool = False
    skip_cache: bool = False
    begin: bytes | None = None


def single_pair(key: bytes, value: bytes | None) -> ByteItems:
    """Iterate over one pair, or over none if the value is None."""
    if value is not None:
        yield key, value
