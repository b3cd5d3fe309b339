"""Subscriptions in the test's own process, without Spark."""

from __future__ import annotations

from collections.abc import Sequence

from millstream import StreamsConfig, Topology
from millstream.parallel import ProcessorSubscription
from support.running.lone_run import LoneRun, run_alone


def inside(subscription: ProcessorSubscription) -> tuple[Topology, StreamsConfig]:
    """What a subscription would run, and its settings."""
    streams = subscription._streams
    return streams._supervisor._topology, streams._config


def run_subscription(subscription: ProcessorSubscription, topics: Sequence[str]) -> LoneRun:
    """Run one thread of it until all of these topics is committed, or it has failed."""
    return run_alone(*inside(subscription), topics)
