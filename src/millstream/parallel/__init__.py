"""Many tasks of one partition at a time, in order by key: Decaton's subscriptions."""

from millstream.metrics.values import Metric, Metrics
from millstream.parallel.config import SubscriptionConfig
from millstream.parallel.subscription import ProcessorSubscription
from millstream.subscriptions.completion import Completion
from millstream.subscriptions.context import ProcessingContext
from millstream.subscriptions.gathering.batching_processor import BatchedTask, BatchingProcessor
from millstream.subscriptions.gathering.compaction import Choice
from millstream.subscriptions.gathering.compaction_processor import CompactionProcessor
from millstream.subscriptions.opentelemetry import OpenTelemetryTracing
from millstream.subscriptions.processors import Scope, Scoped, TaskProcessor
from millstream.subscriptions.properties.file import PropertiesFile
from millstream.subscriptions.properties.properties import Properties
from millstream.subscriptions.retry import ExponentialBackoff, Retry
from millstream.subscriptions.tasks.extraction import ConsumedRecord, DecatonTask
from millstream.subscriptions.tasks.metadata import DecatonMetadata
from millstream.subscriptions.tasks.producer import PutResult, TaskProducer
from millstream.subscriptions.tracing import TaskTrace, Tracing

__all__ = [
    "BatchedTask",
    "BatchingProcessor",
    "Choice",
    "CompactionProcessor",
    "Completion",
    "ConsumedRecord",
    "DecatonMetadata",
    "DecatonTask",
    "ExponentialBackoff",
    "Metric",
    "Metrics",
    "OpenTelemetryTracing",
    "ProcessingContext",
    "ProcessorSubscription",
    "Properties",
    "PropertiesFile",
    "PutResult",
    "Retry",
    "Scope",
    "Scoped",
    "SubscriptionConfig",
    "TaskProcessor",
    "TaskProducer",
    "TaskTrace",
    "Tracing",
]
