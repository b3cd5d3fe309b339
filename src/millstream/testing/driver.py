"""A driver that runs a topology in the test process, without a broker or Spark."""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from millstream.clock import ManualClock
from millstream.config.streams_config import StreamsConfig
from millstream.metrics.values import MetricName
from millstream.record import Headers
from millstream.serdes import Serde
from millstream.testing.driver_dataframes import run_stage
from millstream.testing.driver_topics import TestInputTopic, TestOutputTopic
from millstream.testing.stepping import SteppingDriver
from millstream.topology.argument_checks import check_serdes
from millstream.topology.naming import checked_name
from millstream.topology.physical.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

K = TypeVar("K")
V = TypeVar("V")


class TopologyTestDriver:
    """Runs a topology as one task, record by record.

    Kafka Streams' `TopologyTestDriver`. Every topic has one partition. The driver commits after
    each record: caches are flushed, and records that were written to a topic that the topology
    itself reads, such as a repartition topic, are queued for processing. A call returns when all
    records have been processed.

    If the topology fails, the call raises the error; after that, the driver can only be closed.

    Args:
        config: the settings; by default those of an application named "topology-test-driver".
            State is stored in a temporary directory, regardless of `state_dir`.
        initial_wall_clock_ms: the initial wall-clock time in milliseconds since the epoch; by
            default now. Only `advance_wall_clock_time` changes the time.

    Raises:
        StreamsError: the topology or the settings are invalid.

    The examples of the methods use the topology, `driver` and `clicks` of this example.

    Example:
        >>> builder = StreamsBuilder()
        >>> stream = builder.stream("clicks", key=STRING, value=STRING)
        >>> stream.group_by_key().count(store="counts").to_stream().to("out")
        >>> with TopologyTestDriver(builder.build(), initial_wall_clock_ms=0) as driver:
        ...     clicks = driver.create_input_topic("clicks", key=STRING, value=STRING)
        ...     clicks.pipe_input("ann", "/")
        ...     driver.create_output_topic("out", key=STRING, value=LONG).read_key_value()
        ('ann', 1)
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

    def __exit__(self, *_: object) -> None:
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
        """Create an object that writes to a topic of the topology.

        Several input topics with the same name have independent clocks.

        Args:
            start_ms: the timestamp of the first record that is piped without a timestamp; by
                default the wall-clock time.
            auto_advance: the time between two such records; by default 0.

        Example:
            >>> second = timedelta(seconds=1)
            >>> slow = driver.create_input_topic(
            ...     "clicks", key=STRING, value=STRING, start_ms=5, auto_advance=second
            ... )
            >>> slow.pipe_key_values([("ann", "/"), ("bob", "/")])
            >>> out = driver.create_output_topic("out", key=STRING, value=LONG)
            >>> [record.timestamp for record in out.read_records()]
            [5, 1005]
        """
        checked_name(topic)
        check_serdes("create_input_topic", key=key, value=value)
        start = self._clock.now_ms() if start_ms is None else start_ms
        return TestInputTopic(self._pipe, topic, key, value, start, auto_advance or timedelta(0))

    def create_output_topic(
        self, topic: str, *, key: Serde[K], value: Serde[V]
    ) -> TestOutputTopic[K, V]:
        """Create an object that reads from a topic of the topology, each record once.

        Internal topics can be read by their full names, with the application id. Several output
        topics with the same name share the records: only one of them reads each record.

        Example:
            >>> clicks.pipe_input("ann", "/")
            >>> driver.create_output_topic("out", key=STRING, value=LONG).read_key_value()
            ('ann', 1)
        """
        checked_name(topic)
        check_serdes("create_output_topic", key=key, value=value)
        return TestOutputTopic(topic, key, value, self._steps.outputs)

    def produced_topic_names(self) -> set[str]:
        """Return the topics that have been written to, including internal topics.

        Example:
            >>> clicks.pipe_input("ann", "/")
            >>> sorted(driver.produced_topic_names())
            ['out', 'topology-test-driver-counts-changelog']
        """
        return set(self._steps.outputs)

    # --- time ------------------------------------------------------------------------------------

    def advance_wall_clock_time(self, step: timedelta) -> None:
        """Advance the wall clock, and run the punctuations that are due.

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
        """Run the DataFrame functions on their waiting records, and process the results.

        A test driver calls DataFrame functions only in this method: until then, piped records wait
        in the input topic of the function. Each function gets its records as one batch, in a
        DataFrame that is not streaming; no state is carried over between batches.

        Args:
            spark: a session, for example `SparkSession.builder.master("local[1]").getOrCreate()`.

        Returns:
            The number of waiting records of all functions.

        Raises:
            DataFrameError: a function fails, or its result cannot be converted to records.

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
        """Return a store by name, for reading or for preparing test data.

        All kinds of stores are supported, including global stores. When a test writes to a store,
        there is no current record.

        Raises:
            UnknownStateStoreError: there is no store with that name.

        Example:
            >>> clicks.pipe_input("ann", "/")
            >>> driver.get_state_store("counts").get("ann").value
            1
        """
        return self._steps.get_state_store(name)

    def get_all_state_stores(self) -> Mapping[str, Any]:
        """Return all stores by name, including global stores.

        Example:
            >>> list(driver.get_all_state_stores())
            ['counts']
        """
        return self._steps.get_all_state_stores()

    def metrics(self) -> Mapping[MetricName, float]:
        """Return the metrics by Kafka Streams' names, except metrics with string values.

        `dropped-records-total` counts the records that were dropped on purpose: records without a
        required key, records that could not be deserialized, and failed records for which the
        handler returned CONTINUE.

        Example:
            >>> clicks.pipe_value("no key")
            >>> [v for n, v in driver.metrics().items() if n.name == "dropped-records-total"]
            [1.0]
        """
        return self._steps.metrics()

    def topology_metadata(self) -> dict[str, Any]:
        """Return the topology's topics under the names that an application would use.

        Returns:
            `topics`: each internal topic with its `kind` (repartition or changelog), its `config`,
            and its `partitions` if the topology fixes them. `subtopologies`: `id`, `sources`,
            `sinks` and `changelogs` of each sub-topology that reads topics. `copartition`: the
            groups of topics that must have equal partition counts.

        Example:
            >>> driver.topology_metadata()["subtopologies"][0]["changelogs"]
            ['topology-test-driver-counts-changelog']
        """
        return self._steps.topology_metadata()

    def close(self) -> None:
        """Commit, close the task and remove its state.

        Records from the last flush of caches can still be read. A second call does nothing.

        Raises:
            StreamsError: the commit fails. Nothing is committed if the topology has already failed.

        Example:
            >>> clicks.pipe_input("ann", "/")
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
        self, topic: str, key: bytes | None, value: bytes | None, timestamp: int, headers: Headers
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
