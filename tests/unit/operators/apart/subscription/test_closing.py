"""What a thread commits that closes just when tasks have failed for the last time."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from support.tasks.subscribed_task import PLACE, SubscribedTask
from support.waiting import wait_for

from millstream.clock import Deadline, SystemClock
from millstream.errors import BrokerUnavailableError
from millstream.kafka.member.events import CommitOffset
from millstream.parallel import ProcessingContext, Retry
from millstream.record import TopicPartition
from millstream.runtime.loop.commits import Commits
from millstream.runtime.loop.patience import Patience

CLOSE_MS = 20_000


class Group:
    """Where offsets are committed, beside a topic of dead letters. It is `Publication`.

    Args:
        is_away: whether the brokers answer nothing.
    """

    all_or_nothing = False
    is_open = False

    def __init__(self, *, is_away: bool = False) -> None:
        self.offset = 0
        #: How many dead letters had been handed over when they were last waited for.
        self.arrived = 0
        self.buried: list[bytes] = []
        self.sub: SubscribedTask
        self._is_away = is_away

    def settle(self, whole: Deadline) -> None:
        if self._is_away:
            raise BrokerUnavailableError("no answer")
        self.buried += [letter.value or b"" for letter in self.sub.written("dead")]
        self.arrived = len(self.buried)

    def publish(self, offsets: Mapping[TopicPartition, CommitOffset], whole: Deadline) -> None:
        self.settle(whole)
        self.offset = offsets[PLACE].offset

    def close(self) -> None:
        """What a thread does with its tasks at last."""
        producer: Any = Mock(acked_offsets=Mock(return_value={}))
        publication: Any = self
        commits = Commits(publication, producer, SystemClock())
        commits.when_closing = Patience(CLOSE_MS, None)
        tasks: Any = [self.sub.task]
        commits.drain_to_close(tasks, 2 * CLOSE_MS)
        commits.commit(tasks, CLOSE_MS)


class Gate:
    """Tasks that have begun, and fail when it is opened."""

    def __init__(self) -> None:
        self.begun = 0
        self._open = threading.Event()

    def work(self, context: ProcessingContext, task: str) -> None:
        self.begun += 1
        assert self._open.wait(20)
        raise RuntimeError(task)

    async def work_async(self, context: ProcessingContext, task: str) -> None:
        self.begun += 1
        await asyncio.to_thread(self._open.wait, 20)
        raise RuntimeError(task)

    def open(self) -> None:
        self._open.set()


@pytest.fixture(params=["threads", "coroutines"])
def begin(request: pytest.FixtureRequest) -> Iterator[Callable[[Group], Gate]]:
    """Begins two tasks for the last time, with all that was before them committed."""
    gate = Gate()
    processor: Any = gate.work if request.param == "threads" else gate.work_async
    retry = Retry(backoff=timedelta(hours=1), max_attempts=1, dead_letter_topic="dead")
    with SubscribedTask(processor, concurrency=8, retry=retry, on_error="retry") as sub:

        def begun(group: Group) -> Gate:
            group.sub = sub
            sub.feed("one", "two")
            sub.step()
            wait_for(lambda: gate.begun == 2, 20, "both have begun")
            assert sub.commit() == 0
            assert not sub.task.commit_needed
            return gate

        try:
            yield begun
        finally:
            gate.open()


@pytest.mark.parametrize("opened", ["before", "meanwhile"])
def test_the_dead_letters_are_there_and_the_offsets_behind_them(
    begin: Callable[[Group], Gate], opened: str
) -> None:
    """Though nothing else asks for a commit: whether they failed just before or during it."""
    group = Group()
    gate = begin(group)
    if opened == "before":
        gate.open()
        wait_for(lambda: group.sub.task.processing.executor.has_landed, 20, "one has failed")
    else:
        threading.Timer(0.05, gate.open).start()
    group.close()
    assert sorted(group.buried) == [b"one", b"two"]
    assert (group.offset, group.arrived) == (2, 2)


def test_what_has_not_arrived_is_not_committed(begin: Callable[[Group], Gate]) -> None:
    """So the tasks are done again after a restart."""
    group = Group(is_away=True)
    begin(group).open()
    with pytest.raises(BrokerUnavailableError):
        group.close()
    assert group.offset == 0
    assert group.sub.committable == 0
