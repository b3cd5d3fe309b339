"""How long tasks that are given up are waited for."""

from __future__ import annotations

from typing import Final, NamedTuple

from millstream.subscriptions.properties.properties import Properties


class Patience(NamedTuple):
    """How long tasks that are given up are waited for; all in milliseconds.

    Args:
        all_ms: for everything they have taken, what has not begun included.
        running_ms: after that for what runs, of which nothing more is begun; None for as long as
            it takes.
    """

    all_ms: int
    running_ms: int | None


#: Of an application: a part of the time that a group gives its members, and no more than half of
#: what a worker has when its machine ends it.
USUAL: Final = Patience(5_000, 0)


def when_given_up(properties: Properties) -> Patience:
    """How long partitions that go to others are waited for."""
    return Patience(
        properties.group_rebalance_timeout_ms, properties.processor_termination_timeout_ms
    )


def when_closing(properties: Properties) -> Patience:
    """How long everything is waited for when a subscription closes."""
    return Patience(
        properties.processing_shutdown_timeout_ms, properties.processor_termination_timeout_ms
    )
