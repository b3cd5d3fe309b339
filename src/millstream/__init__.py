"""Millstream: Kafka Streams and Decaton for Python, on Spark.

A topology says what to compute, `KafkaStreams` runs it: tasks of Kafka partitions on stream
threads, each of which is a long-running Spark task with its state in RocksDB beside the code.
"""

from millstream.app import KafkaStreams, TaskMetadata, ThreadMetadata
from millstream.application.failures import StreamsUncaughtExceptionHandlerResponse
from millstream.assignment.wire.assignment_info import HostInfo
from millstream.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2, StreamsConfig
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
from millstream.metrics.registry import RecordingLevel
from millstream.metrics.user import ContextMetrics, Stat, UserSensor
from millstream.metrics.values import Metric, Metrics
from millstream.processor.context import (
    FixedKeyProcessorContext,
    ProcessingContext,
    ProcessorContext,
)
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
from millstream.processor.punctuation import Cancellable, PunctuationType
from millstream.processor.timestamps import (
    FailOnInvalidTimestamp,
    KeepValidTimestamp,
    LogAndSkipOnInvalidTimestamp,
    UsePartitionTimeOnInvalidTimestamp,
    WallclockTimestampExtractor,
)
from millstream.query.metadata import KeyQueryMetadata, LagInfo, StreamsMetadata
from millstream.query.pages import StoreIterator
from millstream.query.requests.answers import (
    FailureReason,
    InStore,
    QueryResult,
    StateQueryRequest,
    StateQueryResult,
)
from millstream.query.requests.position import Position, PositionBound
from millstream.query.requests.queries import (
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
from millstream.query.store_types import QueryableStoreType, QueryableStoreTypes
from millstream.query.views import (
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
from millstream.runtime.stall import Stall
from millstream.runtime.states import ClientState
from millstream.server.address import ServerAddress
from millstream.state.keyvalue.store import KeyValueStore
from millstream.state.storage.iterators import KeyValueIterator
from millstream.state.stores import Stores
from millstream.state.versioned.store import VersionedKeyValueStore
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
from millstream.topology.options.join_windows import JoinWindows
from millstream.topology.options.materialized import Materialized
from millstream.topology.options.suppressed import BufferConfig, Suppressed
from millstream.topology.options.trigger import Trigger
from millstream.topology.options.windows import (
    EmitStrategy,
    SessionWindows,
    SlidingWindows,
    TimeWindows,
    UnlimitedWindows,
)
from millstream.topology.physical.describe import TopologyDescription
from millstream.topology.physical.topology import Topology
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
]
