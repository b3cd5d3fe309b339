"""What is deleted of repartition topics, and when."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from support.tasks.task_bench import TaskBench, source

from millstream.record import TopicPartition
from millstream.runtime.loop.purge import RepartitionPurge

INTERVAL_MS = 200


class Deletion:
    """Notes what is to be deleted; the test says what becomes of it."""

    def __init__(self) -> None:
        self.asked: list[dict[TopicPartition, int]] = []
        self.futures: dict[TopicPartition, Future[Any]] = {}

    def delete_records(
        self, before: Mapping[TopicPartition, int]
    ) -> Mapping[TopicPartition, Future[Any]]:
        self.asked.append(dict(before))
        self.futures = {place: Future() for place in before}
        return self.futures

    def answer(self, error: Exception | None = None) -> None:
        for future in self.futures.values():
            if error is None:
                future.set_result(None)
            else:
                future.set_exception(error)


class Turns:
    """A thread's tasks, whose source is a repartition topic."""

    def __init__(self, folder: Path) -> None:
        self.bench = TaskBench(folder)
        self.deletion = Deletion()
        self.purge = self.new_purge()

    def new_purge(self) -> RepartitionPurge:
        return RepartitionPurge(self.deletion, {source().topic}, INTERVAL_MS, self.bench.clock)

    def turn(self) -> list[dict[TopicPartition, int]]:
        """What is asked for when the interval has passed."""
        self.bench.clock.advance(INTERVAL_MS)
        before = len(self.deletion.asked)
        self.purge.run(self.bench.tasks.running)
        return self.deletion.asked[before:]


@pytest.fixture
def turns(tmp_path: Path) -> Turns:
    turns = Turns(tmp_path)
    turns.bench.assign([0])
    turns.bench.run_all()
    return turns


def test_what_is_committed_is_deleted_once(turns: Turns) -> None:
    assert turns.turn() == []
    turns.bench.feed("a", "b", commit=False)
    assert turns.turn() == []
    turns.bench.commit()
    assert turns.turn() == [{source(): 2}]
    turns.deletion.answer()
    assert turns.turn() == []
    turns.bench.feed("c")
    assert turns.turn() == [{source(): 3}]


def test_nothing_is_asked_while_an_answer_is_missing(turns: Turns) -> None:
    turns.bench.feed("a")
    assert turns.turn() == [{source(): 1}]
    turns.bench.feed("b")
    assert turns.turn() == []
    turns.deletion.answer()
    assert turns.turn() == [{source(): 2}]


def test_what_could_not_be_deleted_is_asked_for_again(turns: Turns) -> None:
    turns.bench.feed("a")
    turns.turn()
    turns.deletion.answer(OSError("no broker"))
    assert turns.turn() == [{source(): 1}]


def test_whoever_gets_a_task_deletes_what_was_committed_before(turns: Turns) -> None:
    """Hunts for records that stay until the next ones come, since the task moved right after its
    commit: the last words of a stream would never be deleted."""
    turns.bench.feed("a", "b")
    turns.bench.assign([])
    turns.purge = turns.new_purge()
    turns.bench.assign([0])
    turns.bench.run_all()
    assert turns.turn() == [{source(): 2}]
