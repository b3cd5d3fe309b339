"""What becomes of tasks that the retry or the dead-letter topic does not take."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from support.tasks.subscribed_task import PLACE, SubscribedTask
from support.waiting import wait_for

from millstream.clock import ManualClock
from millstream.errors import ProductionError
from millstream.kafka.data.watch import Watch
from millstream.parallel import ProcessingContext, Retry
from millstream.testing.driver_topics import CapturingCollector

PAUSE_MS = 5_000


class Strict(CapturingCollector):
    """Takes no record that is longer than 5 bytes where somebody decides about those."""

    def __init__(self) -> None:
        super().__init__()
        self.most_bytes = 5

    def send_watched(
        self,
        topic: str,
        partitions: Any,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Any,
        watch: Watch,
    ) -> None:
        for index, value in enumerate(values):
            if len(value or b"") > self.most_bytes:
                failure = watch.failed(
                    index, ProductionError("Too large.", topic=topic), transaction_lost=False
                )
                if failure is not None:
                    raise failure
                continue
            own = None if headers is None else [headers[index]]
            self.send_many(topic, None, [keys[index]], [value], [timestamps[index]], own)


def policy(answer: Any, **options: Any) -> Retry:
    backoff = timedelta(milliseconds=PAUSE_MS)
    return Retry(backoff=backoff, on_send_failure=answer, **options)


def strict(answer: Any, calls: list[str], concurrency: int, **options: Any) -> SubscribedTask:
    """A subscription of which all tasks fail."""

    def fail(context: ProcessingContext, task: str) -> None:
        calls.append(task)
        raise RuntimeError("no")

    return SubscribedTask(
        fail,
        retry=policy(answer, **options),
        on_error="retry",
        concurrency=concurrency,
        clock=ManualClock(1_000_000),
        collector=Strict(),
    )


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_task_that_is_kept_is_done_again_after_the_pause_until_it_is_taken(
    concurrency: int,
) -> None:
    """And those around it go on: hunts for a commit past it, and for a retry at once."""
    calls: list[str] = []
    with strict("keep", calls, concurrency) as sub:
        sub.feed("one", "much too long", "two")
        sub.until(lambda: len(calls) == 3, "all were tried")
        assert sub.drain(), "a task that is sent is not waited for beyond that"
        assert sub.committable == 0, "nothing of it has arrived for certain"
        assert sub.commit() == 1
        assert sub.task.in_flight == 1
        assert sub.counted("retry.queueing.failed") == 1
        assert [record.value for record in sub.written("tasks-retry")] == [b"one", b"two"]
        sub.clock.sleep_ms(PAUSE_MS - 1)
        sub.step()
        assert len(calls) == 3
        sub.clock.sleep_ms(1)
        sub.collector.most_bytes = 50
        sub.until(lambda: len(calls) == 4, "it is done again")
        assert calls[-1] == "much too long"
        assert sub.drain()
        assert sub.commit() == 3
        assert [record.value for record in sub.written("tasks-retry")] == [b"much too long"]
        assert not sub.task.awaits_sent


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_task_that_is_dropped_is_done_with_and_told(
    concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    with strict("drop", [], concurrency) as sub:
        sub.feed("much too long", "two")
        sub.until(lambda: sub.committable == 2, "both are done with")
        assert sub.counted("retry.queueing.failed") == 1
    assert "offset 0, was not taken by topic 'tasks-retry', and is dropped" in caplog.text


@pytest.mark.parametrize("concurrency", [1, 3])
def test_a_task_may_end_the_thread(concurrency: int) -> None:
    with strict("fail", [], concurrency) as sub:
        sub.feed("much too long")
        with pytest.raises(ProductionError, match="offset 0, was not taken by topic") as caught:
            sub.until(lambda: False, "it fails")
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("tasks", 0, 0)


def test_a_dead_letter_that_no_topic_takes_is_kept_as_well() -> None:
    calls: list[str] = []
    with strict("keep", calls, 1, max_attempts=1, dead_letter_topic="dead") as sub:
        sub.feed("much too long", "two")
        sub.until(lambda: len(calls) == 2, "both were tried")
        assert sub.commit() == 0
        assert [record.value for record in sub.written("dead")] == [b"two"]
        sub.clock.sleep_ms(PAUSE_MS)
        sub.collector.most_bytes = 50
        sub.until(lambda: len(calls) == 3, "it is done again")
        sub.drain()
        assert sub.commit() == 2
        assert [record.value for record in sub.written("dead")] == [b"much too long"]


def test_what_fails_while_a_commit_waits_asks_for_the_next_one() -> None:
    """Nothing else may: hunts for a dead letter that nobody waits for, and an offset that stays."""
    gates = {"one": threading.Event(), "two": threading.Event()}

    def fail(context: ProcessingContext, task: str) -> None:
        assert gates[task].wait(20)
        raise RuntimeError("no")

    retry = policy("keep", max_attempts=1, dead_letter_topic="dead")
    with SubscribedTask(fail, retry=retry, on_error="retry", concurrency=8) as sub:
        task = sub.task
        sub.feed("one", "two")
        sub.step()
        assert sub.commit() == 0
        gates["one"].set()
        sub.until(lambda: task.awaits_sent, "the first has failed")
        assert task.may_commit()
        task.prepare_commit()
        gates["two"].set()
        wait_for(lambda: task.processing.executor.has_landed, 20, "the second has failed")
        task.sent()
        offsets = task.offsets_to_commit()
        assert offsets[PLACE].offset == 1
        task.commit_begun()
        task.post_commit(offsets, {})
        assert task.commit_needed
        assert sub.commit() == 2
