"""Session stores for processors and queries."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import Any, Generic, TypeVar

from millstream.errors import NullKeyError
from millstream.serdes import Serde
from millstream.state.changelogs.store_changelog import ProcessorRecordContext
from millstream.state.keyvalue.typed_store import TypedStore
from millstream.state.storage.iterators import KeyValueIterator
from millstream.state.windows.session_table import SessionTable
from millstream.state.windows.window_keys import SESSIONS, session_key, session_of
from millstream.windowed import MAX_TIME_MS, Window, Windowed, unchecked_windowed

K = TypeVar("K")
V = TypeVar("V")


class SessionStore(TypedStore[K, SessionTable], Generic[K, V]):
    """A store of one value per key and session (Kafka Streams' `SessionStore`).

    A session has a start and an end, both inclusive. Sessions whose end is at least the retention
    before the latest end have expired: they are not found, and puts of them are dropped and counted
    (in RocksDB, where segments of at least a minute expire as a whole, some expired sessions are
    still accepted).

    Times are milliseconds since the epoch. Values that were read may be kept and modified: they are
    not shared with the store. Values are serialized when they are put.

    The examples of the methods start with an empty store `visits` of strings and integers.

    Example:
        >>> in_memory = Stores.in_memory_session("visits", timedelta(hours=1))
        >>> visits = MockProcessorContext().add_state_store(
        ...     Stores.session_builder(in_memory, STRING, LONG)
        ... )
        >>> visits.put(Windowed("ann", Window(0, 1_000)), 2)
        >>> for session, pages in visits.find_sessions("ann", 500, 500):
        ...     print(session, pages)
        [ann@0/1000] 2
    """

    def __init__(
        self,
        table: SessionTable,
        *,
        topic: str,
        key_serde: Serde[Any],
        persistent: bool,
        context: ProcessorRecordContext,
    ) -> None:
        super().__init__(
            table.name,
            table,
            topic=topic,
            key_serde=key_serde,
            persistent=persistent,
            cache=table.cache,
        )
        self._context = context

    def put(self, session: Windowed[K], value: V | None) -> None:
        """Store the value of a session; None removes it.

        Raises:
            InvalidStateStoreError: the store is closed. All methods raise this.
            NullKeyError: the key is None. All methods that need a key raise this.

        Example:
            >>> visits.put(Windowed("ann", Window(0, 1_000)), 2)
            >>> visits.fetch_session("ann", 0, 1_000)
            2
        """
        table = self._open()
        stored_key = self._stored_key(session)
        table.put_encoded(stored_key, table.encode(value), self._context.timestamp)
        self._after_put(self._context)

    def remove(self, session: Windowed[K]) -> None:
        """Remove a session, if it exists.

        Example:
            >>> session = Windowed("ann", Window(0, 1_000))
            >>> visits.put(session, 2)
            >>> visits.remove(session)
            >>> visits.fetch_session("ann", 0, 1_000)
        """
        table = self._open()
        table.remove_stored(self._stored_key(session), self._context.timestamp)
        self._after_put(self._context)

    def find_sessions(
        self, key: K, earliest_end_ms: int, latest_start_ms: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """Iterate over the sessions of a key that overlap a time range, sorted by end.

        Sessions with the same end are sorted by start: ascending in RocksDB, descending in memory.

        Args:
            earliest_end_ms: the earliest end of a session.
            latest_start_ms: the latest start of a session.

        Example:
            >>> visits.put(Windowed("ann", Window(0, 1_000)), 2)
            >>> visits.put(Windowed("ann", Window(60_000, 90_000)), 5)
            >>> [pages for _, pages in visits.find_sessions("ann", 30_000, 120_000)]
            [5]
        """
        return self._of_key(key, earliest_end_ms, latest_start_ms, reverse=False)

    def backward_find_sessions(
        self, key: K, earliest_end_ms: int, latest_start_ms: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """Iterate over the sessions of `find_sessions` in reverse order.

        Example:
            >>> visits.put(Windowed("ann", Window(0, 1_000)), 2)
            >>> visits.put(Windowed("ann", Window(60_000, 90_000)), 5)
            >>> [pages for _, pages in visits.backward_find_sessions("ann", 0, 120_000)]
            [5, 2]
        """
        return self._of_key(key, earliest_end_ms, latest_start_ms, reverse=True)

    def find_sessions_range(
        self, lo: K | None, hi: K | None, earliest_end_ms: int, latest_start_ms: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """Iterate over the sessions of keys from `lo` to `hi` that overlap a time range.

        The order is by end, key and start in memory, and by time segment, key, end and start in
        RocksDB.

        Args:
            lo: the first key in the order of serialized keys; None for no lower bound.
            hi: the last key, inclusive; None for no upper bound.
            earliest_end_ms: the earliest end of a session.
            latest_start_ms: the latest start of a session.

        Example:
            >>> visits.put(Windowed("ann", Window(0, 1_000)), 2)
            >>> visits.put(Windowed("bob", Window(60_000, 90_000)), 5)
            >>> found = visits.find_sessions_range("a", "c", 30_000, 120_000)
            >>> [(session.key, pages) for session, pages in found]
            [('bob', 5)]
        """
        return self._of_keys(lo, hi, earliest_end_ms, latest_start_ms, reverse=False)

    def backward_find_sessions_range(
        self, lo: K | None, hi: K | None, earliest_end_ms: int, latest_start_ms: int
    ) -> KeyValueIterator[Windowed[K], V]:
        """Iterate over the sessions of `find_sessions_range` in reverse order.

        Example:
            >>> visits.put(Windowed("ann", Window(0, 1_000)), 2)
            >>> visits.put(Windowed("bob", Window(60_000, 90_000)), 5)
            >>> found = visits.backward_find_sessions_range("a", "c", 0, 120_000)
            >>> [(session.key, pages) for session, pages in found]
            [('bob', 5), ('ann', 2)]
        """
        return self._of_keys(lo, hi, earliest_end_ms, latest_start_ms, reverse=True)

    def fetch(self, key: K) -> KeyValueIterator[Windowed[K], V]:
        """Iterate over all sessions of a key, in the order of `find_sessions`.

        Example:
            >>> visits.put(Windowed("ann", Window(0, 1_000)), 2)
            >>> visits.put(Windowed("ann", Window(60_000, 90_000)), 5)
            >>> [str(session) for session, _ in visits.fetch("ann")]
            ['[ann@0/1000]', '[ann@60000/90000]']
        """
        return self._of_key(key, 0, MAX_TIME_MS, reverse=False)

    def backward_fetch(self, key: K) -> KeyValueIterator[Windowed[K], V]:
        """Iterate over the sessions of `fetch` in reverse order.

        Example:
            >>> visits.put(Windowed("ann", Window(0, 1_000)), 2)
            >>> visits.put(Windowed("ann", Window(60_000, 90_000)), 5)
            >>> [pages for _, pages in visits.backward_fetch("ann")]
            [5, 2]
        """
        return self._of_key(key, 0, MAX_TIME_MS, reverse=True)

    def fetch_range(self, lo: K | None, hi: K | None) -> KeyValueIterator[Windowed[K], V]:
        """Iterate over all sessions of the keys from `lo` to `hi`.

        See `find_sessions_range`.

        Example:
            >>> visits.put(Windowed("ann", Window(0, 1_000)), 2)
            >>> visits.put(Windowed("bob", Window(60_000, 90_000)), 5)
            >>> [(session.key, pages) for session, pages in visits.fetch_range("a", "c")]
            [('ann', 2), ('bob', 5)]
        """
        return self._of_keys(lo, hi, 0, MAX_TIME_MS, reverse=False)

    def backward_fetch_range(self, lo: K | None, hi: K | None) -> KeyValueIterator[Windowed[K], V]:
        """Iterate over the sessions of `fetch_range` in reverse order.

        Example:
            >>> visits.put(Windowed("ann", Window(0, 1_000)), 2)
            >>> visits.put(Windowed("bob", Window(60_000, 90_000)), 5)
            >>> [session.key for session, _ in visits.backward_fetch_range(None, None)]
            ['bob', 'ann']
        """
        return self._of_keys(lo, hi, 0, MAX_TIME_MS, reverse=True)

    def fetch_session(self, key: K, start_ms: int, end_ms: int) -> V | None:
        """Return the value of exactly this session, or None.

        Example:
            >>> visits.put(Windowed("ann", Window(0, 1_000)), 2)
            >>> visits.fetch_session("ann", 0, 1_000), visits.fetch_session("ann", 0, 2_000)
            (2, None)
        """
        table, key_bytes = self._open(), self._key(key)
        raw = None if start_ms < 0 else table.fetch_raw(key_bytes, start_ms, end_ms)
        return None if raw is None else table.decode(raw)

    def _stored_key(self, session: Windowed[K]) -> bytes:
        try:
            window: Window = session.window
        except AttributeError:
            raise self._session_error(session) from None
        return session_key(self._key(session.key), window.start_ms, window.end_ms)

    def _session_error(self, session: Any) -> NullKeyError | TypeError:
        if session is None:
            return self._null_key_error("a session's key")
        return TypeError(
            f"Store {self.name} stores sessions, but got {session!r}. Pass a Windowed: a key and "
            "the Window from the session's first record to its last one."
        )

    def _of_key(
        self, key: K, earliest_end: int, latest_start: int, *, reverse: bool
    ) -> KeyValueIterator[Windowed[K], V]:
        table, key_bytes = self._open(), self._key(key)
        pairs = table.read_key(key_bytes, earliest_end)
        return self._iterator(self._decoded(reversed(pairs) if reverse else pairs, latest_start))

    def _of_keys(
        self, lo: K | None, hi: K | None, earliest_end: int, latest_start: int, *, reverse: bool
    ) -> KeyValueIterator[Windowed[K], V]:
        table = self._open()
        lowest = None if lo is None else self._key(lo)
        highest = None if hi is None else self._key(hi)
        pairs = table.read_keys(lowest, highest, earliest_end, MAX_TIME_MS, reverse=reverse)
        return self._iterator(self._decoded(pairs, latest_start))

    def _decoded(
        self, pairs: Iterable[tuple[bytes, bytes]], latest_start: int
    ) -> Generator[tuple[Windowed[K], V], None, None]:
        topic, key_of = self._topic, SESSIONS.key_of
        decode, value = self._key_serde.deserialize, self._layer.decode
        try:
            for stored, raw in pairs:
                start, end = session_of(stored)
                if start <= latest_start:
                    yield unchecked_windowed(decode(topic, key_of(stored)), start, end), value(raw)
        finally:
            if isinstance(pairs, Generator):
                pairs.close()
