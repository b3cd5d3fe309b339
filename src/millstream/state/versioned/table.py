"""A versioned store as the DSL's operators use it, beside its public face for processors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from millstream.serdes import Serde
from millstream.state.changelogs.store_changelog import StoreChangelog
from millstream.state.keyvalue.encoded_table import EncodedTable
from millstream.state.keyvalue.table import TimedValue
from millstream.state.versioned.versions import NOT_PUT, VersionedBytes


class VersionedValue(NamedTuple):
    """A version of a key.

    Args:
        value: its value.
        timestamp: from when it is valid.
        valid_to: until when, exclusive; None if it is the latest one.
    """

    value: Any
    timestamp: int
    valid_to: int | None


class VersionedTable(EncodedTable):
    """The store behind a versioned KTable, and the layer that logs each version.

    Takes the place of a `TimestampedTable`: keys are serialized ones (`encode_keys`), what is read
    by `get` and `read_many` is the latest version, and there never is a cache. Writing tells for
    each version until when it is valid:

    - `VALID_TO_UNDEFINED` (-1): it is the latest one of its key (Kafka Streams' `Change.isLatest`);
    - `NOT_PUT` (-2**63): it came too late and is not in the table; nothing is to be forwarded;
    - a timestamp: the one of the next newer version.

    Args:
        name: the store's name.
        versions: the bytes.
        topic: handed to serdes, the changelog's name.
        key_serde: for keys.
        value_serde: for values.
        changelog: where versions are logged.
        dropped: counts versions that come too late: how many, why, the store's name.
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
        """Put one version.

        Args:
            key_bytes: the serialized key.
            value: the value; None says that there is none from then on.
            timestamp: from when it is valid, in milliseconds.

        Returns:
            Until when it is valid; see the class.
        """
        return self.put_encoded(key_bytes, self.encode(value), timestamp)

    def put_encoded(self, key_bytes: bytes, data: bytes | None, timestamp: int) -> int:
        """Put one version whose value is serialized already."""
        return self.write_encoded_many((key_bytes,), (data,), (timestamp,))[0]

    def get(self, key_bytes: bytes) -> TimedValue | None:
        """The latest version of a key and its timestamp; None if there is none or it is deleted."""
        return self.read_many((key_bytes,))[0]

    def get_as_of(self, key_bytes: bytes, timestamp: int) -> VersionedValue | None:
        """The version of a key that was valid at a time.

        Args:
            key_bytes: the serialized key.
            timestamp: the time, in milliseconds.

        Returns:
            None if there was none, or if that time lies before the history that is kept, unless the
            latest version had begun by then.
        """
        found = self._versions.get_as_of(key_bytes, timestamp)
        if found is None:
            return None
        return VersionedValue(self.decode(found.value), found.timestamp, found.valid_to)

    def read_many(self, keys: Sequence[bytes]) -> list[TimedValue | None]:
        """The latest version of each serialized key, in their order."""
        found = self.read_encoded_many(keys)
        datas = [None if pair is None else pair[0] for pair in found]
        values = self._value_serde.deserialize_many(self._topic, datas)
        return [
            None if pair is None else (value, pair[1])
            for pair, value in zip(found, values, strict=True)
        ]

    def read_encoded_many(self, keys: Sequence[bytes]) -> list[tuple[bytes, int] | None]:
        """The serialized latest version of each serialized key, and its timestamp."""
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
        """Put versions, in order; until when each is valid, see the class."""
        return self.write_encoded_many(
            keys, self._value_serde.serialize_many(self._topic, values), timestamps
        )

    def write_encoded_many(
        self, keys: Sequence[bytes], datas: Sequence[bytes | None], timestamps: Sequence[int]
    ) -> list[int]:
        """Put versions whose values are serialized already, in order."""
        valid_to = list(map(self._versions.put, keys, datas, timestamps))
        if NOT_PUT in valid_to:
            late = valid_to.count(NOT_PUT)
            self._dropped(late, "older than the history of a versioned store", self.name)
        # Those that came too late as well: follows Kafka Streams.
        self._changelog.log_many(keys, datas, timestamps)
        return valid_to
