"""Tasks that change between active and standby: after any sequence of changes, their stores contain
the whole changelog, and stay open if possible.

Method: two threads with real stores use a Kafka cluster made of lists; the group assigns an active
task to at most one of them. Each store must match its changelog.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any, Literal

import pytest
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
from millstream.runtime.states.thread_states import TaskState

PARTITIONS = (0, 1)
TASKS = {n: TaskId(0, n) for n in PARTITIONS}
THREADS = (0, 1)

#: The thread with the active task, and the threads with standbys.
roles = st.tuples(st.sampled_from([*THREADS, None]), st.sets(st.sampled_from(THREADS)))


class Roles(RuleBasedStateMachine):
    """Two threads and their changing tasks."""

    kind: Literal["rocksdb", "in_memory"] = "rocksdb"

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="millstream-roles-"))
        topics: dict[TopicPartition, Topic] = {}
        self.threads = [
            TaskBench(self.folder / str(n), Cluster(topics), self.kind) for n in THREADS
        ]
        self.threads[1].main.group = self.threads[0].main.group
        #: The thread that runs each active task.
        self.active: dict[int, int | None] = dict.fromkeys(PARTITIONS)
        #: The stores that must stay open when roles change.
        self.open: dict[tuple[int, int], Any] = {}
        self.fed = dict.fromkeys(PARTITIONS, 0)
        self.lossless = True

    def teardown(self) -> None:
        self.assign({n: (0, {1}) for n in PARTITIONS}, commits=True)
        self.settle()
        self.stores_match_changelogs()
        for thread in self.threads:
            assert not thread.tasks.standby.intersection(t.task_id for t in thread.tasks.running)
            thread.tasks.close_all(clean=True)
        shutil.rmtree(self.folder)

    # --- rules -----------------------------------------------------------------------------------

    @rule(
        assignment=st.fixed_dictionaries(dict.fromkeys(PARTITIONS, roles)),
        commits=st.sampled_from([True, True, True, False]),
    )
    def assign(self, assignment: dict[int, tuple[int | None, set[int]]], commits: bool) -> None:
        """Rebalance: first, threads revoke the tasks that others receive."""
        for number in THREADS:
            revoked = [
                n for n in PARTITIONS if self.active[n] == number and assignment[n][0] != number
            ]
            self.revoke(number, revoked, commits=commits)
        for number, thread in enumerate(self.threads):
            active = [n for n in PARTITIONS if assignment[n][0] == number]
            standby = [n for n in PARTITIONS if n not in active and number in assignment[n][1]]
            thread.assign(active, standby)
            for n in set(PARTITIONS).difference(active, standby):
                self.open.pop((number, n), None)
        self.active = {n: assignment[n][0] for n in PARTITIONS}

    @rule(number=st.sampled_from(THREADS), rounds=st.integers(1, 6))
    def advance(self, number: int, rounds: int) -> None:
        self.threads[number].advance(rounds)

    @rule()
    def settle(self) -> None:
        """Complete restorations and let standbys read to the end."""
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
        """Lose the active tasks of a thread; its standbys stay."""
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
        """Corrupt the disk of a task in any state."""
        thread = self.threads[number]
        self.open.pop((number, n), None)
        if any(task.task_id == TASKS[n] for task in thread.tasks.all):
            self.lossless &= not thread.task(n).commit_needed
            thread.tasks.revive(TaskCorruptedError("bad block", task_ids=[TASKS[n]]))
            self.settle()

    # --- invariants ------------------------------------------------------------------------------

    @invariant()
    def stores_match_changelogs(self) -> None:
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

    def revoke(self, number: int, revoked: list[int], *, commits: bool) -> None:
        thread = self.threads[number]
        if commits:
            thread.commit()
            thread.tasks.suspend([TASKS[n] for n in revoked])
            return
        for n in revoked:
            self.lossless &= not thread.task(n).commit_needed
            self.open.pop((number, n), None)
        thread.tasks.close([TASKS[n] for n in revoked], clean=False)

    def is_running(self, number: int, n: int) -> bool:
        return TASKS[n] in {task.task_id for task in self.threads[number].tasks.running}

    def logged(self, n: int) -> list[tuple[int, bytes, bytes | None, int]]:
        return self.threads[0].cluster.topic(changelog(n)).records


class InMemory(Roles):
    kind = "in_memory"


_SETTINGS = settings(max_examples=40, stateful_step_count=30, deadline=None)


@pytest.mark.extended
def test_persistent_tasks_change_roles() -> None:
    """Also if the disk has more than the committed records."""
    run_state_machine_as_test(Roles, settings=_SETTINGS)


def test_in_memory_tasks_change_roles() -> None:
    """Only the open store has the position in the changelog."""
    run_state_machine_as_test(InMemory, settings=_SETTINGS)
