"""The session loop in C checks its arguments and keeps no references.

`tests/properties/test_sessions.py` compares its results with those of Python.
"""

from __future__ import annotations

import gc
import sys
from array import array
from collections.abc import Callable
from importlib import import_module
from itertools import repeat
from types import ModuleType
from typing import Any, Final

import pytest
from support.strictness import needed_speedups

from millstream.operators.aggregates.cached_loops import AggregateUpdates
from millstream.record import TopicPartition
from millstream.state.windows.window_keys import SESSIONS, session_key

GAP_MS: Final = 10


@pytest.fixture(scope="module")
def native() -> ModuleType:
    needed_speedups()
    return import_module("millstream.native.library")


class Sessions:
    """A cache of sessions, with the parts that the loop uses."""

    def __init__(self, native: ModuleType) -> None:
        self.entries = native.EntryTable()
        self.dirty: list[Any] = []
        self.seq = 0
        self.counted: list[tuple[int, int]] = []
        self.index = native.KeyIndex(SESSIONS, lambda: self.entries)
        self.order = native.EvictionOrder()
        self.resting: dict[bytes, Any] = {}
        self.left_to_python: list[tuple[Any, ...]] = []
        self.failed: list[tuple[int, Exception]] = []
        self._fold = native.fold_sessions

    def on_added(self, entries: int, size_bytes: int) -> None:
        self.counted.append((entries, size_bytes))

    def fold(
        self,
        updates: AggregateUpdates,
        initializer: Any = int,
        aggregator: Any = lambda key, value, so_far: so_far + value,
        merger: Any = lambda key, one, other: one + other,
        *,
        written_until: int = -1,
        failed: Callable[[int, Exception], None] | None = None,
    ) -> tuple[int, int]:
        def take_one(*record: Any) -> bool:
            self.left_to_python.append(record)
            return True

        def note(index: int, error: Exception) -> None:
            self.failed.append((index, error))

        functions = (initializer, aggregator, merger, failed or note, take_one)
        parts = (self.index, self.order, self.resting)
        found: tuple[int, int] = self._fold(
            self, *parts, updates, (GAP_MS, GAP_MS, -1, written_until, 50), *functions
        )
        return found

    @property
    def values(self) -> dict[bytes, Any]:
        return {key: entry.value for key, entry in self.entries.items()}


def updates_of(
    *records: tuple[bytes, Any, int], headers: Any = None, place: Any = None
) -> AggregateUpdates:
    """Return updates of keys, values and timestamps."""
    keys, values, times = (list(column) for column in zip(*records, strict=True))
    offsets = iter(range(len(records)))
    return AggregateUpdates(
        keys, None, keys, values, times, repeat(place), offsets, headers, array("q", [-1])
    )


def test_sessions_start_and_grow_without_python(native: ModuleType) -> None:
    """New entries are counted once, with their bytes; growing sessions keep their entries."""
    sessions = Sessions(native)
    assert sessions.fold(
        updates_of((b"k", 1, 100), (b"k", 2, 105), (b"j", 4, 105), (b"k", 8, 116))
    ) == (
        116,
        0,
    )
    assert sessions.values == {
        session_key(b"k", 100, 105): 3,
        session_key(b"j", 105, 105): 4,
        session_key(b"k", 116, 116): 8,
    }
    assert sessions.counted == [(3, 3 * (17 + 50))]
    assert len(sessions.dirty) == len(sessions.order) == 3
    assert (sessions.left_to_python, sessions.failed) == ([], [])


def test_complex_cases_are_left_to_python(native: ModuleType) -> None:
    """Sessions that may be below the cache, were flushed, are to be merged, or are serialized."""
    sessions = Sessions(native)
    place = TopicPartition("in", 3)
    sessions.fold(updates_of((b"k", 1, 100), (b"k", 2, 115), (b"j", 4, 115)), written_until=90)
    assert [record[:2] for record in sessions.left_to_python] == [(0, 100)]
    sessions.left_to_python.clear()
    (entry,) = (each for each in sessions.entries.values() if each.key_bytes.startswith(b"j"))
    entry.dirty_seq, entry.stored = 0, b"4"
    sessions.fold(updates_of((b"j", 8, 116), (b"k", 16, 95), (b"k", 32, 105), place=place))
    # The first session was stored and would grow; the second record precedes a session.
    assert sessions.left_to_python == [(0, 116, place, 0, (), 116), (1, 95, place, 1, (), 116)]
    assert sessions.values[session_key(b"k", 105, 115)] == 34
    sessions.left_to_python.clear()
    sessions.fold(updates_of((b"k", 1, 130), (b"k", 1, 120)))
    assert [record[:2] for record in sessions.left_to_python] == [(1, 120)]
    assert sessions.fold(updates_of((b"new", 1, 200))) == (200, 0)
    sessions.left_to_python.clear()
    sessions.resting[b"some"] = entry
    assert sessions.fold(updates_of((b"new", 1, 201))) == (201, 1)
    assert len(sessions.left_to_python) == 1


def test_functions_of_users_can_fail(native: ModuleType) -> None:
    """The handler decides. Other exceptions end the loop, and the work before them counts."""
    sessions = Sessions(native)
    records = updates_of((b"k", 4, 100), (b"k", 0, 101), (b"j", 2, 102))
    sessions.fold(records, aggregator=lambda key, value, so_far: so_far + 8 // value)
    ((index, error),) = sessions.failed
    assert (index, type(error)) == (1, ZeroDivisionError)
    assert sessions.values == {session_key(b"k", 100, 100): None, session_key(b"j", 102, 102): 4}

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    for functions in ((interrupted,), (int, interrupted)):
        sessions = Sessions(native)
        with pytest.raises(KeyboardInterrupt):
            sessions.fold(updates_of((b"k", 1, 100)), *functions)
        assert (sessions.counted, sessions.values) == ([(0, 0)], {})
    sessions = Sessions(native)
    with pytest.raises(KeyboardInterrupt):
        sessions.fold(updates_of((b"k", 1, 100), (b"k", 1, 101)), merger=interrupted)
    assert sessions.counted == [(1, 67)]

    def raise_runtime_error(index: int, error: Exception) -> None:
        raise RuntimeError(index) from error

    with pytest.raises(RuntimeError, match="0"):
        sessions.fold(
            updates_of((b"x", 0, 100)), aggregator=lambda *_: 1 // 0, failed=raise_runtime_error
        )


def test_invalid_arguments_are_rejected(native: ModuleType) -> None:
    """Before anything is changed."""
    good: Any = updates_of((b"k", 1, 100))
    for wrong in (
        good._replace(stored_keys=["text"]),
        good._replace(timestamps=["text"]),
        good._replace(offsets=["text"]),
        good._replace(stored_keys=(b"k",)),
        good._replace(at=7),
    ):
        sessions = Sessions(native)
        with pytest.raises(TypeError):
            sessions.fold(wrong)
        assert len(sessions.entries) == 0
    for name in ("entries", "dirty", "index", "order", "resting"):
        sessions = Sessions(native)
        setattr(sessions, name, object())
        with pytest.raises(TypeError):
            sessions.fold(updates_of((b"k", 1, 100)))
    with pytest.raises(ValueError, match="ends before"):
        Sessions(native).fold(good._replace(offsets=iter(())))


def test_no_references_are_kept(native: ModuleType) -> None:
    """Keys, values, headers and functions have as many references afterwards as before."""
    key, headers = bytes(bytearray(b"a key of its own")), (("name", b"x"),)
    value, place = object(), TopicPartition("in", 3)

    def return_value(*_: Any) -> Any:
        return value

    def failing(*_: Any) -> Any:
        raise ValueError(value)

    objects = (key, headers, value, place, return_value, failing)
    before = [sys.getrefcount(each) for each in objects]
    for _ in range(3):
        for functions in (
            (return_value, return_value, return_value),
            (return_value, failing),
            (failing,),
            (return_value, return_value, failing),
        ):
            sessions = Sessions(native)
            # Sessions start, grow, stay unchanged, come too late and are merged.
            times = [100, 105, 103, 50, 120, 112]
            records = [(key, value, time) for time in times]
            for half in range(2):
                updates = updates_of(
                    *records[3 * half : 3 * half + 3], headers=[headers] * 3, place=place
                )
                sessions.fold(updates, *functions)
            wrong: Any = [value]
            with pytest.raises(TypeError):
                sessions.fold(updates._replace(timestamps=wrong), *functions)
            sessions.failed.clear()
            del sessions, updates, wrong
        del records, functions
    # The index and its cache refer to each other.
    gc.collect()
    assert [sys.getrefcount(each) for each in objects] == before
