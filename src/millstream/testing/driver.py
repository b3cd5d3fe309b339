"""Runs a topology in the test's own process: no broker, no Spark, time moves when told to."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.clock import ManualClock
from millstream.config import StreamsConfig
from millstream.metrics.names import MetricName
from millstream.record import Headers
from millstream.serdes import Serde
from millstream.testing.driver_dataframes import run_stage
from millstream.testing.driver_topics import TestInputTopic, TestOutputTopic
from millstream.testing.stepping import SteppingDriver
from millstream.topology.arguments import checked_serdes
from millstream.topology.naming import checked_name
from millstream.topology.physical.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

K = TypeVar("K")
V = TypeVar("V")


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
        now_ms = time.time_ns() // 1_000_000
        self._clock = ManualClock(
            now_ms if initial_wall_clock_ms is None else initial_wall_clock_ms
        )
        self._topology = topology
        self._config = config
        self._steps = SteppingDriver(topology, config, self._clock)

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
        checked_name(topic)
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
        checked_name(topic)
        checked_serdes("create_output_topic", key=key, value=value)
        return TestOutputTopic(topic, key, value, self._steps.outputs)

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
        return set(self._steps.outputs)

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
        self._steps.check_usable()
        self._clock.advance(step // timedelta(milliseconds=1))
        self._steps.punctuate()
        self._commit_and_work()

    def run_dataframes(self, spark: SparkSession) -> int:
        """Hand what waits for DataFrame functions to them, each as one batch, and go on with what
        they give.

        A test driver calls them only here: a record that was piped waits in the function's input
        topic until then. They get a DataFrame that is no stream; a batch begins with nothing kept
        from the one before.

        Args:
            spark: a session, for example `SparkSession.builder.master("local[1]").getOrCreate()`.

        Returns:
            How many records were waiting, for all functions together.

        Raises:
            DataFrameError: a function fails, or gives no records.

        Example:
            >>> builder = StreamsBuilder()
            >>> words = builder.stream("in", key=STRING, value=STRING)
            >>> loud = words.transform_dataframe(
            ...     lambda rows: rows.selectExpr("key", "upper(value) AS value"), name="loud"
            ... )
            >>> loud.to("out", key=STRING, value=STRING)
            >>> driver = TopologyTestDriver(builder.build())
            >>> driver.create_input_topic("in", key=STRING, value=STRING).pipe_value("hi")
            >>> driver.run_dataframes(spark)  # doctest: +SKIP
            1
            >>> out = driver.create_output_topic("out", key=STRING, value=STRING)
            >>> out.read_value()  # doctest: +SKIP
            'HI'
            >>> driver.close()
        """
        self._steps.check_usable()
        return sum(
            run_stage(
                stage, self._config, spark, self._steps.outputs, self._pipe, self._clock.now_ms()
            )
            for stage in self._topology.dataframe_stages.values()
        )

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
        return self._steps.get_state_store(name)

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
        return self._steps.get_all_state_stores()

    def metrics(self) -> Mapping[MetricName, float]:
        """What is counted and measured, by Kafka Streams' names; texts are left out.

        `dropped-records-total` counts the records that were left out on purpose: without a key
        where one is needed, not readable, or failing where the handler says to go on.

        Example:
            >>> builder = StreamsBuilder()
            >>> clicks = builder.stream("clicks", key=STRING, value=STRING)
            >>> clicks.group_by_key().count(store="counts").to_stream().to("out")
            >>> with TopologyTestDriver(builder.build()) as driver:
            ...     topic = driver.create_input_topic("clicks", key=STRING, value=STRING)
            ...     topic.pipe_value("no key")
            ...     [v for n, v in driver.metrics().items() if n.name == "dropped-records-total"]
            [1.0]
        """
        return self._steps.metrics()

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
        return self._steps.topology_metadata()

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
        if self._steps.closed:
            return
        try:
            if not self._steps.failed:
                self._commit_and_work()
        finally:
            self._steps.close()

    def _pipe(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        timestamp: int,
        headers: Headers,
    ) -> None:
        self._steps.feed(topic, key, value, timestamp, headers)
        self._work()

    def _commit_and_work(self) -> None:
        self._steps.commit()
        self._work()

    def _work(self) -> None:
        while self._steps.is_ready:
            self._steps.step()
            self._steps.commit()
