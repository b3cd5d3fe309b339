"""The metrics of an application instance: its own, and those that its threads have told."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Final

from millstream.application.story.story import AT_REST
from millstream.config import StreamsConfig
from millstream.export.kinds import is_counter
from millstream.metrics.frames import FrameReader
from millstream.metrics.values import Metric, Metrics
from millstream.runtime.client_states import ClientStates
from millstream.runtime.control import ThreadMetrics
from millstream.runtime.loop.thread_meters import (
    OWN_GROUP,
    SUBSCRIPTION_GROUP,
    THREAD_GROUP,
    THREAD_ORDINALS,
)
from millstream.runtime.stall import Stall
from millstream.runtime.states import ClientState, ThreadState
from millstream.runtime.task.task_meters import TASK_GROUP
from millstream.subscriptions.metrics import PRESENT
from millstream.topology.physical.topology import Topology

CLIENT_GROUP: Final = "stream-metrics"

#: Follows the order of Kafka Streams' `KafkaStreams.State`, which is what its metric tells.
_ORDINALS: Final = {
    ClientState.CREATED: 0,
    ClientState.REBALANCING: 1,
    ClientState.RUNNING: 2,
    ClientState.PENDING_SHUTDOWN: 3,
    ClientState.NOT_RUNNING: 4,
    ClientState.PENDING_ERROR: 5,
    ClientState.ERROR: 6,
}


class ClientMetrics:
    """Gathers them. Told by the one who follows the threads, asked from any thread.

    Follows `ClientMetrics` of Kafka Streams.

    Args:
        topology: what is computed.
        config: settings.
        states: those of the application and its threads.
        client_id: the instance's name.
        stalls: where threads hang.
        failed: how many threads have died of an error.
        dataframes: the numbers of DataFrame functions.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        states: ClientStates,
        client_id: Callable[[], str],
        stalls: Callable[[], dict[str, Stall]],
        failed: Callable[[], int],
        dataframes: Callable[[], list[Metric]] = list,
    ) -> None:
        self._topology = topology
        self._config = config
        self._states = states
        self._client_id = client_id
        self._stalls = stalls
        self._failed = failed
        self._dataframes = dataframes
        self._threads: dict[str, FrameReader] = {}
        self._told: dict[str, list[Metric]] = {}

    @property
    def has_reports(self) -> bool:
        """Whether any thread has ever told anything."""
        return bool(self._told)

    def take(self, thread: str, report: ThreadMetrics) -> None:
        """A thread has told its metrics."""
        reader = self._threads.setdefault(thread, FrameReader())
        reader.take(report.frame)
        self._told[thread] = reader.metrics()

    def begins(self, thread: str) -> None:
        """A thread begins anew: what it has counted before stays until it tells something."""
        self._threads.pop(thread, None)

    def thread_is(self, thread: str, state: ThreadState) -> None:
        """A thread has changed its state: of one that does not run any more what it has counted
        stays, to be looked at after the end. How its tasks are other threads tell by now."""
        if state in AT_REST and thread in self._told:
            self._told[thread] = list(_at_rest(self._told[thread], state))

    def forget(self, thread: str) -> None:
        """A thread was removed: not even what it has counted stays."""
        self._threads.pop(thread, None)
        self._told.pop(thread, None)

    def processed_by_task(self, thread: str) -> dict[str, int]:
        """How many records the tasks of a thread have processed."""
        return {
            one.labels["task-id"]: int(one.value)
            for one in self._told.get(thread, ())
            if one.name == "process-total"
            and one.group == TASK_GROUP
            and not isinstance(one.value, str)
        }

    def all(self) -> Metrics:
        """All of them."""
        client = {"client-id": self._client_id()}
        own = [Metric(name, client, value, CLIENT_GROUP) for name, value in self._own().items()]
        # Copied first: a report may come meanwhile.
        told, stalls = dict(self._told), self._stalls()
        stalled = [
            Metric(
                "stalled-ms",
                {"thread-id": thread},
                float(stalls[thread].silent_ms) if thread in stalls else 0.0,
                OWN_GROUP,
            )
            # One that hangs may never have told anything else.
            for thread in {**told, **stalls}
        ]
        own += self._dataframes()
        return Metrics([*own, *stalled, *(one for each in told.values() for one in each)])

    def _own(self) -> dict[str, float | str]:
        state = self._states.state
        return {
            **self._constant,
            "state": state.name,
            "client-state": _ORDINALS[state],
            "alive-stream-threads": len(self._states.threads()),
            "failed-stream-threads": self._failed(),
        }

    @cached_property
    def _constant(self) -> dict[str, float | str]:
        return {
            "version": importlib.metadata.version("millstream"),
            "application-id": self._config.application_id,
            "topology-description": str(self._topology.describe()),
            "recording-level": self._config.metrics_recording_level,
        }


def _at_rest(told: Iterable[Metric], state: ThreadState) -> Iterator[Metric]:
    """What is still true of a thread that has told this and runs no more."""
    states: dict[str, float | str] = {
        "state": state.name,
        "thread-state": THREAD_ORDINALS[state],
    }
    for one in told:
        if one.group == THREAD_GROUP and one.name in states:
            yield one._replace(value=states[one.name])
        elif one.group == THREAD_GROUP and one.name.endswith("-rate"):
            yield one._replace(value=0.0)
        elif is_counter(one.name) or (one.group == SUBSCRIPTION_GROUP and one.name not in PRESENT):
            yield one
