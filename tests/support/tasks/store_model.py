"""A store, the plain data it should be like, and everything that can happen to its task.

Shared by the state-machine tests of all types of stores. A type adds the rules of its own
operations; here are those of life: commits, crashes, restarts, lost disks, standbys that
follow the changelog, that fail over, that change places with the active task.

How much is tried depends on `MILLSTREAM_STEPS`: each test goes on until its machine has made at
least so many steps (`make fuzz`); without it, it looks at a few examples.
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
from millstream.state.storage.uncommitted_budget import UncommittedBudget
from millstream.state.storage.write_check import WriteCheck
from millstream.state.task_stores import TaskStores
from support.tasks.flushing import flush_caches

logger = logging.getLogger(__name__)

CHANGELOG: Final = TopicPartition("app-s-changelog", 0)
SOURCE: Final = TopicPartition("in", 0)
TASK: Final = TaskId(0, 0)

_STEPS: Final = int(os.environ.get("MILLSTREAM_STEPS", "0"))
_STEPS_OF_AN_EXAMPLE: Final = 40

#: Bytes of writes that may wait for a commit: few, so that commits are frequent; or all of them.
LITTLE: Final = 60
MUCH: Final = 1_000_000

batches = st.integers(1, 6)


def several(*parts: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[Any, ...]]]:
    """The arguments of some calls in a row: with one a rule, stores would be empty most times."""
    return st.lists(st.tuples(*parts), min_size=1, max_size=8)


@dataclass(frozen=True, slots=True)
class Logged:
    """A record of the changelog."""

    offset: int
    key: bytes
    value: bytes | None
    timestamp: int


class Changelog:
    """A changelog topic. Offsets have gaps where transactions end and where it was compacted.

    Attributes:
        history: what was written and not aborted.
        topic: what of it is still there to be read.
        end: the next offset.
        committed: up to where it was written when the task committed last.
    """

    def __init__(self, *, transactional: bool) -> None:
        self.history: list[Logged] = []
        self.topic: list[Logged] = []
        self.end = 0
        self.committed = 0
        self._transactional = transactional

    def append(self, keys: Iterable[bytes], values: Iterable[Any], times: Iterable[int]) -> None:
        for key, value, timestamp in zip(keys, values, times, strict=True):
            record = Logged(self.end, key, value, timestamp)
            self.history.append(record)
            self.topic.append(record)
            self.end += 1

    @property
    def last_offset(self) -> int | None:
        return self.history[-1].offset if self.history else None

    @property
    def readable(self) -> int:
        """Up to where others can read."""
        return self.committed if self._transactional else self.end

    def commit(self) -> None:
        if self._transactional:
            self.end += 1
        self.committed = self.end

    def abort(self) -> None:
        """The writer is gone, and with it what it has not committed, under exactly-once."""
        if self._transactional:
            self.history = [record for record in self.history if record.offset < self.committed]
            self.topic = [record for record in self.topic if record.offset < self.committed]
            self.end += 1
            self.committed = self.end

    def compact(self) -> None:
        """Drop what a later record of the same key makes meaningless, as far as it is readable."""
        last = {record.key: record.offset for record in self.topic if record.offset < self.readable}
        self.topic = [
            record for record in self.topic if last.get(record.key, record.offset) <= record.offset
        ]

    def before(self, offset: int) -> list[Logged]:
        """All that a store must know which stands there."""
        return [record for record in self.history if record.offset < offset]


class Copy:
    """One copy of the store, on a disk of its own."""

    def __init__(self, path: Path, stores: TaskStores) -> None:
        self.path = path
        self.stores = stores
        #: Whether it stands among records of which later ones have been compacted away before.
        self.has_gaps = False

    @property
    def start(self) -> int:
        """Where to go on reading the changelog."""
        (restorer,) = self.stores.restorers().values()
        return restorer.start_offset() or 0


class _Context:
    """The record being processed."""

    timestamp = 0
    place: TopicPartition | None = SOURCE
    offset = 0
    headers: Headers = ()


class StoreModel(RuleBasedStateMachine):
    """What the tests of all types of stores have in common.

    Attributes:
        model: what the store of the active task should be like, as `replay` makes it.
        log: its changelog.
    """

    #: Rules carried out so far, over all examples.
    steps = 0
    #: Whether records may be dropped from the changelog that later ones of their key replace.
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
        # The last offset of a commit that has begun, in a list; none if there is no such commit.
        self.begun: list[int | None] = []
        self.active: Copy | None = None
        self.standby: Copy | None = None
        #: Disks with an old state, for a standby that comes back.
        self.left: list[Copy] = []

    # --- what a type of stores adds --------------------------------------------------------------

    def replay(self, records: Sequence[Logged]) -> Any:
        """The model of a store that has read these records of its changelog."""
        raise NotImplementedError

    def look(self, stores: TaskStores) -> Any:
        """What is in a store, in a form that can be compared."""
        raise NotImplementedError

    def shown(self, model: Any) -> Any:
        """What `look` should find in a store that is like this model."""
        return model

    def opened(self) -> None:
        """The active task has another store object, or another model."""

    def forward(self, changes: FlushedChanges | None) -> None:
        """What leaves the cache goes downstream."""

    def flushed(self) -> None:
        """Nothing is held back in a cache now."""

    # --- for the rules of a type -----------------------------------------------------------------

    @property
    def stores(self) -> TaskStores:
        assert self.active is not None
        return self.active.stores

    def begin(
        self,
        builder: StoreBuilder,
        *,
        exactly_once: bool,
        waiting_bytes: int = MUCH,
        recent_bytes: int = MUCH,
        cache_bytes: int = 0,
    ) -> None:
        """Open the first store, which is empty. That is no step, but `counted` follows it."""
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
        self.opened()

    def tick(self) -> int:
        """The time of the next record."""
        self.context.timestamp += 1
        self.context.offset += 1
        return self.context.timestamp

    def keep_open(self, iterator: Iterator[Any], expected: Iterator[Any]) -> None:
        """Look at an iterator again later, when the store has changed."""
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

    # --- rules -----------------------------------------------------------------------------------

    @rule()
    def flush(self) -> None:
        flush_caches(self.stores, lambda name, changes: self.forward(changes))
        self.flushed()

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
        """What is written from now on is not for this commit, and not for the disk."""
        self.flush()
        self.stores.log_changes()
        self.deliver_and_begin()
        self.begun = [self.log.last_offset]

    @rule()
    @precondition(lambda self: self.begun)
    def end_commit(self) -> None:
        """The disk has what its offset says."""
        last = self.begun.pop()
        self.stores.commit({} if last is None else {CHANGELOG: last})

    @rule(which=st.integers(0, 2), most=st.integers(1, 4))
    @precondition(lambda self: self.iterators)
    def iterate_on(self, which: int, most: int) -> None:
        """Iterators that were opened before do not care what was written since."""
        iterator, expected = self.iterators[which % len(self.iterators)]
        for _ in range(most):
            assert next(iterator, None) == next(expected, None)

    @rule()
    @precondition(lambda self: self.compacts)
    def compact(self) -> None:
        self.log.compact()

    @rule(batch=batches, interrupted=st.booleans())
    def crash(self, batch: int, interrupted: bool) -> None:
        """Come back after a crash: what was logged is there, less what was aborted."""
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
        """Come back after an orderly end: a store on disk has nothing to read."""
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
        """The whole changelog is read, into nothing."""
        assert self.active is not None
        self.close_active(clean=False)
        self.log.abort()
        if wiped:
            self.active.stores.distrust()
        else:
            shutil.rmtree(self.active.path, ignore_errors=True)
        self.active.stores.open()
        assert self.active.start == 0
        assert self.look(self.active.stores) == self.shown(self.replay(()))
        self.activate(self.active, batch)

    @rule(anew=st.booleans())
    @precondition(lambda self: self.standby is None)
    def begin_to_follow(self, anew: bool) -> None:
        """A standby starts on an empty disk, or on one that it left some time ago."""
        copy = self.new_copy() if anew or not self.left else self.left.pop()
        copy.stores.open()
        self.check_disk(copy)
        self.standby = copy

    @rule(batch=batches, most=st.integers(1, 30))
    @precondition(lambda self: self.standby is not None)
    def follow(self, batch: int, most: int) -> None:
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
    def cease_to_follow(self) -> None:
        assert self.standby is not None
        self.close(self.standby, clean=True)
        self.left, self.standby = [self.standby], None

    @rule(batch=batches)
    @precondition(lambda self: self.standby is not None)
    def fail_over(self, batch: int) -> None:
        """The active task's host dies; the standby reads what it has not read, and takes over."""
        assert self.active is not None
        assert self.standby is not None
        self.close_active(clean=False)
        self.log.abort()
        self.left = [self.active]
        standby, self.standby = self.standby, None
        self.activate(standby, batch)

    @rule(batch=batches)
    @precondition(lambda self: self.standby is not None)
    def change_places(self, batch: int) -> None:
        """The active task becomes a standby with its stores left open, and the other way round."""
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
        """As a thread does after each batch."""
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

    # --- parts -----------------------------------------------------------------------------------

    def deliver_and_begin(self) -> None:
        """The batch is over, everything that it has sent is acknowledged, and a commit begins."""
        self.write_check.end()
        self.write_check.flushed()
        self.stores.commit_begun()
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
        """What is on disk is what the changelog says up to the offset that is kept with it."""
        if copy.start == 0 or not copy.has_gaps:
            assert self.look(copy.stores) == self.shown(self.on_disk(copy))

    def on_disk(self, copy: Copy) -> Any:
        """The state of the model at the offset of a copy."""
        return self.replay(self.log.before(copy.start))

    def read(self, copy: Copy, batch: int, end: int) -> None:
        """Let a copy read its changelog on to some offset."""
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
        copy.has_gaps = not self.is_seen_whole(copy.start)
        self.check_disk(copy)

    def is_seen_whole(self, offset: int) -> bool:
        """Whether what is left of the changelog up to there says all: at its end it does."""
        there = sum(record.offset < offset for record in self.log.topic)
        return there in (len(self.log.before(offset)), len(self.log.topic))

    def activate(self, copy: Copy, batch: int) -> None:
        """Bring a copy up to date, and let its task process."""
        self.read(copy, batch, self.log.end)
        self.active = copy
        self.model = self.replay(self.log.history)
        self.opened()


def run_model(model: type[StoreModel], *, examples: int, **attributes: Any) -> int:
    """Try a machine: for some examples, or for the steps that are asked for.

    Args:
        model: the machine.
        examples: how many runs of up to 40 steps there are without such a wish.
        attributes: of the machine, which say what type of store it is to try.

    Returns:
        How many steps it made.
    """
    tried: Any = type(model.__name__, (model,), {**attributes, "steps": 0})
    chosen = settings(
        max_examples=100 if _STEPS else examples,
        stateful_step_count=_STEPS_OF_AN_EXAMPLE,
        deadline=None,
        # Else it would be the same examples again and again where Hypothesis is made to repeat.
        derandomize=settings().derandomize and not _STEPS,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    steps = -1
    while steps < _STEPS:
        run_state_machine_as_test(tried, settings=chosen)
        steps = tried.steps
    logger.info("%s %s: %d steps", model.__name__, attributes, steps)
    return steps
