"""Windowed keys have the same bytes as in Java, and errors name the invalid key."""

from __future__ import annotations

import pickle
from datetime import timedelta
from typing import Any

import pytest

from millstream import Window, Windowed
from millstream.errors import BatchSerializationError, SerializationError
from millstream.serdes import LONG, STRING, session_windowed, time_windowed
from millstream.windowed import MAX_TIME_MS

MINUTES = time_windowed(STRING, timedelta(minutes=1))
SESSIONS = session_windowed(STRING)


def test_bytes_equal_those_of_java() -> None:
    """A window key ends with its start, a session key with end and start. Single and in batches."""
    minute, session = Windowed("k", Window(60_000, 120_000)), Windowed("k", Window(3, 5))
    assert MINUTES.serialize("t", minute) == b"k" + (60_000).to_bytes(8, "big")
    assert SESSIONS.serialize("t", session) == b"k" + bytes(7) + b"\x05" + bytes(7) + b"\x03"
    for serde, key in ((MINUTES, minute), (SESSIONS, session)):
        (data, nothing) = serde.serialize_many("t", [key, None])
        assert (data, nothing) == (serde.serialize("t", key), None)
        assert serde.deserialize("t", data) == key
        assert serde.deserialize_many("t", [data, None, data]) == [key, None, key]
        assert serde.deserialize_many("t", [data, data]) == [key, key]


def test_changelog_keys_have_a_sequence_number() -> None:
    """Reading the changelog of a window store omits the number; writing does not add it."""
    serde = time_windowed(STRING, timedelta(milliseconds=10), changelog=True)
    assert serde.deserialize("t", b"k" + bytes(8) + bytes(4)) == Windowed("k", Window(0, 10))
    assert serde.serialize("t", Windowed("k", Window(0, 10))) == b"k" + bytes(8)


def test_a_window_end_that_overflows_is_the_maximum() -> None:
    """As in Java, where the sum would overflow."""
    data = b"k" + (MAX_TIME_MS - 1).to_bytes(8, "big")
    assert MINUTES.deserialize("t", data) == Windowed("k", Window(MAX_TIME_MS - 1, MAX_TIME_MS))


def test_invalid_keys_and_bytes_are_rejected() -> None:
    """A plain key, a windowed None, and truncated bytes. The error contains the index."""
    good = Windowed("k", Window(0, 60_000))
    with pytest.raises(SerializationError, match="it requires Windowed"):
        MINUTES.serialize("t", "k")  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="must not be None"):
        MINUTES.serialize("t", Windowed(None, Window(0, 1)))  # type: ignore[arg-type]
    with pytest.raises(SerializationError, match="at least 16 bytes"):
        SESSIONS.deserialize("t", b"short")
    with pytest.raises(BatchSerializationError) as failed:
        MINUTES.serialize_many("t", [good, "k"])  # type: ignore[list-item]
    assert (failed.value.index, len(failed.value.done)) == (1, 1)
    with pytest.raises(BatchSerializationError) as failed:
        MINUTES.deserialize_many("t", [b"k" + bytes(8), b"k"])
    assert failed.value.index == 1


def test_pickled_serdes_are_equal() -> None:
    """The engine compares and pickles serdes."""
    other = time_windowed(STRING, timedelta(minutes=1), changelog=True)
    assert pickle.loads(pickle.dumps(MINUTES)) == MINUTES != other
    longs: Any = session_windowed(LONG)
    assert pickle.loads(pickle.dumps(SESSIONS)) == SESSIONS != longs
    assert len({MINUTES, time_windowed(STRING, timedelta(minutes=1)), other}) == 2
    with pytest.raises(ValueError, match="negative"):
        time_windowed(STRING, timedelta(-1))


def test_windows_are_sorted_by_time_and_validated() -> None:
    """By start, then end. Negative starts and ends before starts are rejected."""
    windows = [Window(5, 10), Window(0, 20), Window(0, 10)]
    assert sorted(windows) == [Window(0, 10), Window(0, 20), Window(5, 10)]
    assert pickle.loads(pickle.dumps(Windowed("k", windows[0]))) == Windowed("k", Window(5, 10))
    for start, end in ((-1, 5), (5, 4)):
        with pytest.raises(ValueError, match="cannot"):
            Window(start, end)
