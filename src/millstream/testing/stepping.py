"""The driver on which `TopologyTestDriver` is based.

It runs a topology as one task, step by step.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from millstream.clock import Deadline, ManualClock, SystemClock
from millstream.config.fields import did_you_mean
from millstream.config.streams_config import StreamsConfig
from millstream.errors import IllegalStateError, StreamsError, UnknownStateStoreError
from millstream.metrics.values import MetricName
from millstream.operators.result_records import OUTER_JOIN_INTERVAL, WINDOW_CLOSE_INTERVAL
from millstream.record import Headers, TaskId, TopicPartition
from millstream.runtime.start.topology_checks import check_build_settings
from millstream.runtime.task.build_task import TaskBuilder, TaskServices
from millstream.runtime.task.commit_barrier import concurrent_nodes
from millstream.runtime.task.error_handling.dead_letters import DeadLetterCounts
from millstream.runtime.task.executor import Executor
from millstream.runtime.task.node_context import DroppedRecords
from millstream.runtime.task.task_meters import TaskMeters, recording_of
from millstream.runtime.task.task_processing import ExecutorFactory
from millstream.runtime.task_management.global_stores import GlobalStores
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.state_directory import StateDirectory
from millstream.state.storage.rocksdb import rocksdb_storages
from millstream.testing.driver_topics import CapturedRecord, CapturingCollector, RawColumns
from millstream.testing.topology_metadata import as_one_subtopology, topology_metadata
from millstream.topology.physical.internal_topic_configs import decorated
from millstream.topology.physical.topology import Topology

_TASK = TaskId(0, 0)
_REAL_TIME: Final = SystemClock()
#: How long to wait for concurrent operators, in real time, while no record finishes.
_STUCK_TIMEOUT_MS: Final = 30_000
#: The timeout of a single call of `drain`, after which the progress is checked.
_DRAIN_TIMEOUT_MS: Final = 1_000


class SteppingDriver:
    """Runs a topology in the test process, step by step.

    All sub-topologies form one task, and every topic has one partition. `feed` queues records,
    `step` processes a batch, and `commit` commits. `deliver`, which a commit calls, queues the
    records that the task has written to topics that it reads itself. Between these calls, the
    pending state of the task can be inspected. `TopologyTestDriver` combines these calls for users:
    it commits after each record until all records have been processed.

    If the topology fails, the call raises the error; after that, the driver can only be closed. The
    driver is a context manager. Its state is in a temporary directory, regardless of `state_dir`.

    Args:
        order_across_topics: whether outputs are written in depth-first order across topics. Tasks
            of an application only guarantee this order within each topic.

    Raises:
        StreamsError: the topology or the settings are invalid.

    Example:
        >>> builder = StreamsBuilder()
        >>> clicks = builder.stream("in", key=STRING, value=STRING)
        >>> counts = clicks.group_by_key().count(store="counts")
        >>> config = StreamsConfig(application_id="app", bootstrap_servers="not-used:9092")
        >>> with SteppingDriver(builder.build(), config, ManualClock()) as driver:
        ...     for key in (b"ann", b"bob", b"ann"):
        ...         driver.feed("in", key, b"click", 0)
        ...     driver.step(limit=2)
        ...     driver.get_state_store("counts").get("ann").value
        1
    """

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig,
        clock: ManualClock,
        *,
        order_across_topics: bool = True,
        make_executor: ExecutorFactory = Executor,
    ) -> None:
        check_build_settings(topology, config)
        self._topology = topology
        self._config = _without_emit_interval(config)
        self._clock = clock
        self._collector = CapturingCollector(_partition_counts(topology, config.application_id))
        #: For each topic, the written records that have not been read yet.
        self.outputs: dict[str, deque[CapturedRecord]] = defaultdict(deque)
        self._offsets: dict[str, int] = defaultdict(int)
        #: Whether the driver is closed.
        self.closed = False
        self._failure: BaseException | None = None
        self._subtopology = subtopology = as_one_subtopology(topology)
        self._sources = {
            subtopology.decorate(topic, self._config.application_id)
            for topic in subtopology.source_topics
        }
        self._patterns = subtopology.source_patterns
        self._matched: set[str] = set()
        self._folder = tempfile.mkdtemp(prefix="millstream-test-driver-")
        meters = TaskMeters(_TASK, clock, recording_of(self._config))
        drops = DroppedRecords(_TASK, clock, meters.dropped)
        storages = rocksdb_storages(self._config)
        self._global = GlobalStores(
            topology.global_stores.values(),
            self._config,
            clock,
            Path(self._folder) / self._config.application_id / "global",
            drops,
            storages,
        )
        services = TaskServices(
            config=self._config,
            clock=clock,
            collector=self._collector,
            changelog_writer=self._collector.changelog_writer,
            directory=StateDirectory(self._folder, self._config.application_id),
            budget=CacheBudget(self._config.statestore_cache_max_bytes, self._config.speedups),
            storages=storages,
            order_across_topics=order_across_topics,
            global_stores=self._global,
            make_executor=make_executor,
            dead_letters=DeadLetterCounts(meters.scope),
        )
        try:
            self._global.open()
            partitions = frozenset(TopicPartition(topic, 0) for topic in self._sources)
            self._parts = TaskBuilder(subtopology, _TASK, partitions, services, drops, meters)
            # As in Kafka Streams, a test's direct writes to stores have no current record and the
            # timestamp 0.
            self._parts.record.timestamp = 0
            self._task = self._parts.task
            self._task.open_stores()
            with self._recording_failures():
                self._task.start({})
        except BaseException:
            self._global.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def __enter__(self) -> SteppingDriver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- steps -----------------------------------------------------------------------------------

    def feed(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers = (),
    ) -> None:
        """Queue a record; a record of a global topic is applied to its store immediately.

        Raises:
            ValueError: the topology does not read this topic.
            IllegalStateError: the driver is closed, or the topology has failed.
        """
        self.check_usable()
        if not self._reads(topic) and topic not in self._global.topics:
            read = [
                *sorted(self._sources | self._global.topics),
                *(f"{p.pattern} (pattern)" for p in self._patterns),
            ]
            raise ValueError(
                f"Unknown topic: the topology does not read '{topic}'. It reads: "
                f"{', '.join(read) or 'nothing'}."
            )
        with self._recording_failures():
            self._queue(CapturedRecord(topic, key, value, timestamp, headers))

    @property
    def is_ready(self) -> bool:
        """Whether the task can process its next record; raises deserialization errors."""
        with self._recording_failures():
            return self._parts.is_ready()

    def step(self, limit: int = 1) -> None:
        """Process the next batch of at most `limit` records."""
        with self._recording_failures():
            self._task.step(limit)
            self._wait_until(lambda: self._task.drain(Deadline(_REAL_TIME, _DRAIN_TIMEOUT_MS)))

    def punctuate(self) -> None:
        """Run the wall-clock punctuations that are due."""
        with self._recording_failures():
            self._task.punctuate_wall_clock_time()

    def commit(self) -> None:
        """Flush caches, write stores, record offsets, and call `deliver`."""
        with self._recording_failures():
            self._wait_until(self._may_commit)
            self._task.prepare_commit()
            self._task.on_commit_started()
            self._task.post_commit(self._task.offsets_to_commit(), self._collector.acked_offsets())
        self.deliver()

    def deliver(self) -> None:
        """Deliver the written records to the outputs and to topics that the task reads."""
        with self._recording_failures():
            for record in self.delivery_order(self._collector.take()):
                self.outputs[record.topic].append(record)
                self._queue(record)

    def delivery_order(self, records: list[CapturedRecord]) -> Sequence[CapturedRecord]:
        """Return the written records in the order of delivery.

        By default, this is the order of writing. The order determines which of several topics gets
        its first record first, and therefore which record is processed first if timestamps are
        equal.
        """
        return records

    def close(self) -> None:
        """Close the task without a commit, and remove its state.

        A second call does nothing.
        """
        if self.closed:
            return
        self.closed = True
        try:
            self._task.close(clean=self._failure is None)
        finally:
            self._global.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    # --- views -----------------------------------------------------------------------------------

    @property
    def failed(self) -> bool:
        """Whether the topology has failed."""
        return self._failure is not None

    def check_usable(self) -> None:
        """Raise `IllegalStateError` if the driver is closed or the topology has failed."""
        if self.closed:
            raise IllegalStateError("The test driver is closed. Create a new one.")
        if self._failure is not None:
            raise IllegalStateError(
                f"The topology has failed ({type(self._failure).__name__}: {self._failure}), so "
                "its task cannot continue. Close this test driver and create a new one."
            ) from self._failure

    def dirty_stores(self) -> list[str]:
        """Return the stores with unflushed changes in their caches."""
        return [name for name, cache in self._task.stores.caches().items() if cache.dirty]

    def get_state_store(self, name: str) -> Any:
        """Return a store or global store.

        Raises `UnknownStateStoreError` if there is none with this name.
        """
        stores = self.get_all_state_stores()
        if name in stores:
            return stores[name]
        raise UnknownStateStoreError(
            f"The topology has no store '{name}'. Its stores: "
            f"{', '.join(sorted(stores)) or 'none'}.{did_you_mean(name, sorted(stores))} To "
            "materialize a table, pass store=<name>."
        )

    def get_all_state_stores(self) -> Mapping[str, Any]:
        stores = {name: self._task.stores.store(name) for name in self._task.stores.names}
        return stores | {name: self._global.store(name) for name in self._global.names}

    def metrics(self) -> Mapping[MetricName, float]:
        return self._parts.meters.user_metrics

    def topology_metadata(self) -> dict[str, Any]:
        return topology_metadata(self._topology, self._config, self._matched)

    # --- internals -------------------------------------------------------------------------------

    @contextmanager
    def _recording_failures(self) -> Iterator[None]:
        """Record an error of the topology, and raise it with its location in the task."""
        try:
            yield
        except Exception as error:
            self._failure = failure = self._task.with_location(error)
            if failure is error:
                raise
            raise failure from error
        except BaseException as error:
            # Ctrl-C or sys.exit() in user code: a record may be partially processed.
            self._failure = error
            raise

    def _may_commit(self) -> bool:
        """Return whether a commit is possible.

        If not, wait for completions before returning.
        """
        if self._task.can_commit():
            return True
        self._task.drain(Deadline(_REAL_TIME, _DRAIN_TIMEOUT_MS))
        return False

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, with a timeout on the real clock.

        Raises:
            StreamsError: records are in flight, and none has finished within the timeout.
        """
        remaining, deadline = self._task.in_flight, Deadline(_REAL_TIME, _STUCK_TIMEOUT_MS)
        while not condition():
            if self._task.in_flight != remaining:
                remaining, deadline = self._task.in_flight, Deadline(_REAL_TIME, _STUCK_TIMEOUT_MS)
            elif deadline.passed:
                raise self._stuck_error()

    def _stuck_error(self) -> StreamsError:
        """Return the error for a call that does not finish.

        The error names the first record in flight.
        """
        first = self._task.processing.runner_context.in_flight_records.first
        nodes = concurrent_nodes(self._subtopology.nodes)
        place, offset = first or (None, None)
        return StreamsError(
            f"The test driver has waited {_STUCK_TIMEOUT_MS // 1_000} s for {self._task.in_flight} "
            f"record(s) in flight in {', '.join(nodes)}, and no call has finished. Check what the "
            "function is waiting for. To limit the time of an async def function, use "
            "map_async(timeout=...).",
            topic=place and place.topic,
            partition=place and place.partition,
            offset=offset,
            node=nodes[0] if len(nodes) == 1 else None,
        )

    def _reads(self, topic: str) -> bool:
        if topic in self._sources or topic in self._matched:
            return True
        if any(pattern.fullmatch(topic) for pattern in self._patterns):
            self._parts.add_partition(TopicPartition(topic, 0))
            self._matched.add(topic)
            return True
        return False

    def _queue(self, record: CapturedRecord) -> None:
        """Add a record to the task's queue, or apply it to a global store.

        Records of topics that are not read are ignored.
        """
        place = TopicPartition(record.topic, 0)
        is_global = record.topic in self._global.topics
        if not is_global and not self._reads(record.topic):
            return
        offset = self._offsets[record.topic]
        self._offsets[record.topic] = offset + 1
        if is_global:
            self._global.update(place, RawColumns.of(record, offset))
        else:
            self._task.add_records(place, RawColumns.of(record, offset))


def _partition_counts(topology: Topology, application_id: str) -> dict[str, int]:
    """Return the partition counts that the program sets for internal topics."""
    return {
        decorated(name, application_id): topic.partitions
        for name, topic in topology.internal_topics.items()
        if topic.partitions is not None
    }


def _without_emit_interval(config: StreamsConfig) -> StreamsConfig:
    """Remove the minimum interval between searches for closed windows.

    As in Kafka Streams' test driver, tests then get results without advancing the wall clock.
    Intervals that are set in the config are not changed.
    """
    always = {WINDOW_CLOSE_INTERVAL: 0, OUTER_JOIN_INTERVAL: 0}
    return config.replace(extra={**always, **config.extra})
