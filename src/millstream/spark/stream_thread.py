"""The code of a stream thread, as it is shipped to a Spark worker."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from millstream.config import StreamsConfig
from millstream.runtime.build_thread import ThreadIdentity, build_thread
from millstream.spark.control import ControlChannel
from millstream.spark.messages import ThreadExit
from millstream.spark.thread_task import AttemptInfo
from millstream.topology.topology import Topology


@dataclass(frozen=True)
class StreamThreadMain:
    """Builds a stream thread in the worker and runs it to its end. Pickled with all it holds.

    Args:
        topology: what to compute.
        config: settings.
        process_id: of the application instance; threads with one id share a state directory.
        thread_name: `<client id>-StreamThread-<index>`.
        thread_index: from 1.
    """

    topology: Topology
    config: StreamsConfig
    process_id: uuid.UUID
    thread_name: str
    thread_index: int

    def __call__(self, channel: ControlChannel, attempt: AttemptInfo) -> ThreadExit:
        identity = ThreadIdentity(self.thread_name, self.thread_index, self.process_id)
        with _collecting_seldom():
            outcome = build_thread(self.topology, self.config, identity, channel).run()
        if outcome.error is not None:
            return ThreadExit("error", outcome.error, tuple(outcome.story))
        if channel.lost:
            return ThreadExit("lost", None, tuple(outcome.story), channel.lost_reason or "")
        return ThreadExit("closed", None, tuple(outcome.story))


@contextmanager
def _collecting_seldom() -> Iterator[None]:
    """Let Python look for reference cycles a hundred times less often.

    Batches hold many thousand objects at a time, which the collector would go through again and
    again for nothing: 1.0 us a JSON record, as much as everything else. What the process imported
    so far is not looked at any more.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()
