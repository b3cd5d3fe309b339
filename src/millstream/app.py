"""KafkaStreams: an application instance."""

from __future__ import annotations

import logging
import threading
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from millstream.application.console.subscription_view import MonitoredSubscription
from millstream.application.dataframes import with_read_committed
from millstream.application.failure_policy import (
    ExceptionHandler,
    StreamsUncaughtExceptionHandlerResponse,
)
from millstream.application.listeners import RestoreListenerAdapter, StandbyListenerAdapter
from millstream.application.run_application import (
    StartedApplications,
    close_with_script,
    run_script,
)
from millstream.application.served_application import ApplicationHttpServer, ServedApplication
from millstream.application.supervisor import ThreadSupervisor
from millstream.application.thread_metadata import TaskMetadata, ThreadMetadata, tasks_of
from millstream.async_checks import reject_deferred
from millstream.clock import SystemClock
from millstream.config.streams_config import StreamsConfig
from millstream.errors import IllegalStateError, StreamsError
from millstream.html_tables import html_table, mime_bundle
from millstream.log_format import add_log_source, log_as_json
from millstream.metrics.values import Metrics
from millstream.query.key_routing import Partitioner
from millstream.query.query_client import QueryClient
from millstream.query.streams_metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from millstream.query.views import QueryableStoreType, S
from millstream.runtime.start.topology_checks import check_topology
from millstream.runtime.start.topology_topics import has_tasks
from millstream.runtime.states.client_states import ClientStateTracker, StateListener
from millstream.runtime.states.thread_states import ClientState
from millstream.serdes import Serde
from millstream.server.address import ServerAddress
from millstream.spark.sessions.session import find_session
from millstream.state.queries.requests.query_results import StateQueryRequest, StateQueryResult
from millstream.topology.call_site import call_site
from millstream.topology.physical.topology import Topology

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DEFAULT_CLOSE = timedelta(seconds=60)

logger = logging.getLogger(__name__)


class KafkaStreams:
    """Runs a topology on Spark: one long-running Spark task for each stream thread.

    An object can be started only once. Instances with the same application id share the work. They
    may run on different hosts, or on the same host with a different `state_dir` for each instance.

    Args:
        spark: the Spark session that runs the threads. Default: the active session; otherwise a
            session on the master given to spark-submit or `millstream run --spark`; otherwise a
            local session with `num_stream_threads + 4` slots (with the maximum of a range), which
            is stopped on close.

    Raises:
        TopologyError: the topology is invalid.
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
            raise _without_traceback(error) from error.__cause__
        config = with_read_committed(topology, config)
        self._topology = topology
        self._spark = spark
        if not has_tasks(topology):
            # More threads would only hold unused copies of the global stores.
            config = config.replace(num_stream_threads=1)
        self._config = config
        self._states = ClientStateTracker(config.application_id, SystemClock())
        self._supervisor = ThreadSupervisor(topology, config, spark, self._states)
        #: The owning subscription, if any; see `attach_subscription`.
        self._subscription: MonitoredSubscription | None = None
        served = ServedApplication(self, config, self._supervisor, lambda: self._subscription)
        self._http_server = ApplicationHttpServer(config, served, self._supervisor.advertise)
        self._lock = threading.Lock()
        self._started_at = ""

    def __repr__(self) -> str:
        threads = self._supervisor.num_threads
        started = f", started at {self._started_at}" if self._started_at else ""
        return (
            f"<KafkaStreams {self._config.application_id!r}: {self.state.name}, {threads} stream "
            f"thread{'' if threads == 1 else 's'}{started}>"
        )

    def _repr_mimebundle_(self, include: object = None, exclude: object = None) -> dict[str, str]:
        """Return a table of the threads and their tasks, for notebooks."""
        rows = (
            (
                each.thread_name,
                each.thread_state,
                ", ".join(task.task_id for task in each.active_tasks),
                ", ".join(task.task_id for task in each.standby_tasks),
                each.host or "",
            )
            for each in self.metadata_for_local_threads()
        )
        title = f"{self._config.application_id}: {self.state.name}"
        heads = ["Thread", "State", "Active tasks", "Standby tasks", "Host"]
        return mime_bundle(repr(self), html_table(title, heads, rows))

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

    def _set_up_logs(self) -> None:
        if self._config.log_format == "json":
            log_as_json()
        supervisor = self._supervisor
        add_log_source(self._config.application_id, lambda: supervisor.client_id, self._states)

    # --- start and close -------------------------------------------------------------------------

    def start(self) -> None:
        """Start the stream threads. They join the group in the background.

        Blocks until the threads are submitted to Spark. That takes a few seconds if a Spark session
        must be started. The first start of a topology with `stream_from_lake` also writes the
        tables to their topics. If no broker responds, `start` retries for `task.timeout.ms` and
        logs a warning after 2, 4, 8, … seconds, then every 30 seconds. Another thread may call
        `close` meanwhile.

        The threads do not keep the script running: when the script ends, the application is closed
        and a warning is logged.

        Raises:
            IllegalStateError: the object was started or closed before, or another instance of the
                application with the same `state_dir` is running in this process.
            BrokerUnavailableError: no broker responds at `bootstrap_servers`.
            AccessDeniedError: a broker rejects the login, or its certificate is not trusted.
            MissingSourceTopicError: source topics do not exist.
            UnknownTopicError: sink topics do not exist.
            TopologyError: joined topics are not co-partitioned, or internal topics have wrong
                partition counts.
            LockError: another instance on this host uses the same state directory.
            NotPicklableError: the topology contains an object that cannot be pickled.
            SparkError: Spark cannot run the threads.

        Example:
            >>> streams.start()
            >>> streams.wait_for_state("RUNNING", timedelta(minutes=1))  # doctest: +SKIP
        """
        with self._lock:
            if self.state is not ClientState.CREATED:
                raise IllegalStateError(
                    f"An application can be started only once; this one is {self.state.name}. "
                    "Create a new KafkaStreams object to start it again."
                )
            KafkaStreams._started.add(self._config, self)
            self._started_at = call_site()
            if not self._states.try_transition(ClientState.REBALANCING, "start() called"):
                raise IllegalStateError("The application was closed before it was started.")
        self._set_up_logs()
        try:
            if self._config.server_port is not None and self._http_server.address is None:
                self._http_server.start(None, None, None)
            close_with_script(self, self._states, self.close)
            self._supervisor.start()
        except BaseException as error:
            self._supervisor.abort_start(error)
            self._http_server.close()
            raise

    def close(self, timeout: timedelta = _DEFAULT_CLOSE, *, leave_group: bool = True) -> bool:
        """Close cleanly: commit, close the stores, and leave the group.

        Args:
            timeout: how long the threads may take. Slower threads are killed; no data is lost, but
                records that they have not committed are reprocessed.
            leave_group: whether to leave the group, so that other instances take over immediately.
                Otherwise the tasks stay with this instance until the session timeout.

        Returns:
            Whether all threads closed in time: False if some were killed, or were lost with the
            Spark session. Further calls return the same value.

        Example:
            >>> streams.start()
            >>> streams.close(timedelta(seconds=10))
            True
            >>> streams.state.name
            'NOT_RUNNING'
        """
        if self._states.is_final:
            self._http_server.close()
            return self._supervisor.closed_cleanly
        if self._states.try_transition(ClientState.PENDING_SHUTDOWN, "close() called"):
            try:
                return self._supervisor.close(timeout // timedelta(milliseconds=1), leave_group)
            finally:
                self._states.try_transition(ClientState.NOT_RUNNING, "closed")
                self._http_server.close()
        final = frozenset({ClientState.NOT_RUNNING, ClientState.ERROR})
        in_time = self._states.wait_for(final, timeout.total_seconds())
        return in_time and self._supervisor.closed_cleanly

    def run(self) -> None:
        """Start, wait for SIGINT (Ctrl-C) or SIGTERM, and close.

        Call it on the main thread. The threads have 30 seconds to close. A second signal kills
        those that have not closed yet, a third terminates the script immediately. Progress messages
        go to stderr, or to the log if `logging` has been configured.

        Raises:
            IllegalStateError: this is not the main thread, or `start` raised it.
            StreamsError: the application failed to start, or stopped because of this error.
            SparkError: closing timed out because Spark does not respond.
            SystemExit: with code 3 if a thread was killed or failed while closing (its uncommitted
                records are reprocessed at the next start); with 128 or more after a third signal.

        The exit code of the script is 0 after a clean close, and 1 after an error.

        Example:
            >>> KafkaStreams(topology, config).run()  # until Ctrl-C
        """
        if threading.current_thread() is not threading.main_thread():
            raise IllegalStateError(
                "run() waits for signals, so it must be called on the main thread. Call start() on "
                "other threads."
            )
        self._set_up_logs()
        try:
            run_script(self, self._config, self._states, self._supervisor)
        except StreamsError as error:
            shown = _without_traceback(error)
            raise shown from (error.__cause__ if _is_debugging() else None)
        if self.state is ClientState.ERROR and self.error is not None:
            raise self.error

    def serve(
        self, host: str | None = None, port: int | None = None, token: str | None = None
    ) -> ServerAddress:
        """Start the HTTP server: queries, metadata, probes, and the console.

        `close` stops the server. Requires the extra `server`. `start` also starts the server if
        `server_port` is set. Other instances can only query this one if the server was started
        before `start`. docs/operations/http.md lists the endpoints.

        Args:
            host: the address to listen on; by default `server_host`, this machine only.
            port: by default `server_port`, or any free port.
            token: the token that requests must contain, at least 8 characters; by default
                `server_token`, or a generated token, which is logged and written to a file for this
                user.

        Raises:
            ConfigError: the address cannot be bound, the certificate cannot be used, or the extra
                is not installed.
            IllegalStateError: the server is already running.

        Example:
            >>> address = streams.serve(port=0)
            >>> address.url  # doctest: +SKIP
            'http://127.0.0.1:41193'
            >>> streams.close()
            True
        """
        return self._http_server.start(host, port, token)

    @property
    def server_address(self) -> ServerAddress | None:
        """The address and token of the HTTP server; None if it is not running."""
        return self._http_server.address

    # --- threads ---------------------------------------------------------------------------------

    def add_stream_thread(self) -> str | None:
        """Start one more stream thread (KIP-663).

        The thread gets the lowest free index, joins the group, and takes over tasks from other
        threads. The memory for record caches (`statestore_cache_max_bytes`) is redistributed among
        all threads. Blocks until Spark runs the thread: a second or two if a slot is free.

        Returns:
            The thread's name; None if the application is neither RUNNING nor REBALANCING, or
            stopped meanwhile.

        Raises:
            NotEnoughSlotsError: Spark has no free slot. Raised immediately in a local session,
                after 25 seconds elsewhere. The other threads continue.
            SparkError: Spark cannot run the thread. The other threads continue.

        Example:
            >>> name = streams.add_stream_thread()
        """
        return self._supervisor.changes.add()

    def remove_stream_thread(self, timeout: timedelta | None = None) -> str | None:
        """Close one of the stream threads permanently (KIP-663).

        The thread commits, closes its stores and leaves the group (even as a static member), so
        that other threads take over its tasks immediately. Which thread is removed is undefined.
        The last thread can also be removed; nothing is processed until a thread is added.

        Args:
            timeout: how long to wait until the thread has closed; None waits indefinitely.

        Returns:
            The thread's name; None if there is no thread, or the application is neither RUNNING nor
            REBALANCING.

        Raises:
            TimeoutError: the thread did not close in time. It continues to close, and its index
                stays in use until it has closed.

        Example:
            >>> name = streams.remove_stream_thread(timedelta(seconds=30))
        """
        seconds = None if timeout is None else timeout.total_seconds()
        return self._supervisor.changes.remove(seconds)

    # --- state and metrics -----------------------------------------------------------------------

    @staticmethod
    def running() -> list[KafkaStreams]:
        """Return the applications that this process has started and that have not ended.

        Includes applications that no variable references anymore, for example in a notebook.

        Example:
            >>> for each in KafkaStreams.running():
            ...     each.close()
        """
        return KafkaStreams._started.all()

    @property
    def state(self) -> ClientState:
        """The state of the application instance."""
        return self._states.state

    @property
    def error(self) -> StreamsError | None:
        """The first error that stopped a thread or the application, if any."""
        return self._supervisor.error

    def wait_for_state(self, state: ClientState | str, timeout: timedelta) -> None:
        """Wait until the application is in a state.

        Args:
            state: the state, or its name.

        Raises:
            TimeoutError: the application did not reach the state in time.
            StreamsError: the application ended with this error instead.

        Example:
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
            f"{timeout}. State changes: {'; '.join(self._states.history)}"
        )

    def metadata_for_local_threads(self) -> list[ThreadMetadata]:
        """Return the stream threads of this instance, with their states and tasks.

        Example:
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
                (worker := supervisor.workers.location_of(name)).host,
                worker.pid,
                stall=supervisor.stalls.get(name),
                client=worker.client,
                uncommitted_ms=supervisor.uncommitted_ms.get(name),
            )
            for name, (state, tasks) in self._states.threads().items()
        ]

    def metrics(self) -> Metrics:
        """Return the metrics of this instance.

        Threads report their metrics every half second, or every few seconds if they have thousands.
        Names, groups and labels are those of Kafka Streams; docs/operations/metrics.md lists them.

        Example:
            >>> streams.metrics().total("process-total", "stream-thread-metrics")
            0.0
        """
        return self._supervisor.metrics.all()

    @property
    def metrics_port(self) -> int | None:
        """The port that Prometheus scrapes (setting `metrics_port`).

        None if the port is not open.
        """
        return self._supervisor.metrics_port.port

    # --- interactive queries ---------------------------------------------------------------------

    def query(self, request: StateQueryRequest) -> StateQueryResult:
        """Query a store, and return the result of each of its partitions (KIP-796).

        Queries partitions of this instance, and of other instances that set `application_server`
        and run the HTTP server. Stream threads execute queries between batches, so a result
        contains either all changes that a record makes to the store, or none of them.

        Args:
            request: the store, the query, the partitions, and the position that they must have
                reached.

        Returns:
            A result or a failure reason for each partition. Iterators in results should be
            exhausted or closed.

        Raises:
            UnknownStateStoreError: the topology has no such store.
            StreamsNotStartedError: the application has not been started.
            StreamsStoppedError: the application is closing or has ended.
            NullKeyError: the key of the query is None.
            SerializationError: the key does not fit the store's serde.

        Example:
            >>> request = StateQueryRequest.in_store("counts").with_query(KeyQuery("ann"))
            >>> streams.query(request)
            Traceback (most recent call last):
            millstream.errors.UnknownStateStoreError: There is no state store counts in ...
        """
        return self._supervisor.query_client.queries.query(request)

    def store(
        self,
        name: str,
        kind: QueryableStoreType[S],
        partition: int | None = None,
        stale: bool = False,
    ) -> S:
        """Return a read-only view of a store over all its partitions.

        The view stays valid across rebalances: each call queries the current owners of the
        partitions and includes writes in the record cache. Corresponds to Kafka Streams'
        `KafkaStreams.store`.

        Args:
            kind: the type of the view, from `QueryableStoreTypes`.
            partition: the only partition to query; None for all.
            stale: whether to also query standby tasks and tasks that are being restored, which may
                lag.

        Raises:
            StreamsNotStartedError: the application has not been started.
            IllegalStateError: the application is closing or has ended.
            UnknownStateStoreError: the topology has no such store.
            InvalidStateStorePartitionError: the store has no such partition.
            StateStoreNotAvailableError: partitions are not assigned or restored yet. Retry.
            StateStoreMigratedError: partitions have moved. Retry.
            InvalidStateStoreError: the store is of another kind. Also the base class of the errors
                above, except IllegalStateError.

        Example:
            >>> streams.store("counts", QueryableStoreTypes.key_value())
            Traceback (most recent call last):
            millstream.errors.StreamsNotStartedError: The application has not been started. ...
        """
        return self._supervisor.query_client.queries.store(name, kind, partition, stale=stale)

    def dataframe(
        self,
        store: str,
        *,
        source: Literal["changelog", "owners"] = "changelog",
        position: str | None = None,
        as_of: datetime | None = None,
        history: bool = False,
    ) -> DataFrame:
        """Return a snapshot of a store over all its partitions, as a Spark DataFrame.

        The snapshot contains the entries at one position, which `millstream.lake.position_of(df)`
        returns. The page "Stores as DataFrames" of the documentation describes the columns for each
        kind of store.

        Args:
            source: `changelog` reads the committed content from the changelog, in parallel, even if
                the application is not running. `owners` queries the threads that own the
                partitions; all rows pass through this process.
            position: the position of an earlier snapshot, to read it again.
            as_of: return the versions that were valid at this time instead of the latest; UTC
                unless it has a time zone. Versioned stores only.
            history: return all stored versions. Versioned stores only.

        Returns:
            The columns `key` and `value`, typed by the store's serdes, and further columns that
            depend on the kind of store.

        Raises:
            UnknownStateStoreError: the topology has no such store.
            ConfigError: the store has no changelog, or the arguments do not fit the store.
            UnknownTopicError: the application has never been started.
            IllegalStateError: there is no Spark session.
            ImportError: pyarrow is not installed.

        Example:
            >>> streams.dataframe("counts").where("value > 100")
            Traceback (most recent call last):
            millstream.errors.UnknownStateStoreError: There is no state store counts in ...
        """
        from millstream.lake.read_dataframe import store_dataframe

        return store_dataframe(
            self._session,
            self._topology,
            self._config,
            store,
            lambda: self._supervisor.query_client.queries,
            source=source,
            position=position,
            as_of=as_of,
            history=history,
        )

    def changes_dataframe(self, store: str, *, starting_offsets: str = "earliest") -> DataFrame:
        """Return a streaming DataFrame with one row per changelog record of a store.

        A row without a value is a deletion. A streaming query reads each record once, or
        again if a micro-batch is retried.

        Args:
            starting_offsets: `earliest`, `latest`, or a position from `position_of`.

        Raises:
            UnknownStateStoreError: the topology has no such store.
            ConfigError: the store has no changelog.
            UnknownTopicError: the application has never been started.
            IllegalStateError: there is no Spark session.
            ImportError: pyarrow is not installed.

        Example:
            >>> streams.changes_dataframe("counts").writeStream.format("console").start()
            Traceback (most recent call last):
            millstream.errors.UnknownStateStoreError: There is no state store counts in ...
        """
        from millstream.lake.read_dataframe import changes_dataframe

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
        """Return the instances that host a key of a store, active and standby (KIP-535).

        Args:
            key_serde: the serde that the key was written with; None for the store's key serde.
            partitioner: the partitioner that the store's input topic was written with. Called with
                the topic, the key, None for the value, and the number of partitions. None for the
                default of Kafka's producers, murmur2 of the serialized key.

        Returns:
            `KeyQueryMetadata.NOT_AVAILABLE` while the metadata is not available: retry later. None
            if the topology has no such store.

        Raises:
            StreamsNotStartedError: the application has not been started.
            IllegalStateError: the application is closing or has ended.
            ValueError: the key is None, or the partitioner chose no partition or several.

        Example:
            >>> streams.query_metadata_for_key("counts", "ann", STRING)
            Traceback (most recent call last):
            millstream.errors.StreamsNotStartedError: The application has not been started. ...
        """
        return self._supervisor.query_client.routing.key_metadata(
            store, key, key_serde, partitioner
        )

    def streams_metadata_for_store(self, store: str) -> list[StreamsMetadata]:
        """Return the instances that host partitions of a store, active or standby.

        Only includes instances with an `application_server`. Empty before the first rebalance, and
        for a store that does not exist.

        Raises:
            StreamsNotStartedError: the application has not been started.
            IllegalStateError: the application is closing or has ended.

        Example:
            >>> streams.streams_metadata_for_store("counts")
            Traceback (most recent call last):
            millstream.errors.StreamsNotStartedError: The application has not been started. ...
        """
        return self._supervisor.query_client.routing.clients_with_store(store)

    def metadata_for_all_streams_clients(self) -> list[StreamsMetadata]:
        """Return all instances with an `application_server`.

        The result contains the stores and partitions of each instance.

        Raises:
            StreamsNotStartedError: the application has not been started.
            IllegalStateError: the application is closing or has ended.

        Example:
            >>> streams.metadata_for_all_streams_clients()
            Traceback (most recent call last):
            millstream.errors.StreamsNotStartedError: The application has not been started. ...
        """
        return self._supervisor.query_client.routing.all_clients()

    def all_local_store_partition_lags(self) -> dict[str, dict[int, LagInfo]]:
        """Return how far local stores are behind their changelogs, by name and partition.

        Running active tasks have no lag; standby tasks and tasks being restored can lag.

        Raises:
            BrokerUnavailableError: the end offsets of the changelogs cannot be fetched.

        Example:
            >>> streams.all_local_store_partition_lags()
            {}
        """
        return self._supervisor.query_client.lags()

    # --- listeners -------------------------------------------------------------------------------

    def set_state_listener(self, listener: StateListener) -> None:
        """Call `listener(new, old)` at each change of state. Set it before `start`.

        Example:
            >>> streams.set_state_listener(lambda new, old: print(old.name, "->", new.name))
            >>> streams.close()
            CREATED -> PENDING_SHUTDOWN
            PENDING_SHUTDOWN -> NOT_RUNNING
            True
        """
        self._check_not_started("the state listener")
        reject_deferred("set_state_listener()", "listener", listener)
        self._states.set_listener(listener)

    def set_uncaught_exception_handler(self, handler: ExceptionHandler) -> None:
        """Set the handler for errors that end a thread.

        By default, the instance closes and its final state is ERROR.

        Args:
            handler: called with the error, in this process. Returns a
                `StreamsUncaughtExceptionHandlerResponse`.

        Example:
            >>> def on_error(error: StreamsError) -> StreamsUncaughtExceptionHandlerResponse:
            ...     if error.retriable:
            ...         return StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
            ...     return StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_CLIENT
            >>> streams.set_uncaught_exception_handler(on_error)
        """
        self._check_not_started("the uncaught exception handler")
        reject_deferred("set_uncaught_exception_handler()", "handler", handler)
        self._supervisor.failure_policy.exception_handler = handler

    def set_global_state_restore_listener(self, listener: Any) -> None:
        """Set the listener for state restoration.

        Args:
            listener: an object with `on_restore_start(topic_partition, store, start, end)`,
                `on_batch_restored(topic_partition, store, end, count)`,
                `on_restore_end(topic_partition, store, total)` and optionally
                `on_restore_suspended(topic_partition, store, total)`, for a task that is closed
                before it is restored. `start` and `end` are offsets; `start` is 0 for an empty
                store. Called in this process.

        Example:
            >>> class RestoreLogger:
            ...     def on_restore_start(self, topic_partition, store, start, end):
            ...         print(f"{store}: {end - start} records to restore")
            ...     def on_batch_restored(self, topic_partition, store, end, count): ...
            ...     def on_restore_end(self, topic_partition, store, total): ...
            >>> streams.set_global_state_restore_listener(RestoreLogger())
        """
        self._check_not_started("the restore listener")
        self._supervisor.restore_listener = RestoreListenerAdapter(listener)

    def set_standby_update_listener(self, listener: Any) -> None:
        """Set the listener for updates of standby tasks (KIP-988).

        Args:
            listener: an object with `on_update_start(topic_partition, store, start)`,
                `on_batch_loaded(topic_partition, store, task_id, batch_end, count, end)` and
                `on_update_suspended(topic_partition, store, offset, end, reason)`, where the reason
                is `"MIGRATED"` or `"PROMOTED"`. Called in this process.

        Example:
            >>> class StandbyLogger:
            ...     def on_update_start(self, topic_partition, store, start): ...
            ...     def on_batch_loaded(self, topic_partition, store, task_id, at, count, end):
            ...         print(f"{store} is {end - at} records behind")
            ...     def on_update_suspended(self, topic_partition, store, offset, end, reason): ...
            >>> streams.set_standby_update_listener(StandbyLogger())
        """
        self._check_not_started("the standby listener")
        self._supervisor.standby_listener = StandbyListenerAdapter(listener)

    # --- pausing ---------------------------------------------------------------------------------

    def pause(self) -> None:
        """Stop processing and restoring.

        The threads stay in the group and keep their tasks. Records that were processed before are
        committed as usual.

        Example:
            >>> streams.pause()
            >>> streams.is_paused
            True
        """
        self._supervisor.pause(True)

    def resume(self) -> None:
        """Continue processing after `pause`.

        Example:
            >>> streams.pause()
            >>> streams.resume()
            >>> streams.is_paused
            False
        """
        self._supervisor.pause(False)

    @property
    def _query_client(self) -> QueryClient:
        """The query client, for the HTTP server."""
        return self._supervisor.query_client

    @property
    def is_paused(self) -> bool:
        """Whether processing is paused."""
        return self._supervisor.paused

    def clean_up(self) -> None:
        """Delete this instance's local state.

        The next start restores the state from the changelogs.

        Raises:
            IllegalStateError: the application is running.

        Example:
            >>> streams.clean_up()
            >>> streams.start()
        """
        if self.state is not ClientState.CREATED and not self._states.is_final:
            raise IllegalStateError(
                "State can only be deleted before start() or after close(), not while the state "
                f"is {self.state.name}."
            )
        self._supervisor.clean_up()

    def _session(self) -> SparkSession:
        session = self._spark or find_session()
        if session is None:
            raise IllegalStateError(
                "A DataFrame needs a Spark session, but there is none: start the application, or "
                "create a session and pass it to KafkaStreams(topology, config, spark)."
            )
        return session

    def _check_not_started(self, setting: str) -> None:
        if self.state is not ClientState.CREATED:
            raise IllegalStateError(
                f"Set {setting} before start(); the state is {self.state.name} now."
            )


KafkaStreams._started = StartedApplications()


def _without_traceback(error: StreamsError) -> StreamsError:
    """Remove the traceback, which does not help with an error in the user's program."""
    return error if _is_debugging() else error.with_traceback(None)


def _is_debugging() -> bool:
    return logging.getLogger("millstream").isEnabledFor(logging.DEBUG)


def attach_subscription(
    streams: KafkaStreams, subscription: MonitoredSubscription
) -> ThreadSupervisor:
    """Show a subscription in the console. Internal, for `ProcessorSubscription`.

    Returns the supervisor of its threads, which changes their properties and reports whether all
    work in flight was completed when they closed.
    """
    streams._subscription = subscription
    return streams._supervisor


__all__ = [
    "KafkaStreams",
    "StreamsUncaughtExceptionHandlerResponse",
    "TaskMetadata",
    "ThreadMetadata",
]
