"""Subscriptions in the test's process, without Spark."""

from __future__ import annotations

from collections.abc import Sequence

from millstream import StreamsConfig, Topology
from millstream.parallel import ProcessorSubscription
from support.running.thread_run import FinishedRun, run_to_end


def inside(subscription: ProcessorSubscription) -> tuple[Topology, StreamsConfig]:
    """The topology of a subscription, and its settings."""
    streams = subscription._streams
    return streams._supervisor.topology, streams._config


def run_subscription(subscription: ProcessorSubscription, topics: Sequence[str]) -> FinishedRun:
    """Run one thread of it until all input in these topics is committed, or it has failed."""
    return run_to_end(*inside(subscription), topics)
