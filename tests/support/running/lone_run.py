"""One stream thread of any topology, without Spark, until its input is done or it has failed."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from confluent_kafka import KafkaException

from millstream import StreamsConfig, Topology
from millstream.runtime.build_thread import build_thread
from millstream.runtime.control import ThreadOutcome
from millstream.runtime.ownership.restore_reports import RestoreAudience
from millstream.runtime.task.node_context import Dropped
from millstream.runtime.thread_identity import ThreadIdentity
from support.broker.records import Places
from support.running.lone_thread import LoneControl
from support.waiting import wait_for

_DONE_S = 60
_CLOSE_S = 30


class LoneRun:
    """A run that is over.

    Attributes:
        outcome: how the thread ended.
        dropped: how many records its tasks counted as dropped.
    """

    def __init__(self, outcome: ThreadOutcome, dropped: int) -> None:
        self.outcome = outcome
        self.dropped = dropped


def run_alone(topology: Topology, config: StreamsConfig, inputs: Sequence[str]) -> LoneRun:
    """Run until everything in `inputs` is committed, or the thread has failed."""
    control = LoneControl()
    name = config.application_id
    identity = ThreadIdentity(f"{name}-StreamThread-1", 1, uuid.uuid5(uuid.NAMESPACE_URL, name))
    places = Places(config.bootstrap_servers)
    outcomes: list[ThreadOutcome] = []
    with counting_dropped() as dropped:
        thread = build_thread(topology, config, identity, control, RestoreAudience())
        runner = threading.Thread(target=lambda: outcomes.append(thread.run()))
        runner.start()
        try:
            wait_for(
                lambda: not runner.is_alive() or is_done(places, name, inputs),
                _DONE_S,
                "the input is done",
            )
        finally:
            control.close()
            runner.join(_CLOSE_S)
    (outcome,) = outcomes
    return LoneRun(outcome, sum(dropped))


def is_done(places: Places, group: str, inputs: Sequence[str]) -> bool:
    """Whether a group has committed all of its input, as far as its coordinator can be asked."""
    try:
        return places.lag(group, inputs) == 0
    except KafkaException:
        # The first group of a cluster waits for the topic of offsets.
        return False


@contextmanager
def counting_dropped() -> Iterator[list[int]]:
    """How many records are counted as dropped meanwhile, in this process."""
    counts: list[int] = []
    real = Dropped.add

    def add(self: Dropped, count: int, why: str, node: str, windows: int | None = None) -> None:
        counts.append(count if windows is None else windows)
        real(self, count, why, node, windows)

    with patch.object(Dropped, "add", add):
        yield counts
