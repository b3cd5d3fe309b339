"""What stands in the records that a subscription writes beside its topic."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from support.subscribed_task import SubscribedTask

from millstream.clock import ManualClock
from millstream.parallel import DecatonMetadata, ProcessingContext, Retry
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
