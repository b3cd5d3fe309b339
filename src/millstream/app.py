"""KafkaStreams: an application instance, as its users hold it."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from millstream.application.failures import (
    ExceptionHandler,
    StreamsUncaughtExceptionHandlerResponse,
)
from millstream.application.histories import reading_committed
from millstream.application.listeners import RestoreCalls, StandbyCalls
from millstream.application.metadata import TaskMetadata, ThreadMetadata, tasks_of
from millstream.application.run import run_script
from millstream.application.script_end import close_with_script
from millstream.application.served_application import ServedApplication
from millstream.application.serving import ApplicationServing
from millstream.application.started import StartedApplications
from millstream.application.supervisor import ThreadSupervisor
from millstream.application.view.subscription import WatchedSubscription
from millstream.clock import SystemClock
from millstream.config import StreamsConfig
from millstream.errors import IllegalStateError, StreamsError
from millstream.metrics.values import Metrics
from millstream.query.asked import Asked
from millstream.query.metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from millstream.query.requests.answers import StateQueryRequest, StateQueryResult
from millstream.query.routing import Partitioner
from millstream.query.store_types import QueryableStoreType, S
from millstream.runtime.check import check_topology
from millstream.runtime.client_states import ClientStates, StateListener
from millstream.runtime.states import ClientState
from millstream.runtime.topology_topics import has_tasks
from millstream.serdes import Serde
from millstream.server.address import ServerAddress
from millstream.spark.sessions.session import session_at_hand
from millstream.topology.call_site import call_site
from millstream.topology.physical.topology import Topology
from millstream.unawaited import refuse_deferred

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DEFAULT_CLOSE = timedelta(seconds=60)

logger = logging.getLogger(__name__)


class KafkaStreams:
    """Runs a topology on Spark: one long-running Spark task for each stream thread.

    An object is started once and closed once. Several instances with the same application id, on
    one host (each with a `state_dir` of its own) or on many, share the work.

    Args:
        topology: what to compute.
        config: settings.
        spark: where the threads run; by default the active session, else one on the master that
            spark-submit or `millstream run --spark` has named, else a local one with
            `num_stream_threads + 4` slots (of a pair the most), which is stopped at the end.

    Raises:
        TopologyError: the topology cannot be run as it is.
        ConfigError: a serde is missing, or a setting does not fit the topology.

    Example:
        >>> builder = StreamsBuilder()
        >>> builder.stream("clicks", key=STRING, value=STRING).to("copies")
        >>> config = StreamsConfig(application_id="shop", bootstrap_servers="localhost:9092")
        >>> streams = KafkaStreams(builder.build(), config)
        >>> streams.run()  # until Ctrl-C
    """

    State: ClassVar[type[ClientState]] = ClientState
    _started: ClassVar[StartedApplications[KafkaStreams]]

    def __init__(
        self, topology: Topology, config: StreamsConfig, spark: SparkSession | None = None
    ) -> None:
        try:
            check_topology(topology, config)
        except StreamsError as error:
            raise _without_our_lines(error) from error.__cause__
        config = reading_committed(topology, config)
        self._topology = topology
        self._spark = spark
        if not has_tasks(topology):
            # Each thread would have a copy of the global stores, and nothing to do with it.
            config = config.replace(num_stream_threads=1)
        self._config = config
        self._states = ClientStates(config.application_id, SystemClock())
        self._supervisor = ThreadSupervisor(topology, config, spark, self._states)
        #: The subscription that it is of, if it is; set by that.
        self._subscription: WatchedSubscription | None = None
        served = ServedApplication(self, config, self._supervisor, lambda: self._subscription)
        self._serving = ApplicationServing(config, served, self._supervisor.is_reached_at)
        self._lock = threading.Lock()
        self._started_at = ""

    def __repr__(self) -> str:
        threads = self._supervisor.num_threads
        started = f", started at {self._started_at}" if self._started_at else ""
        return (
            f"<KafkaStreams {self._config.application_id!r}: {self.state.name}, {threads} stream "
            f"thread{'' if threads == 1 else 's'}{started}>"
        )

    def __enter__(self) -> KafkaStreams:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the stream threads. They join the group in the background.

        Blocks until the threads are submitted to Spark: a moment, or the seconds that Spark takes
        to start where no session runs yet; at the first start of a topology with
        `stream_from_lake`, until its tables are written into their topics. Brokers that are away
        are waited for, with a warning a second, for `task.timeout.ms` at most. Another thread may
        call `close` meanwhile.

        Does not keep the script running: when that ends, the application is closed, with a warning.

        Raises:
            IllegalStateError: it was started or closed before, or another instance of it with the
                same `state_dir` runs in this process.
            BrokerUnavailableError: no broker answers at `bootstrap_servers`.
            AccessDeniedError: a broker refuses the login, or its certificate is not trusted.
            MissingSourceTopicError: topics that are read do not exist.
            UnknownTopicError: topics that are written do not exist.
            TopologyError: topics that are joined are not co-partitioned, or internal topics have
                wrong partition counts.
            LockError: another instance on this host uses the same state directory.
            NotPicklableError: the topology holds something that cannot be sent to a worker.
            SparkError: Spark cannot host the threads.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.start()
            >>> streams.wait_for_state("RUNNING", timedelta(minutes=1))  # doctest: +SKIP
        """
        with self._lock:
            if self.state is not ClientState.CREATED:
                raise IllegalStateError(
                    f"An application can be started once; this one is {self.state.name}. "
                    "Make a new KafkaStreams object to start again."
                )
            KafkaStreams._started.add(self._config, self)
            self._started_at = call_site()
            if not self._states.become(ClientState.REBALANCING, "told to start"):
                raise IllegalStateError("The application was closed before it was started.")
        try:
            if self._config.server_port is not None and self._serving.address is None:
                self._serving.start(None, None, None)
            close_with_script(self, self._states, self.close)
            self._supervisor.start()
        except BaseException as error:
            self._supervisor.could_not_start(error)
            self._serving.close()
            raise

    def close(self, timeout: timedelta = _DEFAULT_CLOSE, *, leave_group: bool = True) -> bool:
        """Close in an orderly way: commit, close the stores, leave the group.

        Args:
            timeout: how long the threads may take; those that take longer are killed, which loses
                nothing, but repeats what they had not committed.
            leave_group: whether other instances take over at once; if not, the tasks wait for this
                instance until the session timeout has passed.

        Returns:
            Whether all threads closed by themselves, in time: False when some had to be killed, or
            were lost with the Spark session. The same each time it is called.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.start()
            >>> streams.close(timedelta(seconds=10))
            True
            >>> streams.state.name
            'NOT_RUNNING'
        """
        if self._states.is_final:
            self._serving.close()
            return self._supervisor.closed_orderly
        if self._states.become(ClientState.PENDING_SHUTDOWN, "told to close"):
            try:
                return self._supervisor.close(timeout // timedelta(milliseconds=1), leave_group)
            finally:
                self._states.become(ClientState.NOT_RUNNING, "closed")
                self._serving.close()
        final = frozenset({ClientState.NOT_RUNNING, ClientState.ERROR})
        in_time = self._states.wait_for(final, timeout.total_seconds())
        return in_time and self._supervisor.closed_orderly

    def run(self) -> None:
        """Start, wait for SIGINT (Ctrl-C) or SIGTERM, and close. Call it on the main thread.

        The threads have 30 seconds to close. A second signal kills those that have not closed yet,
        a third one ends the script at once. What it does is told in a few lines on stderr, or in
        the log if `logging` has been configured.

        Raises:
            IllegalStateError: this is not the main thread, or `start` refuses.
            StreamsError: what made the application stop by itself, or not start.
            SparkError: Spark does not answer, so that closing did not come to its end.
            SystemExit: with 3, if a thread was killed, or has failed in closing: what it had not
                committed is repeated at the next start. With 128 and more after a third signal.

        The exit code of the script tells the same: 0 if all was closed in order, 1 for an error.

        Example:
            >>> KafkaStreams(topology, config).run()  # until Ctrl-C
        """
        if threading.current_thread() is not threading.main_thread():
            raise IllegalStateError(
                "run() waits for signals, which only the main thread gets; call start() elsewhere."
            )
        try:
            run_script(self, self._config, self._states, self._supervisor)
        except StreamsError as error:
            shown = _without_our_lines(error)
            raise shown from (error.__cause__ if _is_debugging() else None)
        if self.state is ClientState.ERROR and self.error is not None:
            raise self.error

    def serve(
        self, host: str | None = None, port: int | None = None, token: str | None = None
    ) -> ServerAddress:
        """Answer HTTP: queries, metadata, probes, and the console. Ends with `close`.

        Needs the extra `server`. `start` does the same by itself where `server_port` is set. Only a
        server that was there before `start` is announced to other instances, which ask it for
        what is here. docs/operations/http.md has all that it answers.

        Args:
            host: the address to listen on; by default `server_host`: this machine alone.
            port: by default `server_port`, or any that is free.
            token: what requests must show, at least 8 characters; by default `server_token`, or
                one that is made up, and told in the log and in a file for this user.

        Raises:
            ConfigError: nothing can listen there, the certificate cannot be used, or the extra is
                not installed.
            IllegalStateError: it answers already.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> address = streams.serve(port=0)
            >>> address.url  # doctest: +SKIP
            'http://127.0.0.1:41193'
            >>> streams.close()
            True
        """
        return self._serving.start(host, port, token)

    @property
    def server_address(self) -> ServerAddress | None:
        """Where it answers HTTP, and what a request must show; None if it does not."""
        return self._serving.address

    # --- threads ---------------------------------------------------------------------------------

    def add_stream_thread(self) -> str | None:
        """Start one more stream thread, beside those that run (KIP-663).

        It gets the lowest index that is free, joins the group, and takes tasks over from other
        threads. What the record caches may use (`statestore_cache_max_bytes`) is divided anew among
        all threads. Blocks until Spark runs it: a second or two where a slot is free.

        Returns:
            Its name; None if the application is neither RUNNING nor REBALANCING, or stopped
            meanwhile.

        Raises:
            NotEnoughSlotsError: Spark has no slot for it: at once on a local session, after 25
                seconds elsewhere. The threads that run go on.
            SparkError: Spark cannot run it. The threads that run go on.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.start()
            >>> name = streams.add_stream_thread()
        """
        return self._supervisor.changes.add()

    def remove_stream_thread(self, timeout: timedelta | None = None) -> str | None:
        """Close one of the stream threads for good (KIP-663).

        It commits, closes its stores and leaves the group, also as a static member, so that its
        tasks go to other threads at once. Which thread it is, is not defined. The last one may be
        removed as well: then nothing is processed until one is added.

        Args:
            timeout: how long to wait until it has closed; None for as long as it takes.

        Returns:
            Its name; None if there is none, or the application is neither RUNNING nor REBALANCING.

        Raises:
            TimeoutError: it has not closed in time. It goes on closing, and its index is not free
                before it has.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.start()
            >>> name = streams.remove_stream_thread(timedelta(seconds=30))
        """
        seconds = None if timeout is None else timeout.total_seconds()
        return self._supervisor.changes.remove(seconds)

    # --- looking ---------------------------------------------------------------------------------

    @staticmethod
    def running() -> list[KafkaStreams]:
        """The applications that this process has started and that have not ended.

        A way to those that no variable holds any more, in a notebook for example.

        Example:
            >>> for each in KafkaStreams.running():
            ...     each.close()
        """
        return KafkaStreams._started.all()

    @property
    def state(self) -> ClientState:
        """Where the application instance is."""
        return self._states.state

    @property
    def error(self) -> StreamsError | None:
        """What made a thread or the application stop, if anything did."""
        return self._supervisor.error

    def wait_for_state(self, state: ClientState | str, timeout: timedelta) -> None:
        """Wait until the application is in a state.

        Args:
            state: the state, or its name.
            timeout: how long to wait at most.

        Raises:
            TimeoutError: it did not come in time.
            StreamsError: the application has ended instead, by this error.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.close()
            True
            >>> streams.wait_for_state("NOT_RUNNING", timedelta(seconds=30))
        """
        wanted = ClientState[state] if isinstance(state, str) else state
        if self._states.wait_for(frozenset({wanted}), timeout.total_seconds()):
            return
        if self._states.is_final and self.error is not None:
            raise self.error
        raise TimeoutError(
            f"{self._config.application_id} is {self.state.name}, not {wanted.name}, after "
            f"{timeout}. Its story: {'; '.join(self._states.story)}"
        )

    def metadata_for_local_threads(self) -> list[ThreadMetadata]:
        """The stream threads of this instance, with their states and tasks.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.start()
            >>> for thread in streams.metadata_for_local_threads():
            ...     print(thread.thread_name, [task.task_id for task in thread.active_tasks])
        """
        supervisor = self._supervisor
        return [
            ThreadMetadata(
                name,
                state.name,
                tasks_of(tasks, standby=False),
                tasks_of(tasks, standby=True),
                (worker := supervisor.workers.of(name)).host,
                worker.pid,
                stall=supervisor.stall_of(name),
                client=worker.client,
                uncommitted_ms=supervisor.uncommitted_ms_of(name),
            )
            for name, (state, tasks) in self._states.threads().items()
        ]

    def metrics(self) -> Metrics:
        """What is counted and measured in this instance, as its threads told it last: half a second
        ago or, of a thread with thousands of metrics, some seconds.

        Names, groups and labels are Kafka Streams'; docs/operations/metrics.md has the list.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.start()
            >>> streams.metrics().total("process-total", "stream-thread-metrics")
            0.0
        """
        return self._supervisor.metrics.all()

    @property
    def metrics_port(self) -> int | None:
        """Where Prometheus finds the metrics (`metrics_port` in the settings) while it runs; None
        if nothing listens."""
        return self._supervisor.metrics_port.port

    # --- asking ----------------------------------------------------------------------------------

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Ask a store, and get what each of its partitions says (KIP-796).

        The partitions of this instance's threads are asked, and those of other instances that have
        `application_server` set and serve. A stream thread answers between two batches, so it shows
        all that a record has caused in the store, or nothing of it.

        Args:
            request: what is asked of which store, of which partitions, and how far they must be.

        Returns:
            A result for each partition, or the reason why there is none. Iterators in it should be
            read to their end or closed.

        Raises:
            UnknownStateStoreError: there is no such store in the topology.
            StreamsNotStartedError: the application has not been started.
            StreamsStoppedError: it closes, or has ended.
            NullKeyError: the key that is asked for is None.
            SerializationError: it does not fit the store's serde.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery("ann"))
            >>> streams.query(request)
            Traceback (most recent call last):
            millstream.errors.UnknownStateStoreError: There is no state store counts in ...
        """
        return self._supervisor.asked.queries.query(request)

    def store(
        self,
        name: str,
        kind: QueryableStoreType[S],
        partition: int | None = None,
        stale: bool = False,
    ) -> S:
        """A view of a store over all its partitions, to be read as it is at each call.

        It may be kept: each call asks whoever has the partitions by then. Writes in the record
        cache are seen. Kafka Streams' `KafkaStreams.store`.

        Args:
            name: the store's name.
            kind: as what it is asked, from `QueryableStoreTypes`.
            partition: the only one that is asked; None for all.
            stale: whether copies answer as well, which may be behind: those of standby tasks, and
                of tasks that are being restored.

        Raises:
            StreamsNotStartedError: the application has not been started.
            IllegalStateError: it closes, or has ended.
            UnknownStateStoreError: there is no such store in the topology.
            InvalidStateStorePartitionError: the store has no such partition.
            StateStoreNotAvailableError: partitions are not assigned or restored yet. Ask again.
            StateStoreMigratedError: partitions were not found where they should be. Ask again.
            InvalidStateStoreError: the store is of another kind. The error that all the others
                but IllegalStateError are a kind of.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.store("counts", QueryableStoreTypes.key_value())
            Traceback (most recent call last):
            millstream.errors.StreamsNotStartedError: The application has not been started; ...
        """
        return self._supervisor.asked.queries.store(name, kind, partition, stale=stale)

    def dataframe(
        self,
        store: str,
        *,
        source: Literal["changelog", "owners"] = "changelog",
        position: str | None = None,
        as_of: datetime | None = None,
        history: bool = False,
    ) -> DataFrame:
        """A snapshot of a store over all its partitions, as a DataFrame of Spark.

        It shows what the store shows at its position: `millstream.lake.position_of(df)` tells which
        that is. Columns and kinds of stores: the page "Stores as DataFrames" of the documentation.

        Args:
            store: the store's name.
            source: `changelog` reads the committed content from the changelog, in parallel, and
                needs no application that runs. `owners` asks the threads that have the partitions;
                all rows pass through this process.
            position: of an earlier snapshot, to have that again.
            as_of: of a versioned store: the versions that were valid then, instead of the latest.
                One without a time zone is a time of UTC.
            history: of a versioned store: all versions that it has.

        Returns:
            The columns `key` and `value`, by the store's serdes, and more by the kind of store.

        Raises:
            UnknownStateStoreError: there is no such store in the topology.
            ConfigError: no changelog tells what the store has, or the arguments do not fit it.
            UnknownTopicError: the application has never been started.
            IllegalStateError: there is no Spark session.
            ImportError: pyarrow is not installed.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.dataframe("counts").where("value > 100")
            Traceback (most recent call last):
            millstream.errors.UnknownStateStoreError: There is no state store counts in ...
        """
        from millstream.lake.of_application import store_dataframe

        return store_dataframe(
            self._session,
            self._topology,
            self._config,
            store,
            lambda: self._supervisor.asked.queries,
            source=source,
            position=position,
            as_of=as_of,
            history=history,
        )

    def changes_dataframe(self, store: str, *, starting_offsets: str = "earliest") -> DataFrame:
        """A streaming DataFrame of a store's changes: a row for each record of its changelog.

        A row without a value is a deletion. A streaming query reads each record once, and the same
        records again when a micro-batch is repeated.

        Args:
            store: the store's name.
            starting_offsets: `earliest`, `latest`, or a position as `position_of` tells it.

        Raises:
            UnknownStateStoreError: there is no such store in the topology.
            ConfigError: no changelog tells what the store has.
            UnknownTopicError: the application has never been started.
            IllegalStateError: there is no Spark session.
            ImportError: pyarrow is not installed.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.changes_dataframe("counts").writeStream.format("console").start()
            Traceback (most recent call last):
            millstream.errors.UnknownStateStoreError: There is no state store counts in ...
        """
        from millstream.lake.of_application import changes_dataframe

        return changes_dataframe(
            self._session, self._topology, self._config, store, starting_offsets
        )

    def query_metadata_for_key(
        self,
        store: str,
        key: Any,
        key_serde: Serde[Any] | None = None,
        partitioner: Partitioner | None = None,
    ) -> KeyQueryMetadata | None:
        """Which instance has a key of a store, and which have copies (KIP-535).

        Args:
            store: the store's name.
            key: the key.
            key_serde: by which the key was written; None for the store's own.
            partitioner: by which the topic was written that reaches the store: takes the topic, the
                key, None for the value, and the number of partitions. None for that of Kafka's
                producers, murmur2 of the serialized key.

        Returns:
            `KeyQueryMetadata.NOT_AVAILABLE` while that is not known; ask again then. None if there
            is no such store.

        Raises:
            StreamsNotStartedError: the application has not been started.
            IllegalStateError: it closes, or has ended.
            ValueError: the key is None, or the partitioner chose no partition or several.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.query_metadata_for_key("counts", "ann", STRING)
            Traceback (most recent call last):
            millstream.errors.StreamsNotStartedError: The application has not been started; ...
        """
        return self._supervisor.asked.routing.of_key(store, key, key_serde, partitioner)

    def streams_metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """The instances that have partitions of a store, or copies of them.

        Only instances with an `application_server` are known to others. Empty before the first
        rebalance, and for a store that does not exist.

        Args:
            store: the store's name.

        Raises:
            StreamsNotStartedError: the application has not been started.
            IllegalStateError: it closes, or has ended.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.streams_metadata_for_store("counts")
            Traceback (most recent call last):
            millstream.errors.StreamsNotStartedError: The application has not been started; ...
        """
        return self._supervisor.asked.routing.clients_of(store)

    def metadata_for_all_streams_clients(self) -> list[StreamsMetadata]:
        """All instances of the application that have an `application_server`, and what they have.

        Raises:
            StreamsNotStartedError: the application has not been started.
            IllegalStateError: it closes, or has ended.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.metadata_for_all_streams_clients()
            Traceback (most recent call last):
            millstream.errors.StreamsNotStartedError: The application has not been started; ...
        """
        return self._supervisor.asked.routing.all_clients()

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """How far the stores of this instance are behind their changelogs, by name and partition.

        Those of running tasks have no lag; standbys and tasks that are being restored have.

        Raises:
            BrokerUnavailableError: no broker tells where the changelogs end.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.all_local_store_partition_lags()
            {}
        """
        return self._supervisor.asked.lags()

    # --- listening -------------------------------------------------------------------------------

    def set_state_listener(self, listener: StateListener) -> None:
        """Call `listener(new, old)` at each change of state. Set it before `start`.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.set_state_listener(lambda new, old: print(old.name, "->", new.name))
            >>> streams.close()
            CREATED -> PENDING_SHUTDOWN
            PENDING_SHUTDOWN -> NOT_RUNNING
            True
        """
        self._check_not_started("the state listener")
        refuse_deferred("set_state_listener()", "listener", listener)
        self._states.listen(listener)

    def set_uncaught_exception_handler(self, handler: ExceptionHandler) -> None:
        """Decide what happens when a thread dies. By default the application closes, in ERROR.

        Args:
            handler: takes the error, and answers with a
                `StreamsUncaughtExceptionHandlerResponse`. Called in this process.

        Example:
            >>> def on_error(error: StreamsError) -> StreamsUncaughtExceptionHandlerResponse:
            ...     if error.retriable:
            ...         return StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
            ...     return StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_CLIENT
            >>> streams = KafkaStreams(topology, config)
            >>> streams.set_uncaught_exception_handler(on_error)
        """
        self._check_not_started("the uncaught exception handler")
        refuse_deferred("set_uncaught_exception_handler()", "handler", handler)
        self._supervisor.judge.exception_handler = handler

    def set_global_state_restore_listener(self, listener: Any) -> None:
        """Be told how state is restored.

        Args:
            listener: an object with `on_restore_start(topic_partition, store, start, end)`,
                `on_batch_restored(topic_partition, store, end, count)`,
                `on_restore_end(topic_partition, store, total)` and, for a task that is given up
                before that, `on_restore_suspended(topic_partition, store, total)`, which may be
                left out. `start` and `end` are offsets, `start` is 0 for a store that has nothing.
                Called in this process.

        Example:
            >>> class Told:
            ...     def on_restore_start(self, topic_partition, store, start, end):
            ...         print(f"{store}: {end - start} records to restore")
            ...     def on_batch_restored(self, topic_partition, store, end, count): ...
            ...     def on_restore_end(self, topic_partition, store, total): ...
            >>> streams = KafkaStreams(topology, config)
            >>> streams.set_global_state_restore_listener(Told())
        """
        self._check_not_started("the restore listener")
        self._supervisor.restore_listener = RestoreCalls(listener)

    def set_standby_update_listener(self, listener: Any) -> None:
        """Be told how the state of standby tasks is kept up to date (KIP-988).

        Args:
            listener: an object with `on_update_start(topic_partition, store, start)`,
                `on_batch_loaded(topic_partition, store, task_id, batch_end, count, end)` and
                `on_update_suspended(topic_partition, store, offset, end, reason)`, where the reason
                is `"MIGRATED"` or `"PROMOTED"`. Called in this process.

        Example:
            >>> class Told:
            ...     def on_update_start(self, topic_partition, store, start): ...
            ...     def on_batch_loaded(self, topic_partition, store, task_id, at, count, end):
            ...         print(f"{store} is {end - at} records behind")
            ...     def on_update_suspended(self, topic_partition, store, offset, end, reason): ...
            >>> streams = KafkaStreams(topology, config)
            >>> streams.set_standby_update_listener(Told())
        """
        self._check_not_started("the standby listener")
        self._supervisor.standby_listener = StandbyCalls(listener)

    # --- pausing ---------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop processing and restoring; the threads stay in the group and keep their tasks.

        What was processed before is committed as usual.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.pause()
            >>> streams.is_paused
            True
        """
        self._supervisor.pause(True)

    def resume(self) -> None:
        """Go on processing after `pause`.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.pause()
            >>> streams.resume()
            >>> streams.is_paused
            False
        """
        self._supervisor.pause(False)

    @property
    def _asked(self) -> Asked:
        """What answers for this instance: for those who serve it to others."""
        return self._supervisor.asked

    def _change_properties(self, given: Mapping[str, Any]) -> None:
        """Of a subscription: let all threads work by these, those included that come later."""
        self._supervisor.change_properties(given)

    @property
    def _has_drained(self) -> bool:
        """Whether all that was in flight when threads closed came to its end."""
        return self._supervisor.has_drained

    @property
    def is_paused(self) -> bool:
        """Whether processing is paused."""
        return self._supervisor.paused

    def clean_up(self) -> None:
        """Delete this instance's local state; it comes back from the changelogs.

        Raises:
            IllegalStateError: the application is running.

        Example:
            >>> streams = KafkaStreams(topology, config)
            >>> streams.clean_up()
            >>> streams.start()
        """
        if self.state is not ClientState.CREATED and not self._states.is_final:
            raise IllegalStateError(
                "State can be deleted before start() and after close(), not while "
                f"{self.state.name}."
            )
        self._supervisor.clean_up()

    def _session(self) -> SparkSession:
        session = self._spark or session_at_hand()
        if session is None:
            raise IllegalStateError(
                "A DataFrame needs a Spark session, and there is none: start the application, or "
                "make a session and give it to KafkaStreams(topology, config, spark)."
            )
        return session

    def _check_not_started(self, what: str) -> None:
        if self.state is not ClientState.CREATED:
            raise IllegalStateError(f"Set {what} before start(); it is {self.state.name} now.")


KafkaStreams._started = StartedApplications()


def _without_our_lines(error: StreamsError) -> StreamsError:
    """Where in Millstream it was noticed says nothing to who reads what is wrong with a program."""
    return error if _is_debugging() else error.with_traceback(None)


def _is_debugging() -> bool:
    return logging.getLogger("millstream").isEnabledFor(logging.DEBUG)


__all__ = [
    "KafkaStreams",
    "StreamsUncaughtExceptionHandlerResponse",
    "TaskMetadata",
    "ThreadMetadata",
]
