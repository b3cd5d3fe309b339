"""Many records of one partition at a time, as Decaton does it."""

from millstream.parallel.tasks.extraction import ConsumedRecord, DecatonTask
from millstream.parallel.tasks.metadata import DecatonMetadata
from millstream.parallel.tasks.producer import PutResult, TaskProducer

__all__ = ["ConsumedRecord", "DecatonMetadata", "DecatonTask", "PutResult", "TaskProducer"]
