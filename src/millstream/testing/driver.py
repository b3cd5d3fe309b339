"""Runs a topology in the test's own process: no broker, no Spark, time moves when told to."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from millstream.clock import ManualClock
from millstream.config import StreamsConfig
from millstream.config_fields import did_you_mean
from millstream.errors import IllegalStateError, StreamsError, UnknownStateStoreError
from millstream.operators.emit_interval import OUTER_JOIN_INTERVAL, WINDOW_CLOSE_INTERVAL
from millstream.processor.metrics import MetricName
from millstream.record import Headers, TaskId, TopicPartition
from millstream.runtime.check import check_building
from millstream.runtime.ownership.global_stores import GlobalStores
from millstream.runtime.task.build_task import TaskParts, TaskServices
from millstream.runtime.task.engine_task import task_metrics
from millstream.runtime.task.node_context import Dropped
from millstream.serdes import Serde
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.directories.directory import StateDirectory
from millstream.testing.driver_topics import (
    Captured,
    CapturingCollector,
    RawColumns,
    TestInputTopic,
    TestOutputTopic,
)
from millstream.testing.driver_views import as_one_subtopology, topology_metadata
from millstream.topology.arguments import checked_serdes
from millstream.topology.physical.topology import Topology

K = TypeVar("K")
V = TypeVar("V")

_TASK = TaskId(0, 0)


class TopologyTestDriver:
    """A topology as one task, fed record by record (Kafka Streams' `TopologyTestDriver`).

    Every topic has one partition. After each record that the task takes, the driver commits: caches
    are flushed, and what was written to a topic that the topology reads itself, such as a
    repartition topic, is queued there. A call returns when nothing is left to do.

    A call on which the topology fails raises the error; after that the driver can only be closed.

    Args:
        topology: what to run.
        config: settings; by default those of an application "topology-test-driver". State is kept
            in a temporary directory, whatever `state_dir` says.
        initial_wall_clock_ms: where the wall clock stands, in milliseconds since the epoch; by
            default now. It moves by `advance_wall_clock_time` alone.

    Raises:
        StreamsError: the topology or the settings are not sound.

    Example:
        >>> builder = StreamsBuilder()
        >>> words = builder.stream("in", key=STRING, value=STRING)
        >>> words.map_values(str.upper).to("out", key=STRING, value=STRING)
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("in", key=STRING, value=STRING).pipe_input("k", "hi")
        ...     driver.create_output_topic("out", key=STRING, value=STRING).read_value()
        'HI'
    """

    __test__ = False

    def __init__(
        self,
        topology: Topology,
        config: StreamsConfig | None = None,
        *,
        initial_wall_clock_ms: int | None = None,
    ) -> None:
        if config is None:
            config = StreamsConfig(
                application_id="topology-test-driver", bootstrap_servers="not-used:9092"
            )
        check_building(topology, config)
        self._topology = topology
        self._config = _searching_always(config)
        now_ms = time.time_ns() // 1_000_000
        self._clock = ManualClock(
            now_ms if initial_wall_clock_ms is None else initial_wall_clock_ms
        )
        self._collector = CapturingCollector()
        self._outputs: dict[str, deque[Captured]] = defaultdict(deque)
        self._offsets: dict[str, int] = defaultdict(int)
        self._closed = False
        self._failure: StreamsError | None = None
        whole = as_one_subtopology(topology)
        self._sources = {
            whole.decorate(topic, self._config.application_id) for topic in whole.source_topics
        }
        self._patterns = whole.source_patterns
        self._matched: set[str] = set()
        self._folder = tempfile.mkdtemp(prefix="millstream-test-driver-")
        drops = Dropped(_TASK, self._clock)
        self._global = GlobalStores(
            topology.global_stores.values(),
            self._config,
            self._clock,
            Path(self._folder) / self._config.application_id / "global",
            drops,
        )
        services = TaskServices(
            config=self._config,
            clock=self._clock,
            collector=self._collector,
            changelog_writer=self._collector.changelog_writer,
            directory=StateDirectory(self._folder, self._config.application_id),
            budget=CacheBudget(self._config.statestore_cache_max_bytes),
            order_across_topics=True,
            global_stores=self._global,
        )
        try:
            self._global.open()
            partitions = frozenset(TopicPartition(topic, 0) for topic in self._sources)
            self._parts = TaskParts(whole, _TASK, partitions, services, drops)
            # What a test writes to a store by itself belongs to no record and has the time 0:
            # follows Kafka Streams.
            self._parts.record.timestamp = 0
            self._task = self._parts.task
            self._task.open_stores()
            self._guard(lambda: self._task.start({}))
        except BaseException:
            self._global.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def __enter__(self) -> TopologyTestDriver:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- topics ----------------------------------------------------------------------------------

    def create_input_topic(
        self,
        topic: str,
        *,
        key: Serde[K],
        value: Serde[V],
        start_ms: int | None = None,
        auto_advance: timedelta | None = None,
    ) -> TestInputTopic[K, V]:
        """A way to feed a topic that the topology reads.

        Several for one topic have clocks of their own.

        Args:
            topic: its name.
            key: turns keys into bytes.
            value: turns values into bytes.
            start_ms: the timestamp of the first record piped without one; by default the wall
                clock's time.
            auto_advance: how much later each further one is; by default not at all.

        Example:
            >>> builder = StreamsBuilder()
            >>> builder.stream("in", key=STRING, value=LONG).to("out")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     numbers = driver.create_input_topic(
            ...         "in", key=STRING, value=LONG, start_ms=0, auto_advance=timedelta(seconds=1)
            ...     )
            ...     numbers.pipe_values([7, 8, 9])
            ...     out = driver.create_output_topic("out", key=STRING, value=LONG)
            ...     [record.timestamp for record in out.read_records()]
            [0, 1000, 2000]
        """
        checked_serdes("create_input_topic", key=key, value=value)
        start = self._clock.now_ms() if start_ms is None else start_ms
        return TestInputTopic(self._pipe, topic, key, value, start, auto_advance or timedelta(0))

    def create_output_topic(
        self, topic: str, *, key: Serde[K], value: Serde[V]
    ) -> TestOutputTopic[K, V]:
        """A way to read a topic that the topology writes, each record once.

        Internal topics can be read under their full names, with the application id. Several for
        one topic share its records.

        Args:
            topic: its name.
            key: reads keys.
            value: reads values.

        Example:
            >>> builder = StreamsBuilder()
            >>> clicks = builder.stream("clicks", key=STRING, value=STRING)
            >>> clicks.group_by_key().count(store="counts").to_stream().to("out")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     topic = driver.create_input_topic("clicks", key=STRING, value=STRING)
            ...     topic.pipe_input("ann", "/")
            ...     driver.create_output_topic("out", key=STRING, value=LONG).read_key_value()
            ('ann', 1)
        """
        checked_serdes("create_output_topic", key=key, value=value)
        return TestOutputTopic(topic, key, value, self._outputs)

    def produced_topic_names(self) -> set[str]:
        """The topics that were written so far, internal ones included.

        Example:
            >>> builder = StreamsBuilder()
            >>> clicks = builder.stream("clicks", key=STRING, value=STRING)
            >>> clicks.group_by_key().count(store="counts").to_stream().to("out")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     topic = driver.create_input_topic("clicks", key=STRING, value=STRING)
            ...     topic.pipe_input("ann", "/")
            ...     sorted(driver.produced_topic_names())
            ['out', 'topology-test-driver-counts-changelog']
        """
        return set(self._outputs)

    # --- time ------------------------------------------------------------------------------------

    def advance_wall_clock_time(self, step: timedelta) -> None:
        """Move the wall clock forward, and do what waited for that.

        Args:
            step: how far; not negative.

        Raises:
            ValueError: `step` is negative.
            StreamsError: the topology failed.

        Example:
            >>> class Tick(Processor):
            ...     def init(self, context):
            ...         super().init(context)
            ...         wall_clock = PunctuationType.WALL_CLOCK_TIME
            ...         context.schedule(timedelta(minutes=1), wall_clock, print)
            >>> builder = StreamsBuilder()
            >>> _ = builder.stream("in", key=STRING, value=STRING).process(Tick)
            >>> with TopologyTestDriver(builder.build(), initial_wall_clock_ms=0) as driver:
            ...     driver.advance_wall_clock_time(timedelta(seconds=59))
            ...     driver.advance_wall_clock_time(timedelta(seconds=1))
            60000
        """
        self._check_usable()
        self._clock.advance(step // timedelta(milliseconds=1))
        self._work(punctuate=True)

    # --- state and views -------------------------------------------------------------------------

    def get_state_store(self, name: str) -> Any:
        """The store of that name, to read or to prepare.

        Any kind, global ones included. What a test puts belongs to no record.

        Raises:
            UnknownStateStoreError: there is none of that name.

        Example:
            >>> builder = StreamsBuilder()
            >>> clicks = builder.stream("clicks", key=STRING, value=STRING)
            >>> clicks.group_by_key().count(store="counts").to_stream().to("out")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     topic = driver.create_input_topic("clicks", key=STRING, value=STRING)
            ...     topic.pipe_input("ann", "/")
            ...     driver.get_state_store("counts").get("ann").value
            1
        """
        if name in self._global.names:
            return self._global.store(name)
        if name in self._task.stores.names:
            return self._task.stores.store(name)
        names = sorted((*self._task.stores.names, *self._global.names))
        raise UnknownStateStoreError(
            f"The topology has no store '{name}', but {', '.join(names) or 'none at all'}."
            f"{did_you_mean(name, names)} A table is kept in a store where store=... names one."
        )

    def get_all_state_stores(self) -> Mapping[str, Any]:
        """Every store by its name, global ones included.

        Example:
            >>> builder = StreamsBuilder()
            >>> clicks = builder.stream("clicks", key=STRING, value=STRING)
            >>> clicks.group_by_key().count(store="counts").to_stream().to("out")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     list(driver.get_all_state_stores())
            ['counts']
        """
        stores = {name: self._task.stores.store(name) for name in self._task.stores.names}
        return stores | {name: self._global.store(name) for name in self._global.names}

    def metrics(self) -> Mapping[MetricName, float]:
        """What was counted so far, by Kafka Streams' names.

        `dropped-records-total` counts the records that were left out on purpose: without a key
        where one is needed, not readable, or failing where the handler says to go on.

        Example:
            >>> builder = StreamsBuilder()
            >>> clicks = builder.stream("clicks", key=STRING, value=STRING)
            >>> clicks.group_by_key().count(store="counts").to_stream().to("out")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     topic = driver.create_input_topic("clicks", key=STRING, value=STRING)
            ...     topic.pipe_value("no key")
            ...     {name.name: value for name, value in driver.metrics().items() if value}
            {'dropped-records-total': 1.0}
        """
        return task_metrics(_TASK, self._parts.drops.total)

    def topology_metadata(self) -> dict[str, Any]:
        """The topics of the topology under their real names, as an application would use them.

        Returns:
            `topics`: each internal topic with its `kind` (repartition or changelog), its `config`,
            and its `partitions` where the topology fixes them. `subtopologies`: `id`, `sources`,
            `sinks` and `changelogs` of each one that reads something. `copartition`: the groups of
            topics that must have equally many partitions.

        Example:
            >>> builder = StreamsBuilder()
            >>> clicks = builder.stream("clicks", key=STRING, value=STRING)
            >>> clicks.group_by_key().count(store="counts").to_stream().to("out")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     driver.topology_metadata()["subtopologies"][0]["changelogs"]
            ['topology-test-driver-counts-changelog']
        """
        return topology_metadata(self._topology, self._config, self._matched)

    def close(self) -> None:
        """Commit what is left, close the task and remove its state.

        What a last flush of caches writes can still be read. Does nothing the second time.

        Raises:
            StreamsError: something that was not committed yet fails. Where the topology failed
                before, nothing is committed any more.

        Example:
            >>> builder = StreamsBuilder()
            >>> builder.stream("in", key=STRING, value=LONG).to("out")
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("in", key=STRING, value=LONG).pipe_input("a", 1)
            >>> driver.close()
            >>> driver.create_output_topic("out", key=STRING, value=LONG).read_value()
            1
        """
        if self._closed:
            return
        try:
            if self._failure is None:
                self._work(commit=True)
        finally:
            self._closed = True
            try:
                self._task.close(clean=self._failure is None)
            finally:
                self._global.close()
                shutil.rmtree(self._folder, ignore_errors=True)

    # --- inside ----------------------------------------------------------------------------------

    def _pipe(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        self._check_usable()
        if not self._reads(topic) and topic not in self._global.topics:
            read = [
                *sorted(self._sources | self._global.topics),
                *(f"{p.pattern} (pattern)" for p in self._patterns),
            ]
            raise ValueError(
                f"Unknown topic: the topology does not read '{topic}'. It reads: "
                f"{', '.join(read) or 'nothing'}."
            )
        record = Captured(topic, key, value, timestamp, headers)
        self._guard(lambda: self._deliver(record))
        self._work()

    def _check_usable(self) -> None:
        if self._closed:
            raise IllegalStateError("The test driver is closed. Make a new one.")
        if self._failure is not None:
            raise IllegalStateError(
                f"The topology failed before ({type(self._failure).__name__}: {self._failure}), "
                "so its task is given up. Close this test driver and make a new one."
            ) from self._failure

    def _work(self, *, commit: bool = False, punctuate: bool = False) -> None:
        """Work until nothing is left to do, after punctuations by wall clock if it has moved."""
        self._guard(lambda: self._work_or_fail(commit or punctuate, punctuate))

    def _work_or_fail(self, commit: bool, punctuate: bool) -> None:
        task = self._task
        if punctuate:
            task.punctuate_wall_clock_time()
        if commit:
            self._commit()
        while self._parts.is_ready():
            task.step(1)
            self._commit()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            self._failure = self._task.fail(error)
            if self._failure is error:
                raise
            raise self._failure from error

    def _commit(self) -> None:
        task = self._task
        task.prepare_commit()
        task.post_commit(task.offsets_to_commit(), self._collector.acked_offsets())
        for record in self._collector.take():
            self._outputs[record.topic].append(record)
            self._deliver(record)

    def _reads(self, topic: str) -> bool:
        if topic in self._sources or topic in self._matched:
            return True
        if any(pattern.fullmatch(topic) for pattern in self._patterns):
            self._parts.read_also(TopicPartition(topic, 0))
            self._matched.add(topic)
            return True
        return False

    def _deliver(self, record: Captured) -> None:
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


def _searching_always(config: StreamsConfig) -> StreamsConfig:
    """The config with no pause between searches for windows that have ended, unless it says so.

    As in Kafka Streams, so that a test need not move the wall clock to see a result.
    """
    always = {WINDOW_CLOSE_INTERVAL: 0, OUTER_JOIN_INTERVAL: 0}
    return config.replace(extra={**always, **config.extra})
