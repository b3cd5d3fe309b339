"""The last commit of a thread that closes just after tasks have failed for the last time."""

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
from millstream.kafka.membership.member_events import CommitOffset
from millstream.parallel import ProcessingContext, Retry
from millstream.record import TopicPartition
from millstream.runtime.loop.commits import DrainTimeouts, TaskCommitter

CLOSE_MS = 20_000


class Group:
    """The committed offset, and a topic of dead letters. Implements `Publication`.

    Args:
        is_unavailable: whether the brokers do not answer.
    """

    all_or_nothing = False
    in_transaction = False

    def __init__(self, *, is_unavailable: bool = False) -> None:
        self.offset = 0
        #: The number of dead letters at the last wait for delivery.
        self.delivered = 0
        self.dead_letters: list[bytes] = []
        self.sub: SubscribedTask
        self._is_unavailable = is_unavailable

    def await_delivery(self, whole: Deadline) -> None:
        if self._is_unavailable:
            raise BrokerUnavailableError("no answer")
        self.dead_letters += [letter.value or b"" for letter in self.sub.written("dead")]
        self.delivered = len(self.dead_letters)

    def publish(self, offsets: Mapping[TopicPartition, CommitOffset], whole: Deadline) -> None:
        self.await_delivery(whole)
        self.offset = offsets[PLACE].offset

    def close(self) -> None:
        """Close the tasks like a thread does."""
        producer: Any = Mock(acked_offsets=Mock(return_value={}))
        publication: Any = self
        commits = TaskCommitter(publication, producer, SystemClock())
        commits.closing_timeouts = DrainTimeouts(CLOSE_MS, None)
        tasks: Any = [self.sub.task]
        commits.drain_to_close(tasks, 2 * CLOSE_MS)
        commits.commit(tasks, CLOSE_MS)


class Gate:
    """Tasks that start, and fail when the gate is opened."""

    def __init__(self) -> None:
        self.started = 0
        self._open = threading.Event()

    def work(self, context: ProcessingContext, task: str) -> None:
        self.started += 1
        assert self._open.wait(20)
        raise RuntimeError(task)

    async def work_async(self, context: ProcessingContext, task: str) -> None:
        self.started += 1
        await asyncio.to_thread(self._open.wait, 20)
        raise RuntimeError(task)

    def open(self) -> None:
        self._open.set()


@pytest.fixture(params=["threads", "coroutines"])
def begin(request: pytest.FixtureRequest) -> Iterator[Callable[[Group], Gate]]:
    """Start the last attempts of two tasks, with all previous tasks committed."""
    gate = Gate()
    processor: Any = gate.work if request.param == "threads" else gate.work_async
    retry = Retry(backoff=timedelta(hours=1), max_attempts=1, dead_letter_topic="dead")
    with SubscribedTask(processor, concurrency=8, retry=retry, on_error="retry") as sub:

        def start(group: Group) -> Gate:
            group.sub = sub
            sub.feed("one", "two")
            sub.step()
            wait_for(lambda: gate.started == 2, 20, "both have started")
            assert sub.commit() == 0
            assert not sub.task.commit_needed
            return gate

        try:
            yield start
        finally:
            gate.open()


@pytest.mark.parametrize("opened", ["before", "meanwhile"])
def test_dead_letters_are_delivered_and_their_offsets_committed(
    begin: Callable[[Group], Gate], opened: str
) -> None:
    """Although nothing else needs a commit, and whether they failed just before or during the
    close."""
    group = Group()
    gate = begin(group)
    if opened == "before":
        gate.open()
        wait_for(lambda: group.sub.task.processing.executor.has_completions, 20, "one has failed")
    else:
        threading.Timer(0.05, gate.open).start()
    group.close()
    assert sorted(group.dead_letters) == [b"one", b"two"]
    assert (group.offset, group.delivered) == (2, 2)


def test_offsets_of_undelivered_dead_letters_are_not_committed(
    begin: Callable[[Group], Gate],
) -> None:
    """The tasks are repeated after a restart."""
    group = Group(is_unavailable=True)
    begin(group).open()
    with pytest.raises(BrokerUnavailableError):
        group.close()
    assert group.offset == 0
    assert group.sub.committable == 0
