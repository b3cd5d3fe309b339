"""The versioned store for the DSL's operators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from millstream.serdes import Serde
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.keyvalue.key_value_table import EncodedTable, TimedValue
from millstream.state.versioned.versions import NOT_PUT, VersionedBytes


class VersionedValue(NamedTuple):
    """A version of a key.

    Args:
        valid_to: the end of the version's validity, exclusive; None for the latest version.
    """

    value: Any
    timestamp: int
    valid_to: int | None


class VersionedTable(EncodedTable):
    """The store behind a versioned KTable, and the layer that logs each version.

    Has the methods of `TimestampedTable`: keys are serialized (`encode_keys`), and `get` and
    `read_many` read the latest version. There is never a cache. Writes return the end of the
    validity of each version:

    - `VALID_TO_UNDEFINED` (-1): the version is the latest of its key (Kafka Streams'
      `Change.isLatest`);
    - `NOT_PUT` (-2**63): the version was too late and was not stored; do not forward it;
    - otherwise, the timestamp of the next newer version.

    Args:
        dropped: counts late versions; called with their number, the reason and the store's name.
    """

    #: Versioned stores are never cached.
    cache = None

    def __init__(
        self,
        name: str,
        versions: VersionedBytes,
        *,
        topic: str,
        key_serde: Serde[Any],
        value_serde: Serde[Any],
        changelog: StoreChangelog,
        dropped: Callable[[int, str, str], None],
    ) -> None:
        super().__init__(name, topic=topic, key_serde=key_serde, value_serde=value_serde)
        self._versions = versions
        self._changelog = changelog
        self._dropped = dropped

    def put(self, key_bytes: bytes, value: Any, timestamp: int) -> int:
        """Put one version; return the end of its validity (see the class).

        A value of None means that the key has no value from that time on.
        """
        return self.put_encoded(key_bytes, self.encode(value), timestamp)

    def put_encoded(self, key_bytes: bytes, data: bytes | None, timestamp: int) -> int:
        """Put one version with a serialized value; see `put`."""
        return self.write_encoded_many((key_bytes,), (data,), (timestamp,))[0]

    def get(self, key_bytes: bytes) -> TimedValue | None:
        """Return a key's latest version and its timestamp; None if missing or deleted."""
        return self.read_many((key_bytes,))[0]

    def get_as_of(self, key_bytes: bytes, timestamp: int) -> VersionedValue | None:
        """Return the version of a key that was valid at a time.

        See `VersionedBytes.get_as_of`.
        """
        found = self._versions.get_as_of(key_bytes, timestamp)
        if found is None:
            return None
        return VersionedValue(self.decode(found.value), found.timestamp, found.valid_to)

    def read_many(self, keys: Sequence[bytes]) -> list[TimedValue | None]:
        found = self.read_encoded_many(keys)
        datas = [None if pair is None else pair[0] for pair in found]
        values = self._value_serde.deserialize_many(self._topic, datas)
        return [
            None if pair is None else (value, pair[1])
            for pair, value in zip(found, values, strict=True)
        ]

    def read_encoded_many(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        """Return the serialized latest version of each serialized key, and its timestamp."""
        latest = self._versions.get_latest
        found: list[tuple[bytes, int] | None] = []
        for key in keys:
            version = latest(key)
            if version is None or version.value is None:
                found.append(None)
            else:
                found.append((version.value, version.timestamp))
        return found

    def write_many(
        self, keys: Sequence[bytes], values: Sequence[Any], timestamps: Sequence[int]
    ) -> list[int]:
        """Put versions, in order; return the end of each one's validity (see the class)."""
        return self.write_encoded_many(
            keys, self._value_serde.serialize_many(self._topic, values), timestamps
        )

    def write_encoded_many(
        self, keys: Sequence[bytes], datas: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> list[int]:
        """Put versions with serialized values, in order; see `write_many`."""
        valid_to = list(map(self._versions.put, keys, datas, timestamps))
        if NOT_PUT in valid_to:
            late = valid_to.count(NOT_PUT)
            self._dropped(late, "older than the history of a versioned store", self.name)
        # Follows Kafka Streams: late versions are logged as well.
        self._changelog.log_many(keys, datas, timestamps)
        return valid_to
