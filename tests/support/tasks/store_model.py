"""A store, the plain data that it must match, and all events in the life of its task.

Shared by the state-machine tests of all types of stores. A type adds rules for its own operations;
this module has the common events: commits, crashes, restarts, lost disks, and standbys that follow
the changelog, fail over, or swap roles with the active task.

`MILLSTREAM_STEPS` sets the minimum number of steps of each test (`make fuzz`). Without it, each
test runs a few examples.
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from millstream.errors import InvalidStateStoreError
from millstream.record import Headers, TaskId, TopicPartition
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.caches.cache_entries import CacheBudget, FlushedChanges
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.storage.iterators import KeyValueIterator
from millstream.state.storage.overlay import UncommittedBudget
from millstream.state.storage.write_check import WriteCheck
from millstream.state.task_stores import TaskStores
from support.tasks.standalone_store import flush_caches

logger = logging.getLogger(__name__)

CHANGELOG: Final = TopicPartition("app-s-changelog", 0)
SOURCE: Final = TopicPartition("in", 0)
TASK: Final = TaskId(0, 0)

_STEPS: Final = int(os.environ.get("MILLSTREAM_STEPS", "0"))
_STEPS_OF_AN_EXAMPLE: Final = 40

#: Limits for uncommitted writes in bytes: small, so that commits are frequent, or large.
SMALL_BUDGET: Final = 60
LARGE_BUDGET: Final = 1_000_000

batches = st.integers(1, 6)


def argument_lists(*parts: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """The arguments of one to eight consecutive calls.

    With one call per rule, stores would mostly be empty.
    """
    return st.lists(st.tuples(*parts), min_size=1, max_size=8)


@dataclass(frozen=True, slots=True)
class LoggedRecord:
    """A record of the changelog."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: int


class Changelog:
    """A changelog topic. Offsets have gaps at transaction markers and after compaction.

    Attributes:
        history: all records that were not aborted.
        topic: the records that remain after compaction.
        committed: the end at the last commit.
    """

    def __init__(self, *, transactional: bool) -> None:
        self.history: list[LoggedRecord] = []
        self.topic: list[LoggedRecord] = []
        self.end = 0
        self.committed = 0
        self._transactional = transactional

    def append(self, keys: Iterable[bytes], values: Iterable[Any], times: Iterable[int]) -> None:
        for key, value, timestamp in zip(keys, values, times, strict=True):
            record = LoggedRecord(self.end, key, value, timestamp)
            self.history.append(record)
            self.topic.append(record)
            self.end += 1

    @property
    def last_offset(self) -> int | None:
        return self.history[-1].offset if self.history else None

    @property
    def readable(self) -> int:
        """The offset up to which read-committed consumers can read."""
        return self.committed if self._transactional else self.end

    def commit(self) -> None:
        if self._transactional:
            self.end += 1
        self.committed = self.end

    def abort(self) -> None:
        """Abort the uncommitted records of a failed writer, under exactly-once."""
        if self._transactional:
            self.history = [record for record in self.history if record.offset < self.committed]
            self.topic = [record for record in self.topic if record.offset < self.committed]
            self.end += 1
            self.committed = self.end

    def compact(self) -> None:
        """Drop readable records that a later record of the same key replaces."""
        last = {record.key: record.offset for record in self.topic if record.offset < self.readable}
        self.topic = [
            record for record in self.topic if last.get(record.key, record.offset) <= record.offset
        ]

    def before(self, offset: int) -> list[LoggedRecord]:
        """The records that a store at this offset reflects."""
        return [record for record in self.history if record.offset < offset]


class Copy:
    """One copy of the store, on its own disk."""

    def __init__(self, path: Path, stores: TaskStores) -> None:
        self.path = path
        self.stores = stores
        #: Whether it has read past records that were compacted away in favor of later ones.
        self.has_gaps = False

    @property
    def start(self) -> int:
        """The offset from which to continue reading the changelog."""
        (restorer,) = self.stores.restorers().values()
        return restorer.start_offset() or 0


class _Context:
    """The record being processed."""

    timestamp = 0
    place: TopicPartition | None = SOURCE
    offset = 0
    headers: Headers = ()


class StoreModel(RuleBasedStateMachine):
    """The common part of the tests of all types of stores.

    Attributes:
        model: the expected content of the active task's store, as made by `replay`.
    """

    #: The number of executed rules over all examples.
    steps = 0
    #: Whether the changelog may be compacted.
    compacts = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="millstream-state-"))
        self.context = _Context()
        self.model: Any = None
        self.dropped = 0
        self.write_check = WriteCheck()
        self.write_check.begin()
        self.iterators: list[tuple[Iterator[Any], Iterator[Any]]] = []
        self.disks = 0
        # The last offset of the commit in progress, in a list; an empty list if there is none.
        self.begun: list[int | None] = []
        self.active: Copy | None = None
        self.standby: Copy | None = None
        #: Disks with an old state, for a standby that returns.
        self.old_disks: list[Copy] = []

    # --- hooks of a type of stores
    # -----------------------------------------------------------------

    def replay(self, records: Sequence[LoggedRecord]) -> Any:
        """The model of a store that has read these records of its changelog."""
        raise NotImplementedError

    def read_content(self, stores: TaskStores) -> Any:
        """The content of a store in a form that can be compared."""
        raise NotImplementedError

    def expected_content(self, model: Any) -> Any:
        """The content that `read_content` must return for a store with this model."""
        return model

    def on_opened(self) -> None:
        """The active task has a new store object or model."""

    def forward(self, changes: FlushedChanges | None) -> None:
        """Forward records evicted from the cache."""

    def on_flushed(self) -> None:
        """The cache has been flushed."""

    # --- helpers for rules of a type
    # ---------------------------------------------------------------

    @property
    def stores(self) -> TaskStores:
        assert self.active is not None
        return self.active.stores

    def begin(
        self,
        builder: StoreBuilder,
        *,
        exactly_once: bool,
        waiting_bytes: int = LARGE_BUDGET,
        recent_bytes: int = LARGE_BUDGET,
        cache_bytes: int = 0,
    ) -> None:
        """Open the first store, which is empty.

        This is not a step, although `counted` follows it.
        """
        type(self).steps -= 1
        self.builder: Any = builder
        self.exactly_once = exactly_once
        self.waiting_bytes = waiting_bytes
        self.recent_bytes = recent_bytes
        self.cache_bytes = cache_bytes
        self.log = Changelog(transactional=exactly_once)
        self.active = self.new_copy()
        self.active.stores.open()
        self.model = self.replay(())
        self.on_opened()

    def tick(self) -> int:
        """Advance to the time of the next record, and return it."""
        self.context.timestamp += 1
        self.context.offset += 1
        return self.context.timestamp

    def keep_open(self, iterator: Iterator[Any], expected: Iterator[Any]) -> None:
        """Continue an iterator later, when the store has changed."""
        self.iterators = [*self.iterators[-2:], (iterator, expected)]

    def log_many(
        self,
        store_name: str,
        keys: Sequence[bytes],
        values: Sequence[bytes | None],
        timestamps: Sequence[int] | None,
        headers: Sequence[Headers] | None = None,
    ) -> None:
        assert store_name == "s"
        self.log.append(keys, values, timestamps or [self.context.timestamp] * len(keys))

    def count_dropped(self, count: int, why: str, store: str) -> None:
        assert store == "s"
        self.dropped += count

    # --- rules
    # -------------------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        flush_caches(self.stores, lambda name, changes: self.forward(changes))
        self.on_flushed()

    @rule()
    def commit(self) -> None:
        self.flush()
        self.stores.log_changes()
        last = self.log.last_offset
        self.begun = []
        self.deliver_and_begin()
        self.stores.commit({} if last is None else {CHANGELOG: last})
        self.log.commit()
        assert self.stores.uncommitted_bytes == 0

    @rule()
    @precondition(lambda self: not self.exactly_once)
    def begin_commit(self) -> None:
        """Later writes do not belong to this commit and must not be on disk after it."""
        self.flush()
        self.stores.log_changes()
        self.deliver_and_begin()
        self.begun = [self.log.last_offset]

    @rule()
    @precondition(lambda self: self.begun)
    def end_commit(self) -> None:
        """The disk contains the state at its offset."""
        last = self.begun.pop()
        self.stores.commit({} if last is None else {CHANGELOG: last})

    @rule(which=st.integers(0, 2), most=st.integers(1, 4))
    @precondition(lambda self: self.iterators)
    def iterate_on(self, which: int, most: int) -> None:
        """Iterators do not see writes after they were opened."""
        iterator, expected = self.iterators[which % len(self.iterators)]
        for _ in range(most):
            assert next(iterator, None) == next(expected, None)

    @rule()
    @precondition(lambda self: self.compacts)
    def compact(self) -> None:
        self.log.compact()

    @rule(batch=batches, interrupted=st.booleans())
    def crash(self, batch: int, interrupted: bool) -> None:
        """Recover from a crash: logged writes are restored, except for aborted ones."""
        assert self.active is not None
        self.close_active(clean=False)
        self.log.abort()
        self.active.stores.open()
        self.check_disk(self.active)
        if interrupted:
            self.read(self.active, batch, self.log.readable // 2)
            self.close(self.active, clean=False)
            self.active.stores.open()
            self.check_disk(self.active)
        self.activate(self.active, batch)

    @rule(batch=batches)
    def restart(self, batch: int) -> None:
        """Restart after a clean close: a persistent store has nothing to restore."""
        assert self.active is not None
        self.commit()
        self.close_active(clean=True)
        self.active.stores.open()
        last = self.log.last_offset
        if self.builder.persistent and last is not None:
            assert self.active.start == last + 1
        self.check_disk(self.active)
        self.activate(self.active, batch)

    @rule(batch=batches, wiped=st.booleans())
    def lose_disk(self, batch: int, wiped: bool) -> None:
        """Restore the whole changelog into an empty store."""
        assert self.active is not None
        self.close_active(clean=False)
        self.log.abort()
        if wiped:
            self.active.stores.mark_corrupted()
        else:
            shutil.rmtree(self.active.path, ignore_errors=True)
        self.active.stores.open()
        assert self.active.start == 0
        assert self.read_content(self.active.stores) == self.expected_content(self.replay(()))
        self.activate(self.active, batch)

    @rule(empty_disk=st.booleans())
    @precondition(lambda self: self.standby is None)
    def start_standby(self, empty_disk: bool) -> None:
        """A standby starts on an empty disk, or on one that it used before."""
        copy = self.new_copy() if empty_disk or not self.old_disks else self.old_disks.pop()
        copy.stores.open()
        self.check_disk(copy)
        self.standby = copy

    @rule(batch=batches, most=st.integers(1, 30))
    @precondition(lambda self: self.standby is not None)
    def read_changelog(self, batch: int, most: int) -> None:
        assert self.standby is not None
        self.read(self.standby, batch, min(self.log.readable, self.standby.start + most))

    @rule(clean=st.booleans())
    @precondition(lambda self: self.standby is not None)
    def restart_standby(self, clean: bool) -> None:
        assert self.standby is not None
        before = self.standby.start
        self.close(self.standby, clean=clean)
        self.standby.stores.open()
        if self.builder.persistent:
            assert self.standby.start == before
        self.check_disk(self.standby)

    @rule()
    @precondition(lambda self: self.standby is not None)
    def stop_standby(self) -> None:
        assert self.standby is not None
        self.close(self.standby, clean=True)
        self.old_disks, self.standby = [self.standby], None

    @rule(batch=batches)
    @precondition(lambda self: self.standby is not None)
    def fail_over(self, batch: int) -> None:
        """The active task's host fails; the standby catches up and takes over."""
        assert self.active is not None
        assert self.standby is not None
        self.close_active(clean=False)
        self.log.abort()
        self.old_disks = [self.active]
        standby, self.standby = self.standby, None
        self.activate(standby, batch)

    @rule(batch=batches)
    @precondition(lambda self: self.standby is not None)
    def swap_roles(self, batch: int) -> None:
        """The active task and the standby swap roles; the active task's stores stay open."""
        assert self.active is not None
        assert self.standby is not None
        self.commit()
        self.end_iterators(closed=False)
        self.stores.recycle()
        demoted, promoted = self.active, self.standby
        self.standby = demoted
        self.activate(promoted, batch)

    @invariant()
    def commits_when_full(self) -> None:
        """Commit when the stores are full, as a thread does after each batch."""
        if self.active is None:
            return
        self.stores.after_work()
        if self.stores.needs_commit:
            self.commit()
            assert not self.stores.needs_commit

    @invariant()
    def counted(self) -> None:
        type(self).steps += 1

    def teardown(self) -> None:
        for copy in (self.active, self.standby):
            if copy is not None:
                copy.stores.close(clean=False)
        shutil.rmtree(self.folder)

    # --- parts
    # -------------------------------------------------------------------------------------

    def deliver_and_begin(self) -> None:
        """End the batch, acknowledge its records and begin a commit."""
        self.write_check.end()
        self.write_check.flushed()
        self.stores.on_commit_started()
        self.write_check.begin()

    def new_copy(self) -> Copy:
        self.disks += 1
        path = self.folder / str(self.disks)
        stores = TaskStores(
            TASK,
            [self.builder],
            StateDirectory(path, "app"),
            application_id="app",
            changelogs={"s": CHANGELOG},
            writer=self,
            context=self.context,
            budget=CacheBudget(self.cache_bytes),
            uncommitted=UncommittedBudget(self.waiting_bytes),
            recent_max_bytes=self.recent_bytes,
            dropped=self.count_dropped,
            write_check=self.write_check,
        )
        return Copy(path, stores)

    def close(self, copy: Copy, *, clean: bool) -> None:
        copy.stores.close(clean=clean)

    def close_active(self, *, clean: bool) -> None:
        assert self.active is not None
        self.begun = []
        self.close(self.active, clean=clean)
        self.end_iterators(closed=True)

    def end_iterators(self, *, closed: bool) -> None:
        for iterator, expected in self.iterators:
            is_left = next(expected, None) is not None
            if closed and is_left and isinstance(iterator, KeyValueIterator):
                with pytest.raises(InvalidStateStoreError, match="closed"):
                    next(iterator)
            iterator.close()  # type: ignore[attr-defined]
        self.iterators = []

    def check_disk(self, copy: Copy) -> None:
        """Check that the disk contains the changelog up to its stored offset."""
        if copy.start == 0 or not copy.has_gaps:
            assert self.read_content(copy.stores) == self.expected_content(self.on_disk(copy))

    def on_disk(self, copy: Copy) -> Any:
        """The state of the model at the offset of a copy."""
        return self.replay(self.log.before(copy.start))

    def read(self, copy: Copy, batch: int, end: int) -> None:
        """Let a copy read its changelog up to an offset."""
        (restorer,) = copy.stores.restorers().values()
        start = copy.start
        records = [record for record in self.log.topic if start <= record.offset < end]
        for first in range(0, len(records), batch):
            columns = records[first : first + batch]
            restorer.restore_batch(
                [record.key for record in columns],
                [record.value for record in columns],
                [record.timestamp for record in columns],
                [record.offset for record in columns],
            )
        copy.has_gaps = not self.is_complete(copy.start)
        self.check_disk(copy)

    def is_complete(self, offset: int) -> bool:
        """Whether the changelog up to this offset is complete in spite of compaction, as it is at
        its end."""
        present = sum(record.offset < offset for record in self.log.topic)
        return present in (len(self.log.before(offset)), len(self.log.topic))

    def activate(self, copy: Copy, batch: int) -> None:
        """Bring a copy up to date and make it the active one."""
        self.read(copy, batch, self.log.end)
        self.active = copy
        self.model = self.replay(self.log.history)
        self.on_opened()


def run_model(model: type[StoreModel], *, examples: int, **attributes: Any) -> int:
    """Run a state machine for some examples, or for the requested number of steps.

    Args:
        examples: the number of runs of up to 40 steps, unless `MILLSTREAM_STEPS` is set.
        attributes: of the machine: the variant of the store.

    Returns:
        The number of steps.
    """
    variant: Any = type(model.__name__, (model,), {**attributes, "steps": 0})
    chosen = settings(
        max_examples=100 if _STEPS else examples,
        stateful_step_count=_STEPS_OF_AN_EXAMPLE,
        deadline=None,
        # Otherwise a derandomized Hypothesis would repeat the same examples.
        derandomize=settings().derandomize and not _STEPS,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    steps = -1
    while steps < _STEPS:
        run_state_machine_as_test(variant, settings=chosen)
        steps = variant.steps
    logger.info("%s %s: %d steps", model.__name__, attributes, steps)
    return steps
