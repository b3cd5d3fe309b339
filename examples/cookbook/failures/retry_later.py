"""Retry later: work that may fail for an hour, without stopping what comes behind it.

Sending emails, calling a partner's service: work, not state. A subscription does each task with
retries through a topic, pauses that grow, and a topic for what has failed too often, while the
tasks behind it go on. See [subscriptions](../../../docs/build/subscriptions.md) for limits of rate,
quotas and properties that change while it runs. It needs a broker, so what is tested here is the
function.
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
    """Send an email: what it raises makes it be tried again."""
    if "@" not in email:
        raise ValueError(f"{email!r} is no address")
    await asyncio.sleep(0)  # in place of a mail server
    SENT.append(email)


PAUSES = ExponentialBackoff(timedelta(seconds=2), most=timedelta(minutes=1))
ATTEMPTS = 5


def mailer(bootstrap_servers: str) -> ProcessorSubscription:
    """Up to fifty emails at a time; five attempts within half a minute, then a dead letter."""
    return ProcessorSubscription(
        "mailer",
        topics="emails",
        processor=send,
        value=STRING,
        config=SubscriptionConfig("mailer", bootstrap_servers),
        properties=Properties(partition_concurrency=50),
        retry=Retry(
            backoff=PAUSES,
            topic="emails-retry",
            max_attempts=ATTEMPTS,
            dead_letter_topic="emails-dead",
        ),
    )


def test_the_function_fails_where_it_should() -> None:
    asyncio.run(send(None, "ann@example.org"))
    assert SENT.pop() == "ann@example.org"
    with pytest.raises(ValueError, match="no address"):
        asyncio.run(send(None, "ann"))


def test_the_pauses_between_attempts() -> None:
    assert sum(PAUSES.pause_ms(retry) for retry in range(ATTEMPTS - 1)) == 30_000
