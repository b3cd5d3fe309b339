"""Tasks that the retry topic or the dead-letter topic rejects."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
from support.tasks.subscribed_task import PLACE, SubscribedTask
from support.tasks.task_setup import commit_task
from support.waiting import wait_for

from millstream.clock import ManualClock
from millstream.errors import ProductionError
from millstream.kafka.clients.delivery import RejectionHandler
from millstream.parallel import ProcessingContext, Retry
from millstream.testing.driver_topics import CapturingCollector

PAUSE_MS = 5_000


class LimitedCollector(CapturingCollector):
    """Rejects records of more than 5 bytes, if they have a handler."""

    def __init__(self) -> None:
        super().__init__()
        self.max_bytes = 5

    def send_with_handler(
        self,
        topic: str,
        partitions: Any,
        keys: Sequence[bytes | None],
        values: Sequence[bytes | None],
        timestamps: Sequence[int],
        headers: Any,
        handler: RejectionHandler,
    ) -> None:
        for index, value in enumerate(values):
            if len(value or b"") > self.max_bytes:
                failure = handler.failed(
                    index, ProductionError("Too large.", topic=topic), transaction_lost=False
                )
                if failure is not None:
                    raise failure
                continue
            own_headers = None if headers is None else [headers[index]]
            self.send_many(topic, None, [keys[index]], [value], [timestamps[index]], own_headers)


def policy(on_send_failure: Any, **options: Any) -> Retry:
    backoff = timedelta(milliseconds=PAUSE_MS)
    return Retry(backoff=backoff, on_send_failure=on_send_failure, **options)


def failing_subscription(
    on_send_failure: Any, calls: list[str], concurrency: int, **options: Any
) -> SubscribedTask:
    """Return a subscription with tasks that all fail."""

    def fail(context: ProcessingContext, task: str) -> None:
        calls.append(task)
        raise RuntimeError("no")

    return SubscribedTask(
        fail,
        retry=policy(on_send_failure, **options),
        on_error="retry",
        concurrency=concurrency,
        clock=ManualClock(1_000_000),
        collector=LimitedCollector(),
    )


@pytest.mark.parametrize("concurrency", [1, 3])
def test_kept_task_is_repeated_after_the_pause_until_it_is_written(
    concurrency: int,
) -> None:
    """Other tasks continue. Detects a commit past the task, and an immediate retry."""
    calls: list[str] = []
    with failing_subscription("keep", calls, concurrency) as sub:
        sub.feed("one", "much too long", "two")
        sub.until(lambda: len(calls) == 3, "all were tried")
        assert sub.drain(), "sent tasks are not awaited any longer"
        assert sub.committable == 0, "no delivery is certain"
        assert sub.commit() == 1
        assert sub.task.in_flight == 1
        assert sub.counted("retry.queueing.failed") == 1
        assert [record.value for record in sub.written("tasks-retry")] == [b"one", b"two"]
        sub.clock.sleep_ms(PAUSE_MS - 1)
        sub.step()
        assert len(calls) == 3
        sub.clock.sleep_ms(1)
        sub.collector.max_bytes = 50
        sub.until(lambda: len(calls) == 4, "it is done again")
        assert calls[-1] == "much too long"
        assert sub.drain()
        assert sub.commit() == 3
        assert [record.value for record in sub.written("tasks-retry")] == [b"much too long"]
        assert not sub.task.awaits_delivery


@pytest.mark.parametrize("concurrency", [1, 3])
def test_dropped_task_is_completed_and_logged(
    concurrency: int, caplog: pytest.LogCaptureFixture
) -> None:
    with failing_subscription("drop", [], concurrency) as sub:
        sub.feed("much too long", "two")
        sub.until(lambda: sub.committable == 2, "both are completed")
        assert sub.counted("retry.queueing.failed") == 1
    assert "offset 0, was rejected by topic 'tasks-retry', and is dropped" in caplog.text


@pytest.mark.parametrize("concurrency", [1, 3])
def test_rejected_task_can_end_the_thread(concurrency: int) -> None:
    with failing_subscription("fail", [], concurrency) as sub:
        sub.feed("much too long")
        with pytest.raises(ProductionError, match="offset 0, was rejected by topic") as caught:
            sub.until(lambda: False, "it fails")
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == ("tasks", 0, 0)


def test_rejected_dead_letter_is_kept_as_well() -> None:
    calls: list[str] = []
    with failing_subscription("keep", calls, 1, max_attempts=1, dead_letter_topic="dead") as sub:
        sub.feed("much too long", "two")
        sub.until(lambda: len(calls) == 2, "both were tried")
        assert sub.commit() == 0
        assert [record.value for record in sub.written("dead")] == [b"two"]
        sub.clock.sleep_ms(PAUSE_MS)
        sub.collector.max_bytes = 50
        sub.until(lambda: len(calls) == 3, "it is done again")
        sub.drain()
        assert sub.commit() == 2
        assert [record.value for record in sub.written("dead")] == [b"much too long"]


def test_failure_during_a_commit_requests_the_next_commit() -> None:
    """There may be no other request. Detects a dead letter that is never awaited, and an offset
    that stays."""
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
        sub.until(lambda: task.awaits_delivery, "the first has failed")
        assert task.can_commit()
        task.prepare_commit()
        gates["two"].set()
        wait_for(lambda: task.processing.executor.has_completions, 20, "the second has failed")
        task.on_delivered()
        offsets = task.offsets_to_commit()
        assert offsets[PLACE].offset == 1
        task.on_commit_started()
        task.post_commit(offsets, {})
        assert task.commit_needed
        assert sub.commit() == 2


@pytest.mark.parametrize("completes", ["after a commit", "during a commit"])
def test_a_retry_that_awaits_its_delivery_causes_a_commit(completes: str) -> None:
    """Detects a task that stays in flight until its partition receives another record."""
    may_fail = threading.Event()

    def fail(context: ProcessingContext, task: str) -> None:
        may_fail.wait()
        raise RuntimeError("no")

    with SubscribedTask(fail, retry=policy("keep"), on_error="retry", concurrency=2) as sub:
        sub.feed("small")
        sub.step()
        if completes == "after a commit":
            assert sub.commit() == 0
            assert not sub.task.commit_needed
        else:
            sub.task.prepare_commit()
        may_fail.set()
        sub.until(lambda: sub.task.awaits_delivery, "the retry is written")
        if completes == "during a commit":
            commit_task(sub.task)
        assert sub.task.commit_needed
        assert sub.commit() == 1
