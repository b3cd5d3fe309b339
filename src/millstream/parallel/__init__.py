"""Many tasks of one partition at a time, in order by key: Decaton's subscriptions."""

from millstream.parallel.config import SubscriptionConfig
from millstream.parallel.subscription import ProcessorSubscription
from millstream.subscriptions.completion import Completion
from millstream.subscriptions.context import ProcessingContext
from millstream.subscriptions.processors import Scope, Scoped, TaskProcessor
from millstream.subscriptions.properties.file import PropertiesFile
from millstream.subscriptions.properties.properties import Properties
from millstream.subscriptions.retry import ExponentialBackoff, Retry
from millstream.subscriptions.tasks.extraction import ConsumedRecord, DecatonTask
from millstream.subscriptions.tasks.metadata import DecatonMetadata
from millstream.subscriptions.tasks.producer import PutResult, TaskProducer

__all__ = [
    "Completion",
    "ConsumedRecord",
    "DecatonMetadata",
    "DecatonTask",
    "ExponentialBackoff",
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
]
