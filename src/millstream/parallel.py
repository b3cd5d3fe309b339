"""Decaton's subscriptions: many concurrent tasks per partition, in order per key."""

from millstream.metrics.values import Metric, Metrics
from millstream.subscriptions.api.subscription import ProcessorSubscription
from millstream.subscriptions.api.subscription_config import SubscriptionConfig
from millstream.subscriptions.batching.batching_processor import BatchedTask, BatchingProcessor
from millstream.subscriptions.batching.compaction_processor import Choice, CompactionProcessor
from millstream.subscriptions.opentelemetry_tracing import OpenTelemetryTracing
from millstream.subscriptions.processing_context import ProcessingContext, TaskTrace
from millstream.subscriptions.properties.properties_file import PropertiesFile
from millstream.subscriptions.properties.subscription_properties import Properties
from millstream.subscriptions.task_completion import Completion
from millstream.subscriptions.task_processors import Scope, Scoped, TaskProcessor
from millstream.subscriptions.task_retry import ExponentialBackoff, Retry
from millstream.subscriptions.tasks.decaton_metadata import DecatonMetadata
from millstream.subscriptions.tasks.task_extraction import ConsumedRecord, DecatonTask
from millstream.subscriptions.tasks.task_producer import PutResult, TaskProducer
from millstream.subscriptions.tracing import Tracing

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
