"""A topology as one task that does what it is told, step by step: `TopologyTestDriver` is on it."""

from __future__ import annotations

import shutil
import tempfile
from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from millstream.clock import Deadline, ManualClock, SystemClock
from millstream.config import StreamsConfig
from millstream.config_fields import did_you_mean
from millstream.errors import IllegalStateError, StreamsError, UnknownStateStoreError
from millstream.metrics.names import MetricName
from millstream.operators.emit_interval import OUTER_JOIN_INTERVAL, WINDOW_CLOSE_INTERVAL
from millstream.record import Headers, TaskId, TopicPartition
from millstream.runtime.check import check_building
from millstream.runtime.metrics_settings import recording_of
from millstream.runtime.ownership.global_stores import GlobalStores
from millstream.runtime.rocksdb_tuning import rocksdb_storages
from millstream.runtime.task.build_task import TaskParts, TaskServices
from millstream.runtime.task.executor import Executor
from millstream.runtime.task.landing import apart_nodes
from millstream.runtime.task.node_context import Dropped
from millstream.runtime.task.processing import ExecutorFactory
from millstream.runtime.task.task_meters import TaskMeters
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.state_directory import StateDirectory
from millstream.testing.driver_topics import Captured, CapturingCollector, RawColumns
from millstream.testing.driver_views import as_one_subtopology, topology_metadata
from millstream.topology.physical.internal_topics import decorated
from millstream.topology.physical.topology import Topology

_TASK = TaskId(0, 0)
_REAL_TIME: Final = SystemClock()
#: How long is waited for what goes on beside the task, if nothing of it ends.
_LANDING_MS: Final = 30_000
#: How long one wait for it is.
_WAIT_MS: Final = 1_000


class SteppingDriver:
    """Runs a topology in the test's own process, and does nothing that it is not told to.

    All sub-topologies are one task, every topic has one partition. Records are queued (`feed`),
    taken in batches (`step`), committed (`commit`); what the task writes to a topic that it reads
    itself is queued when it is looked at (`deliver`), which a commit does. In between, what the
    task holds back can be seen. `TopologyTestDriver` is the pace that users want: a commit after
    each record, until nothing is left to do.

    A call on which the topology fails raises the error; after that it can only be closed. A context
    manager.

    Args:
        topology: what to run.
        config: settings. State is kept in a temporary directory, whatever `state_dir` says.
        clock: the wall clock, which moves when the test moves it.
        order_across_topics: whether outputs are written in depth-first order even among different
            topics. Tasks of an application promise that for each topic alone.
        make_executor: what runs the nodes of the task.

    Raises:
        StreamsError: the topology or the settings are not sound.

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
        check_building(topology, config)
        self._topology = topology
        self._config = _searching_always(config)
        self._clock = clock
        self._collector = CapturingCollector(_partition_counts(topology, config.application_id))
        self._outputs: dict[str, deque[Captured]] = defaultdict(deque)
        self._offsets: dict[str, int] = defaultdict(int)
        self._closed = False
        self._failure: BaseException | None = None
        self._whole = whole = as_one_subtopology(topology)
        self._sources = {
            whole.decorate(topic, self._config.application_id) for topic in whole.source_topics
        }
        self._patterns = whole.source_patterns
        self._matched: set[str] = set()
        self._folder = tempfile.mkdtemp(prefix="millstream-test-driver-")
        meters = TaskMeters(_TASK, clock, recording_of(self._config))
        drops = Dropped(_TASK, clock, meters.dropped)
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
        )
        try:
            self._global.open()
            partitions = frozenset(TopicPartition(topic, 0) for topic in self._sources)
            self._parts = TaskParts(whole, _TASK, partitions, services, drops, meters)
            # What a test writes to a store by itself belongs to no record and has the time 0:
            # follows Kafka Streams.
            self._parts.record.timestamp = 0
            self._task = self._parts.task
            self._task.open_stores()
            with self._failing():
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
        """Queue a record; one of a global topic is in its store at once.

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
        with self._failing():
            self._queue(Captured(topic, key, value, timestamp, headers))

    @property
    def is_ready(self) -> bool:
        """Whether the task may take its next record; a record that nobody can read is told here."""
        with self._failing():
            return self._parts.is_ready()

    def step(self, limit: int = 1) -> None:
        """Process the next batch, of at most `limit` records."""
        with self._failing():
            self._task.step(limit)
            self._land(lambda: self._task.drain(Deadline(_REAL_TIME, _WAIT_MS)))

    def punctuate(self) -> None:
        """Call whom the processors want called at this time of the wall clock."""
        with self._failing():
            self._task.punctuate_wall_clock_time()

    def commit(self) -> None:
        """Flush caches, write stores and remember offsets; then `deliver`."""
        with self._failing():
            self._land(self._may_commit)
            self._task.prepare_commit()
            self._task.commit_begun()
            self._task.post_commit(self._task.offsets_to_commit(), self._collector.acked_offsets())
        self.deliver()

    def deliver(self) -> None:
        """Take what the task has written to those who read it, of whom it may be one itself."""
        with self._failing():
            for record in self.in_order_of_delivery(self._collector.take()):
                self._outputs[record.topic].append(record)
                self._queue(record)

    def in_order_of_delivery(self, records: list[Captured]) -> Sequence[Captured]:
        """What the task has written, as it arrives at topics: by default in the order of writing.

        It decides which of several topics gets its first record earlier, and so what is read first
        where timestamps are equal.
        """
        return records

    def close(self) -> None:
        """Close the task without a commit, and remove its state. Does nothing the second time."""
        if self._closed:
            return
        self._closed = True
        try:
            self._task.close(clean=self._failure is None)
        finally:
            self._global.close()
            shutil.rmtree(self._folder, ignore_errors=True)

    # --- views -----------------------------------------------------------------------------------

    @property
    def outputs(self) -> Mapping[str, deque[Captured]]:
        """What was written to each topic, internal ones included, and not taken from here yet."""
        return self._outputs

    @property
    def failed(self) -> bool:
        """Whether the topology has failed."""
        return self._failure is not None

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return self._closed

    def check_usable(self) -> None:
        """
        Raises:
            IllegalStateError: the driver is closed, or the topology has failed.
        """
        if self._closed:
            raise IllegalStateError("The test driver is closed. Make a new one.")
        if self._failure is not None:
            raise IllegalStateError(
                f"The topology failed before ({type(self._failure).__name__}: {self._failure}), "
                "so its task is given up. Close this test driver and make a new one."
            ) from self._failure

    def held_back(self) -> list[str]:
        """The stores whose caches hold changes that are neither written nor forwarded."""
        return [name for name, cache in self._task.stores.caches().items() if cache.dirty]

    def get_state_store(self, name: str) -> Any:
        """The store of that name, global ones included.

        Raises:
            UnknownStateStoreError: there is none of that name.
        """
        stores = self.get_all_state_stores()
        if name in stores:
            return stores[name]
        raise UnknownStateStoreError(
            f"The topology has no store '{name}', but {', '.join(sorted(stores)) or 'none at all'}."
            f"{did_you_mean(name, sorted(stores))} A table is kept in a store where store=... names"
            " one."
        )

    def get_all_state_stores(self) -> Mapping[str, Any]:
        """Every store by its name, global ones included."""
        stores = {name: self._task.stores.store(name) for name in self._task.stores.names}
        return stores | {name: self._global.store(name) for name in self._global.names}

    def metrics(self) -> Mapping[MetricName, float]:
        """What was counted so far, by Kafka Streams' names."""
        return self._parts.meters.view

    def topology_metadata(self) -> dict[str, Any]:
        """The topics of the topology under their real names; see `TopologyTestDriver`."""
        return topology_metadata(self._topology, self._config, self._matched)

    # --- inside ----------------------------------------------------------------------------------

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """Remembers what the topology fails with in here, and raises it as the task tells it."""
        try:
            yield
        except Exception as error:
            self._failure = failure = self._task.fail(error)
            if failure is error:
                raise
            raise failure from error
        except BaseException as error:
            # Ctrl-C or sys.exit() in user code: the task may have half-processed a record.
            self._failure = error
            raise

    def _may_commit(self) -> bool:
        """Whether nothing is in flight that matters; if something is, wait for it."""
        if self._task.may_commit():
            return True
        self._task.drain(Deadline(_REAL_TIME, _WAIT_MS))
        return False

    def _land(self, has_landed: Callable[[], bool]) -> None:
        """Try until nothing is in flight, in the time of the real clock.

        Raises:
            StreamsError: something is, and nothing has ended for long.
        """
        left, deadline = self._task.in_flight, Deadline(_REAL_TIME, _LANDING_MS)
        while not has_landed():
            if self._task.in_flight != left:
                left, deadline = self._task.in_flight, Deadline(_REAL_TIME, _LANDING_MS)
            elif deadline.passed:
                raise self._stuck()

    def _stuck(self) -> StreamsError:
        """The error that calls do not end: the first record in flight, and who has it."""
        first = self._task.processing.equipment.flights.first
        nodes = apart_nodes(self._whole.nodes)
        place, offset = first or (None, None)
        return StreamsError(
            f"The test driver has waited {_LANDING_MS // 1_000} s for {self._task.in_flight} "
            f"record(s) in flight in {', '.join(nodes)}, and no call has ended. Look what the "
            "function waits for; map_async(timeout=...) gives an async def function up.",
            topic=place and place.topic,
            partition=place and place.partition,
            offset=offset,
            node=nodes[0] if len(nodes) == 1 else None,
        )

    def _reads(self, topic: str) -> bool:
        if topic in self._sources or topic in self._matched:
            return True
        if any(pattern.fullmatch(topic) for pattern in self._patterns):
            self._parts.read_also(TopicPartition(topic, 0))
            self._matched.add(topic)
            return True
        return False

    def _queue(self, record: Captured) -> None:
        """Take a record to those who read its topic: the task, or a global store at once."""
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
    """The repartition topics whose number of partitions the program fixes."""
    return {
        decorated(name, application_id): topic.partitions
        for name, topic in topology.internal_topics.items()
        if topic.partitions is not None
    }


def _searching_always(config: StreamsConfig) -> StreamsConfig:
    """The config with no pause between searches for windows that have ended, unless it says so.

    As in Kafka Streams, so that a test need not move the wall clock to see a result.
    """
    always = {WINDOW_CLOSE_INTERVAL: 0, OUTER_JOIN_INTERVAL: 0}
    return config.replace(extra={**always, **config.extra})
