"""Tasks that change sides: whatever they become, in whatever order, their stores know everything
that was logged, and are opened only where they have to be.

Method: two threads with real stores above a Kafka of lists, of which at most one has a task active
at a time, as the group sees to. What a store must hold is what its changelog says.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from support.tasks.task_bench import STORE, Cluster, TaskBench, Topic, changelog

from millstream.errors import TaskCorruptedError
from millstream.record import TaskId, TopicPartition
from millstream.runtime.states import TaskState

PARTITIONS = (0, 1)
TASKS = {n: TaskId(0, n) for n in PARTITIONS}
THREADS = (0, 1)

#: Of one task: which thread has it active, and which ones have it as a standby.
roles = st.tuples(st.sampled_from([*THREADS, None]), st.sets(st.sampled_from(THREADS)))


class Roles(RuleBasedStateMachine):
    """Two threads and the tasks that they have from time to time."""

    kind: Literal["rocksdb", "in_memory"] = "rocksdb"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="millstream-roles-"))
        topics: dict[TopicPartition, Topic] = {}
        self.threads = [
            TaskBench(self.folder / str(n), Cluster(topics), self.kind) for n in THREADS
        ]
        self.threads[1].main.group = self.threads[0].main.group
        #: Who has each task active.
        self.active: dict[int, int | None] = dict.fromkeys(PARTITIONS)
        #: The open stores that no change of roles may have replaced.
        self.open: dict[tuple[int, int], Any] = {}
        self.fed = dict.fromkeys(PARTITIONS, 0)
        self.lossless = True

    def teardown(self) -> None:
        self.assign({n: (0, {1}) for n in PARTITIONS}, commits=True)
        self.settle()
        self.is_known_what_was_logged()
        for thread in self.threads:
            assert not thread.tasks.standby.intersection(t.task_id for t in thread.tasks.running)
            thread.tasks.close_all(clean=True)
        shutil.rmtree(self.folder)

    # --- what may happen -------------------------------------------------------------------------

    @rule(
        wanted=st.fixed_dictionaries(dict.fromkeys(PARTITIONS, roles)),
        commits=st.sampled_from([True, True, True, False]),
    )
    def assign(self, wanted: dict[int, tuple[int | None, set[int]]], commits: bool) -> None:
        """A rebalance: first everybody gives up what others get."""
        for number in THREADS:
            gone = [n for n in PARTITIONS if self.active[n] == number and wanted[n][0] != number]
            self.give_up(number, gone, commits=commits)
        for number, thread in enumerate(self.threads):
            active = [n for n in PARTITIONS if wanted[n][0] == number]
            standby = [n for n in PARTITIONS if n not in active and number in wanted[n][1]]
            thread.assign(active, standby)
            for n in set(PARTITIONS).difference(active, standby):
                self.open.pop((number, n), None)
        self.active = {n: wanted[n][0] for n in PARTITIONS}

    @rule(number=st.sampled_from(THREADS), rounds=st.integers(1, 6))
    def advance(self, number: int, rounds: int) -> None:
        self.threads[number].advance(rounds)

    @rule()
    def settle(self) -> None:
        """Everything is restored, and standbys have read what there is."""
        for thread in self.threads:
            thread.clock.advance(1_000)
            thread.run_all()
            thread.advance(len(thread.cluster.topic(changelog()).records) + 20)

    @rule(
        n=st.sampled_from(PARTITIONS),
        keys=st.lists(st.sampled_from("abcd"), min_size=1, max_size=5),
        commit=st.booleans(),
    )
    def feed(self, n: int, keys: list[str], commit: bool) -> None:
        number = self.active[n]
        if number is not None and self.is_running(number, n):
            self.threads[number].feed(*keys, partition=n, commit=commit)
            self.fed[n] += len(keys)

    @rule(number=st.sampled_from(THREADS))
    def lose(self, number: int) -> None:
        """The group goes on without the thread; its standbys stay."""
        thread = self.threads[number]
        self.lossless &= not any(task.commit_needed for task in thread.tasks.running)
        thread.tasks.close_active(clean=False)
        for n in PARTITIONS:
            if self.active[n] == number:
                self.active[n] = None
                self.open.pop((number, n), None)

    @rule(number=st.sampled_from(THREADS), n=st.sampled_from(PARTITIONS))
    @precondition(lambda self: any(len(thread.tasks) for thread in self.threads))
    def corrupt(self, number: int, n: int) -> None:
        """A disk goes bad under a task, whatever it is just then."""
        thread = self.threads[number]
        self.open.pop((number, n), None)
        if any(task.task_id == TASKS[n] for task in thread.tasks.all):
            self.lossless &= not thread.task(n).commit_needed
            thread.tasks.revive(TaskCorruptedError("bad block", task_ids=[TASKS[n]]))
            self.settle()

    # --- what must be so -------------------------------------------------------------------------

    @invariant()
    def is_known_what_was_logged(self) -> None:
        for number, thread in enumerate(self.threads):
            for task in thread.tasks.running:
                n = task.task_id.partition
                log = {key.decode(): value for _, key, value, _ in self.logged(n)}
                counts = thread.counts(n)
                assert counts == {key: int.from_bytes(value or b"") for key, value in log.items()}
                if self.lossless:
                    assert sum(counts.values()) == self.fed[n]
                assert self.active[n] == number

    @invariant()
    def stores_stay_open(self) -> None:
        for number, thread in enumerate(self.threads):
            for task in thread.tasks.all:
                if task.state is not TaskState.CREATED:
                    n = task.task_id.partition
                    store = task.stores.store(STORE)
                    assert self.open.setdefault((number, n), store) is store

    # --- parts -----------------------------------------------------------------------------------

    def give_up(self, number: int, gone: list[int], *, commits: bool) -> None:
        thread = self.threads[number]
        if commits:
            thread.commit()
            thread.tasks.suspend([TASKS[n] for n in gone])
            return
        for n in gone:
            self.lossless &= not thread.task(n).commit_needed
            self.open.pop((number, n), None)
        thread.tasks.close([TASKS[n] for n in gone], clean=False)

    def is_running(self, number: int, n: int) -> bool:
        return TASKS[n] in {task.task_id for task in self.threads[number].tasks.running}

    def logged(self, n: int) -> list[tuple[int, bytes, bytes | None, int]]:
        return self.threads[0].cluster.topic(changelog(n)).records


class InMemory(Roles):
    kind = "in_memory"


_SETTINGS = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_tasks_on_disk_change_sides() -> None:
    """Also where the disk has more than what is committed."""
    run_state_machine_as_test(Roles, settings=_SETTINGS)


def test_tasks_in_memory_change_sides() -> None:
    """Nothing but the open store knows what was read."""
    run_state_machine_as_test(InMemory, settings=_SETTINGS)
