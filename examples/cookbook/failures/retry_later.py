"""Retries: repeat failed work later, without blocking other records.

Sending emails or calling a partner's service needs no state. A subscription executes each task,
retries it through a topic with exponential backoff, and writes it to a dead-letter topic after too
many attempts, while later tasks continue. See [subscriptions](../../../docs/build/subscriptions.md)
for rate limits, quotas and properties that change at run time. A subscription needs a broker, so
the tests here only cover the function.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from millstream.parallel import (
    ExponentialBackoff,
    ProcessorSubscription,
    Properties,
    Retry,
    SubscriptionConfig,
)
from millstream.serdes import STRING

SENT: list[str] = []


async def send(context: object, email: str) -> None:
    """Send an email. If this raises an exception, the subscription retries the task."""
    if "@" not in email:
        raise ValueError(f"{email!r} is not an address")
    await asyncio.sleep(0)  # stands in for a mail server
    SENT.append(email)


BACKOFF = ExponentialBackoff(timedelta(seconds=2), most=timedelta(minutes=1))
ATTEMPTS = 5


def mailer(bootstrap_servers: str) -> ProcessorSubscription:
    """Send up to fifty emails concurrently, with five attempts in half a minute."""
    return ProcessorSubscription(
        "mailer",
        topics="emails",
        processor=send,
        value=STRING,
        config=SubscriptionConfig("mailer", bootstrap_servers),
        properties=Properties(partition_concurrency=50),
        retry=Retry(
            backoff=BACKOFF,
            topic="emails-retry",
            max_attempts=ATTEMPTS,
            dead_letter_topic="emails-dead",
        ),
    )


def test_invalid_addresses_fail() -> None:
    asyncio.run(send(None, "ann@example.org"))
    assert SENT.pop() == "ann@example.org"
    with pytest.raises(ValueError, match="not an address"):
        asyncio.run(send(None, "ann"))


def test_the_backoff_between_attempts() -> None:
    assert sum(BACKOFF.pause_ms(retry) for retry in range(ATTEMPTS - 1)) == 30_000
