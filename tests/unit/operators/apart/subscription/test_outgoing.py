"""What stands in the records that a subscription writes beside its topic."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from support.tasks.subscribed_task import SubscribedTask

from millstream.clock import ManualClock
from millstream.parallel import DecatonMetadata, ProcessingContext, Retry
from millstream.record import Headers
from millstream.subscriptions.tasks.metadata import find_metadata, request_bytes, with_metadata

NOW_MS = 1_000_000
MADE = DecatonMetadata(timestamp_ms=7, source_application_id="shop")
ONCE = Retry(backoff=timedelta(0), max_attempts=1, dead_letter_topic="dead", on_send_failure="drop")


def broken(context: ProcessingContext, task: str) -> None:
    raise ValueError("broken")


def failing(**options: Any) -> SubscribedTask:
    return SubscribedTask(
        broken, retry=ONCE, on_error="retry", clock=ManualClock(NOW_MS), **options
    )


def test_a_dead_letter_has_each_header_once() -> None:
    headers = (("trace", b"1"), *with_metadata((), MADE))
    with failing() as sub:
        sub.feed("one", headers=headers)
        sub.until(lambda: sub.committable == 1, "it is buried")
        (letter,) = sub.written("dead")
    names = [name for name, _ in letter.headers]
    assert letter.headers[: len(headers)] == headers
    assert len(names) == len(set(names))
    assert dict(letter.headers)["__streams.errors.message"] == b"broken"


def test_a_dead_letter_of_a_task_in_the_old_format_keeps_what_is_known_of_it() -> None:
    """Its value is the task alone: hunts for metadata that are lost with the rest of the value."""
    with failing(legacy_parse_fallback_enabled=True) as sub:
        sub.feed(request_bytes(MADE, b"one").decode("latin-1"), key="k")
        sub.until(lambda: sub.committable == 1, "it is buried")
        (letter,) = sub.written("dead")
    assert (letter.value, find_metadata(letter.headers)) == (b"one", MADE)


@pytest.mark.parametrize("legacy", [False, True])
@pytest.mark.parametrize("headers", [(), tuple(with_metadata((), MADE))])
def test_a_shaped_record_is_of_now_and_its_task_of_before(headers: Headers, legacy: bool) -> None:
    """By its old time it could be deleted before it was read: hunts for a record with that, and for
    metadata beside a value that has some of its own."""
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
    known = DecatonMetadata(timestamp_ms=1_000)
    assert (record.key, record.value, record.timestamp) == (b"one", b"one", NOW_MS + 10_000)
    assert find_metadata(record.headers) == (MADE if headers else None if legacy else known)
