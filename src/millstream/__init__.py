"""Millstream: Kafka Streams and Decaton for Python, on Spark.

A topology says what to compute, `KafkaStreams` runs it: tasks of Kafka partitions on stream
threads, each of which is a long-running Spark task with its state in RocksDB beside the code.
"""

from millstream.app import KafkaStreams, TaskMetadata, ThreadMetadata
from millstream.app_threads import StreamsUncaughtExceptionHandlerResponse
from millstream.config import AT_LEAST_ONCE, EXACTLY_ONCE_V2, StreamsConfig
from millstream.errors import (
    BrokerUnavailableError,
    ConfigError,
    CopartitionError,
    EmbeddedKafkaError,
    EnvironmentMismatchError,
    IllegalStateError,
    InvalidStateStoreError,
    LockError,
    MissingSourceTopicError,
    NotEnoughSlotsError,
    NotPicklableError,
    ProcessingError,
    ProductionError,
    SerializationError,
    SparkError,
    StreamsError,
    TaskAssignmentError,
    TaskCorruptedError,
    TaskMigratedError,
    TopologyError,
    UnknownStateStoreError,
)
from millstream.processor.handlers import (
    ErrorContext,
    HandlerResponse,
    LogAndContinueExceptionHandler,
    LogAndContinueProcessingExceptionHandler,
    LogAndFailExceptionHandler,
    LogAndFailProcessingExceptionHandler,
)
from millstream.record import (
    Record,
    RecordMetadata,
    TaskId,
    TopicPartition,
    ValueAndTimestamp,
)
from millstream.state.stores import Stores
from millstream.topology.builder import StreamsBuilder
from millstream.topology.describe import TopologyDescription
from millstream.topology.grouped import KGroupedStream
from millstream.topology.materialized import Materialized
from millstream.topology.stream import KStream
from millstream.topology.table import KTable
from millstream.topology.topology import Topology

__all__ = [
    "AT_LEAST_ONCE",
    "BrokerUnavailableError",
    "ConfigError",
    "CopartitionError",
    "EXACTLY_ONCE_V2",
    "EmbeddedKafkaError",
    "EnvironmentMismatchError",
    "ErrorContext",
    "HandlerResponse",
    "IllegalStateError",
    "InvalidStateStoreError",
    "KGroupedStream",
    "KStream",
    "KTable",
    "KafkaStreams",
    "LockError",
    "LogAndContinueExceptionHandler",
    "LogAndContinueProcessingExceptionHandler",
    "LogAndFailExceptionHandler",
    "LogAndFailProcessingExceptionHandler",
    "Materialized",
    "MissingSourceTopicError",
    "NotEnoughSlotsError",
    "NotPicklableError",
    "ProcessingError",
    "ProductionError",
    "Record",
    "RecordMetadata",
    "SerializationError",
    "SparkError",
    "Stores",
    "StreamsBuilder",
    "StreamsConfig",
    "StreamsError",
    "StreamsUncaughtExceptionHandlerResponse",
    "TaskAssignmentError",
    "TaskCorruptedError",
    "TaskId",
    "TaskMetadata",
    "TaskMigratedError",
    "ThreadMetadata",
    "TopicPartition",
    "Topology",
    "TopologyDescription",
    "TopologyError",
    "UnknownStateStoreError",
    "ValueAndTimestamp",
]
