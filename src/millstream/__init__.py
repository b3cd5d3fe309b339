"""Millstream: Kafka Streams and Decaton for Python, on Spark.

A topology defines the computation, and `KafkaStreams` runs it: tasks of Kafka partitions on stream
threads. Each stream thread is a long-running Spark task with its state in RocksDB in the same
process.
"""

from millstream.app import KafkaStreams, TaskMetadata, ThreadMetadata
from millstream.application.failure_policy import StreamsUncaughtExceptionHandlerResponse
from millstream.assignment.wire_format import HostInfo
from millstream.config.streams_config import AT_LEAST_ONCE, EXACTLY_ONCE_V2, StreamsConfig
from millstream.errors import (
    BrokerUnavailableError,
    ConfigError,
    CopartitionError,
    DataFrameError,
    EmbeddedKafkaError,
    EnvironmentMismatchError,
    IllegalStateError,
    InvalidStateStoreError,
    InvalidStateStorePartitionError,
    LockError,
    MissingSourceTopicError,
    NotEnoughSlotsError,
    NotPicklableError,
    NullKeyError,
    OffsetOutOfRangeError,
    ProcessingError,
    ProductionError,
    SerializationError,
    ShutdownRequestedError,
    SparkError,
    StateStoreMigratedError,
    StateStoreNotAvailableError,
    StreamsError,
    StreamsNotStartedError,
    StreamsStoppedError,
    TaskAssignmentError,
    TaskCorruptedError,
    TaskMigratedError,
    TopologyError,
    UnknownStateStoreError,
    UnknownTopicError,
    UnsupportedOperationError,
)
from millstream.log_format import JsonFormatter, log_as_json
from millstream.metrics.registry import RecordingLevel
from millstream.metrics.user import ContextMetrics, Stat, UserSensor
from millstream.metrics.values import Metric, Metrics
from millstream.processor.handlers import (
    DeadLetter,
    DefaultProductionExceptionHandler,
    ErrorContext,
    HandlerDecision,
    HandlerResponse,
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
    SinkRecord,
    SourceRecord,
)
from millstream.processor.processor import FixedKeyProcessor, Processor
from millstream.processor.processor_context import (
    FixedKeyProcessorContext,
    ProcessingContext,
    ProcessorContext,
)
from millstream.processor.punctuation import Cancellable, PunctuationType
from millstream.processor.timestamps import (
    FailOnInvalidTimestamp,
    KeepValidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from millstream.query.page_iterator import StoreIterator
from millstream.query.streams_metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from millstream.query.views import (
    QueryableStoreType,
    QueryableStoreTypes,
    ReadOnlyKeyValueStore,
    ReadOnlySessionStore,
    ReadOnlyWindowStore,
)
from millstream.record import (
    FixedKeyRecord,
    Record,
    RecordMetadata,
    TaskId,
    TopicPartition,
    ValueAndTimestamp,
    VersionedRecord,
)
from millstream.runtime.states.thread_states import ClientState
from millstream.runtime.thread_control import Stall
from millstream.server.address import ServerAddress
from millstream.state.keyvalue.key_value_store import KeyValueStore
from millstream.state.queries.requests.position import Position, PositionBound
from millstream.state.queries.requests.queries import (
    KeyQuery,
    MultiVersionedKeyQuery,
    Query,
    RangeQuery,
    SessionsOfKeyQuery,
    TimestampedKeyQuery,
    TimestampedRangeQuery,
    VersionedKeyQuery,
    WindowKeyQuery,
    WindowRangeQuery,
)
from millstream.state.queries.requests.query_results import (
    FailureReason,
    InStore,
    QueryResult,
    StateQueryRequest,
    StateQueryResult,
)
from millstream.state.storage.iterators import KeyValueIterator
from millstream.state.stores import Stores
from millstream.state.versioned.versioned_store import VersionedKeyValueStore
from millstream.state.windows.session_store import SessionStore
from millstream.state.windows.window_store import WindowStore
from millstream.topology.dsl.builder import StreamsBuilder
from millstream.topology.dsl.global_table import GlobalKTable
from millstream.topology.dsl.streams_and_tables import (
    BranchedKStream,
    CogroupedKStream,
    KGroupedStream,
    KGroupedTable,
    KStream,
    KTable,
    SessionWindowedCogroupedKStream,
    SessionWindowedKStream,
    TimeWindowedCogroupedKStream,
    TimeWindowedKStream,
)
from millstream.topology.options.materialized import Materialized
from millstream.topology.options.suppressed import BufferConfig, Suppressed
from millstream.topology.options.trigger import Trigger
from millstream.topology.options.windows import (
    EmitStrategy,
    JoinWindows,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)
from millstream.topology.physical.topology import Topology
from millstream.topology.physical.topology_description import TopologyDescription
from millstream.windowed import Window, Windowed

__all__ = [
    "AT_LEAST_ONCE",
    "BranchedKStream",
    "BrokerUnavailableError",
    "BufferConfig",
    "Cancellable",
    "ClientState",
    "CogroupedKStream",
    "ConfigError",
    "ContextMetrics",
    "CopartitionError",
    "DataFrameError",
    "DeadLetter",
    "DefaultProductionExceptionHandler",
    "EXACTLY_ONCE_V2",
    "EmbeddedKafkaError",
    "EmitStrategy",
    "EnvironmentMismatchError",
    "ErrorContext",
    "FailOnInvalidTimestamp",
    "FailureReason",
    "FixedKeyProcessor",
    "FixedKeyProcessorContext",
    "FixedKeyRecord",
    "GlobalKTable",
    "HandlerDecision",
    "HandlerResponse",
    "HostInfo",
    "IllegalStateError",
    "InStore",
    "InvalidStateStoreError",
    "InvalidStateStorePartitionError",
    "JoinWindows",
    "JsonFormatter",
    "KGroupedStream",
    "KGroupedTable",
    "KStream",
    "KTable",
    "KafkaStreams",
    "KeepValidTimestamp",
    "KeyQuery",
    "KeyQueryMetadata",
    "KeyValueIterator",
    "KeyValueStore",
    "LagInfo",
    "LockError",
    "LogAndContinueExceptionHandler",
    "LogAndContinueProcessingExceptionHandler",
    "LogAndFailExceptionHandler",
    "LogAndFailProcessingExceptionHandler",
    "LogAndSkipOnInvalidTimestamp",
    "Materialized",
    "Metric",
    "Metrics",
    "MissingSourceTopicError",
    "MultiVersionedKeyQuery",
    "NotEnoughSlotsError",
    "NotPicklableError",
    "NullKeyError",
    "OffsetOutOfRangeError",
    "Position",
    "PositionBound",
    "ProcessingContext",
    "ProcessingError",
    "Processor",
    "ProcessorContext",
    "ProductionError",
    "PunctuationType",
    "Query",
    "QueryResult",
    "QueryableStoreType",
    "QueryableStoreTypes",
    "RangeQuery",
    "ReadOnlyKeyValueStore",
    "ReadOnlySessionStore",
    "ReadOnlyWindowStore",
    "Record",
    "RecordMetadata",
    "RecordingLevel",
    "SerializationError",
    "ServerAddress",
    "SessionStore",
    "SessionWindowedCogroupedKStream",
    "SessionWindowedKStream",
    "SessionWindows",
    "SessionsOfKeyQuery",
    "ShutdownRequestedError",
    "SinkRecord",
    "SlidingWindows",
    "SourceRecord",
    "SparkError",
    "Stall",
    "Stat",
    "StateQueryRequest",
    "StateQueryResult",
    "StateStoreMigratedError",
    "StateStoreNotAvailableError",
    "StoreIterator",
    "Stores",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsError",
    "StreamsMetadata",
    "StreamsNotStartedError",
    "StreamsStoppedError",
    "StreamsUncaughtExceptionHandlerResponse",
    "Suppressed",
    "TaskAssignmentError",
    "TaskCorruptedError",
    "TaskId",
    "TaskMetadata",
    "TaskMigratedError",
    "ThreadMetadata",
    "TimeWindowedCogroupedKStream",
    "TimeWindowedKStream",
    "TimeWindows",
    "TimestampedKeyQuery",
    "TimestampedRangeQuery",
    "TopicPartition",
    "Topology",
    "TopologyDescription",
    "TopologyError",
    "Trigger",
    "UnknownStateStoreError",
    "UnknownTopicError",
    "UnlimitedWindows",
    "UnsupportedOperationError",
    "UsePartitionTimeOnInvalidTimestamp",
    "UserSensor",
    "ValueAndTimestamp",
    "VersionedKeyQuery",
    "VersionedKeyValueStore",
    "VersionedRecord",
    "WallclockTimestampExtractor",
    "Window",
    "WindowKeyQuery",
    "WindowRangeQuery",
    "WindowStore",
    "Windowed",
    "log_as_json",
]
