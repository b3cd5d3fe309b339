"""What is measured at the edges of a sub-topology: its sources, sinks and last nodes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from millstream.metrics.names import NODE_GROUP
from millstream.metrics.registry import RecordingLevel, Scope
from millstream.metrics.sensors import Sensor
from millstream.operators.batch import Batch
from millstream.runtime.task.queues.raw_records import RawRecords
from millstream.runtime.task.task_meters import TaskMeters
from millstream.topology.physical.nodes import Node, SourceNode

TOPIC_GROUP: Final = "stream-topic-metrics"

#: Of how many records of a batch the age is measured, and, of larger batches that follow each other
#: quickly, after how long that of the next one is.
_SAMPLE: Final = 8
_SAMPLE_MS: Final = 10
#: How many ages wait at most, of records that come one by one.
_MOST_WAITING: Final = 256


class NodeMeter:
    """How old records are when they come to a node: wall clock minus timestamp, in milliseconds.

    Of a large batch no more than 9 are looked at, evenly spread, the first and the last included,
    and of large batches one in 10 ms: 2 us for such a batch, 0.4 us for the others, whatever their
    size. The clock is read once for all that a batch has caused.

    Args:
        scope: of the task.
        node: the node's name.
        lateness: of a source: told by how much records come after the stream time; records are
            counted there as well.
    """

    __slots__ = ("_clock", "_latency", "_lateness", "_processed", "_sampled_ms", "_waiting")

    def __init__(self, scope: Scope, node: str, lateness: Sensor | None = None) -> None:
        part = scope.part(processor_node_id=node)
        self._clock = scope.clock
        self._latency = part.average_lowest_highest(NODE_GROUP, "record-e2e-latency")
        self._processed = part.sensor(RecordingLevel.TRACE)
        self._lateness = lateness if scope.records(RecordingLevel.DEBUG) else None
        if lateness is not None:
            self._processed = part.rate_and_total(NODE_GROUP, "process", RecordingLevel.DEBUG)
        self._waiting: list[int] = []
        #: When a large batch was looked at last.
        self._sampled_ms = -_SAMPLE_MS

    def entered(self, batch: Batch) -> None:
        """The source hands records on."""
        timestamps = batch.timestamps
        count = len(timestamps)
        self._processed.record_many(count, count, count, count)
        if count <= _SAMPLE:
            self._aged(timestamps)
        elif self._is_due():
            self._aged(_sample(timestamps))
        if self._lateness is not None:
            late_ms = [
                stream_time - timestamp
                for row, timestamp in zip(batch.rows, batch.timestamps, strict=True)
                if (stream_time := batch.origin.stream_time(row)) is not None
            ]
            self._lateness.record_many(
                len(late_ms), sum(late_ms), min(late_ms, default=0), max(late_ms, default=0)
            )

    def passed(self, timestamps: Sequence[int]) -> None:
        """Records have come to the node.

        Args:
            timestamps: of the records, at least one.
        """
        count, waiting = len(timestamps), self._waiting
        self._processed.record_many(count, count, count, count)
        if len(waiting) >= _MOST_WAITING:
            return
        if count <= _SAMPLE:
            waiting += timestamps
        elif self._is_due():
            waiting += _sample(timestamps)

    def settle(self) -> None:
        """What they have caused is done, as far as it is done at once."""
        waiting = self._waiting
        if waiting:
            self._aged(waiting)
            waiting.clear()

    def _is_due(self) -> bool:
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._sampled_ms < _SAMPLE_MS:
            return False
        self._sampled_ms = now_ms
        return True

    def _aged(self, timestamps: Sequence[int]) -> None:
        count, now_ms = len(timestamps), self._clock.now_ms()
        total = count * now_ms - sum(timestamps)
        self._latency.record_many(count, total, now_ms - max(timestamps), now_ms - min(timestamps))


def _sample(timestamps: Sequence[int]) -> list[int]:
    """Of many the first, the last, and others evenly spread."""
    return [*timestamps[:: -(-len(timestamps) // _SAMPLE)], timestamps[-1]]


def node_meters(meters: TaskMeters, nodes: Collection[Node]) -> dict[str, NodeMeter]:
    """Of the sources of a task, and of the nodes that no other one follows."""
    parents = {parent for node in nodes for parent in _parents_of(node)}
    last = {node.name: None for node in nodes if node.name not in parents}
    sources = {node.name: meters.lateness for node in nodes if isinstance(node, SourceNode)}
    return {name: NodeMeter(meters.scope, name, of) for name, of in {**last, **sources}.items()}


def _parents_of(node: Node) -> Collection[str]:
    """The nodes in front of a node."""
    return () if isinstance(node, SourceNode) else node.parents


class ConsumedMeter:
    """What a source reads of one topic.

    Bytes, keys and values together, are counted at the level DEBUG: 25 ns a record.

    Args:
        scope: of the task.
        node: the source.
        topic: its real name.
    """

    __slots__ = ("_counts_bytes", "_flow")

    def __init__(self, scope: Scope, node: str, topic: str) -> None:
        self._flow = _Flow(scope, node, topic, "consumed")
        self._counts_bytes = scope.records(RecordingLevel.DEBUG)

    def took(self, raw: RawRecords, rows: Sequence[int], count: int) -> None:
        """Records were taken to be processed.

        Args:
            raw: what they were read from.
            rows: which ones of it.
            count: how many.
        """
        self._flow.records += count
        if self._counts_bytes:
            keys, values = raw.keys, raw.values
            self._flow.bytes += sum(len(keys[row] or b"") + len(values[row] or b"") for row in rows)


class ProducedMeters:
    """What a sink writes, to each of its topics; see `ConsumedMeter`.

    Args:
        scope: of the task.
        node: the sink.
    """

    def __init__(self, scope: Scope, node: str) -> None:
        self._scope = scope
        self._node = node
        self._topics: dict[str, _Flow] = {}
        self._counts_bytes = scope.records(RecordingLevel.DEBUG)

    def sent(
        self, topic: str, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> None:
        """Records were handed to the producer."""
        flow = self._topics.get(topic)
        if flow is None:
            flow = self._topics[topic] = _Flow(self._scope, self._node, topic, "produced")
        flow.records += len(keys)
        if self._counts_bytes:
            flow.bytes += sum(len(key or b"") for key in keys)
            flow.bytes += sum(len(value or b"") for value in values)


class _Flow:
    """How much has gone between a node and a topic: totals alone, without a window."""

    __slots__ = ("bytes", "records")

    def __init__(self, scope: Scope, node: str, topic: str, what: str) -> None:
        self.records = 0
        self.bytes = 0
        part = scope.part(processor_node_id=node, topic=topic)
        part.gauge(TOPIC_GROUP, f"records-{what}-total", lambda: self.records)
        part.gauge(TOPIC_GROUP, f"bytes-{what}-total", lambda: self.bytes, RecordingLevel.DEBUG)
