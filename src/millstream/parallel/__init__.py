"""Many tasks of one partition at a time, in order by key: Decaton's subscriptions."""

from millstream.subscriptions.properties.file import PropertiesFile
from millstream.subscriptions.properties.properties import Properties
from millstream.subscriptions.retry import ExponentialBackoff, Retry
from millstream.subscriptions.tasks.extraction import ConsumedRecord, DecatonTask
from millstream.subscriptions.tasks.metadata import DecatonMetadata
from millstream.subscriptions.tasks.producer import PutResult, TaskProducer

__all__ = [
    "ConsumedRecord",
    "DecatonMetadata",
    "DecatonTask",
    "ExponentialBackoff",
    "Properties",
    "PropertiesFile",
    "PutResult",
    "Retry",
    "TaskProducer",
]
