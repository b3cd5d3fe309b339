"""The metrics of an application instance, and its port for Prometheus."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from itertools import chain
from typing import Final

from millstream.application.event_log.event_log import INACTIVE_STATES
from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError
from millstream.export.prometheus import PrometheusPort
from millstream.metrics.metric_frames import FrameReader
from millstream.metrics.values import OWN_GROUP, Metric, Metrics, is_counter
from millstream.runtime.loop.thread_meters import (
    SUBSCRIPTION_GROUP,
    THREAD_GROUP,
    THREAD_ORDINALS,
)
from millstream.runtime.states.client_states import ClientStateTracker
from millstream.runtime.states.thread_states import ClientState, ThreadState
from millstream.runtime.task.task_meters import TASK_GROUP
from millstream.runtime.thread_control import Stall, ThreadMetrics
from millstream.subscriptions.subscription_metrics import SUBSCRIPTION_GAUGES
from millstream.topology.physical.topology import Topology

logger = logging.getLogger("millstream")

CLIENT_GROUP: Final = "stream-metrics"

#: The states in the order of Kafka Streams' `KafkaStreams.State`. The metric `client-state` is the
#: index of the state.
_ORDERED_STATES: Final = tuple(ClientState)


class ClientMetrics:
    """The metrics of the instance and the latest reports of its threads.

    Updated by one thread; readable from any thread. Corresponds to the class of the same name in
    Kafka Streams.
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        states: ClientStateTracker,
        client_id: Callable[[], str],
        stalls: Callable[[], dict[str, Stall]],
        failed: Callable[[], int],
    ) -> None:
        self._topology = topology
        self._config = config
        self._states = states
        self._client_id = client_id
        self._stalls = stalls
        self._failed = failed
        self._threads: dict[str, FrameReader] = {}
        #: The frames of running threads, and the remaining metrics of ended threads. Frames are
        #: only decoded when metrics are read: 1,000 threads report twice a second.
        self._latest: dict[str, FrameReader | list[Metric]] = {}
        #: Sources of further metrics of the instance.
        self.additional: Iterable[Callable[[], Iterable[Metric]]] = ()

    @property
    def has_reports(self) -> bool:
        """Whether any thread has ever reported metrics."""
        return bool(self._latest)

    def update(self, thread: str, report: ThreadMetrics) -> None:
        reader = self._threads.setdefault(thread, FrameReader())
        reader.apply(report.frame)
        self._latest[thread] = reader

    def thread_restarted(self, thread: str) -> None:
        """Reset the frames of a restarted thread.

        Its old metrics stay until its first report.
        """
        self._threads.pop(thread, None)

    def thread_state_changed(self, thread: str, state: ThreadState) -> None:
        """Keep only the metrics that remain valid after a thread has stopped running.

        Its counters stay readable. The gauges of its tasks are dropped, because other threads
        report them now.
        """
        if state in INACTIVE_STATES and thread in self._latest:
            self._latest[thread] = list(_after_end(_metrics(self._latest[thread]), state))

    def remove(self, thread: str) -> None:
        self._threads.pop(thread, None)
        self._latest.pop(thread, None)

    def by_thread(self) -> dict[str, list[Metric]]:
        # Copied first, because a report may arrive during the iteration.
        latest = dict(self._latest)
        return {thread: _metrics(each) for thread, each in latest.items()}

    def processed_by_task(self, thread: str) -> dict[str, int]:
        """Return how many records each task of a thread has processed."""
        latest = self._latest.get(thread)
        if not isinstance(latest, FrameReader):
            return {}
        counts = latest.by_label(TASK_GROUP, "process-total", "task-id")
        return {task: int(count) for task, count in counts.items()}

    def all(self) -> Metrics:
        client = {"client-id": self._client_id()}
        own = [Metric(name, client, value, CLIENT_GROUP) for name, value in self._own().items()]
        own += [
            one._replace(labels={**client, **one.labels})
            for metrics in self.additional
            for one in metrics()
        ]
        by_thread, stalls = self.by_thread(), self._stalls()
        stalled = [
            Metric(
                "stalled-ms",
                {"thread-id": thread},
                float(stalls[thread].silent_ms) if thread in stalls else 0.0,
                OWN_GROUP,
            )
            # A stalled thread may never have reported anything.
            for thread in {**by_thread, **stalls}
        ]
        return Metrics([*own, *stalled, *chain.from_iterable(by_thread.values())])

    def _own(self) -> dict[str, float | str]:
        state = self._states.state
        return {
            **self._constant,
            "state": state.name,
            "client-state": _ORDERED_STATES.index(state),
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


def _metrics(latest: FrameReader | list[Metric]) -> list[Metric]:
    return latest.metrics() if isinstance(latest, FrameReader) else latest


def _after_end(metrics: Iterable[Metric], state: ThreadState) -> Iterator[Metric]:
    """Yield the metrics that remain valid after a thread has ended."""
    states: dict[str, float | str] = {
        "state": state.name,
        "thread-state": THREAD_ORDINALS[state],
    }
    for one in metrics:
        if one.group == THREAD_GROUP and one.name in states:
            yield one._replace(value=states[one.name])
        elif one.group == THREAD_GROUP and one.name.endswith("-rate"):
            yield one._replace(value=0.0)
        elif is_counter(one.name) or (
            one.group == SUBSCRIPTION_GROUP and one.name not in SUBSCRIPTION_GAUGES
        ):
            yield one


class MetricsPort:
    """The Prometheus endpoint of a running application, if `metrics_port` is set."""

    def __init__(self, config: StreamsConfig, metrics: Callable[[], Metrics]) -> None:
        self._config = config
        self._metrics = metrics
        self._open: PrometheusPort | None = None

    @property
    def port(self) -> int | None:
        return None if self._open is None else self._open.port

    def open(self) -> None:
        """Start listening if `metrics_port` is set.

        Raises:
            ConfigError: the address cannot be used, or the extra `prometheus` is not installed.
        """
        host, port = self._config.metrics_host, self._config.metrics_port
        if port is None:
            return
        try:
            self._open = PrometheusPort(host, port, self._metrics)
        except OSError as error:
            raise ConfigError(
                f"Metrics cannot be served at {host}:{port}: {error.strerror or error}. Choose "
                "another metrics_port (0 for any free port), or an address of this host."
            ) from error
        logger.info("serving metrics for Prometheus at http://%s:%d/metrics", host, self._open.port)

    def close(self) -> None:
        opened, self._open = self._open, None
        if opened is not None:
            opened.close()
