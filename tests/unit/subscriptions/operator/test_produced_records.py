"""Records that a subscription writes to other topics."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.tasks.subscribed_task import SubscribedTask

from millstream.clock import ManualClock
from millstream.parallel import DecatonMetadata, ProcessingContext, Retry
from millstream.record import Headers
from millstream.subscriptions.tasks.decaton_metadata import (
    find_metadata,
    request_bytes,
    with_metadata,
)

NOW_MS = 1_000_000
METADATA = DecatonMetadata(timestamp_ms=7, source_application_id="shop")
ONCE = Retry(backoff=timedelta(0), max_attempts=1, dead_letter_topic="dead", on_send_failure="drop")


def broken(context: ProcessingContext, task: str) -> None:
    raise ValueError("broken")


def failing_subscription(**options: Any) -> SubscribedTask:
    return SubscribedTask(
        broken, retry=ONCE, on_error="retry", clock=ManualClock(NOW_MS), **options
    )


def test_dead_letter_has_each_header_once() -> None:
    headers = (("trace", b"1"), *with_metadata((), METADATA))
    with failing_subscription() as sub:
        sub.feed("one", headers=headers)
        sub.until(lambda: sub.committable == 1, "it is a dead letter")
        (letter,) = sub.written("dead")
    names = [name for name, _ in letter.headers]
    assert letter.headers[: len(headers)] == headers
    assert len(names) == len(set(names))
    assert dict(letter.headers)["__streams.errors.message"] == b"broken"


def test_dead_letter_of_a_task_in_the_legacy_format_keeps_its_metadata() -> None:
    """Its value is only the task. Detects metadata that is lost with the rest of the value."""
    with failing_subscription(legacy_parse_fallback_enabled=True) as sub:
        sub.feed(request_bytes(METADATA, b"one").decode("latin-1"), key="k")
        sub.until(lambda: sub.committable == 1, "it is a dead letter")
        (letter,) = sub.written("dead")
    assert (letter.value, find_metadata(letter.headers)) == (b"one", METADATA)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("headers", [(), tuple(with_metadata((), METADATA))])
def test_shaped_record_has_the_current_time_and_the_metadata_of_its_task(
    headers: Headers, legacy: bool
) -> None:
    """With its old timestamp it could be deleted before it is read. Detects such a timestamp, and
    metadata headers beside a value that contains metadata."""
    with SubscribedTask(
        broken,
        clock=ManualClock(NOW_MS),
        shaping="shaped",
        per_key_quota_processing_rate=0,
        legacy_parse_fallback_enabled=legacy,
        on_error="skip",
    ) as sub:
        sub.feed("seen", headers=headers)
        sub.step()
        sub.clock.sleep_ms(10_000)
        sub.feed("one", headers=headers)
        sub.step()
        (record,) = sub.written("shaped")
    expected = DecatonMetadata(timestamp_ms=1_000)
    assert (record.key, record.value, record.timestamp) == (b"one", b"one", NOW_MS + 10_000)
    assert find_metadata(record.headers) == (METADATA if headers else None if legacy else expected)
