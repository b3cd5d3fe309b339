"""How metrics are called."""

from __future__ import annotations

from typing import Final, NamedTuple

#: Kafka Streams' group of metrics of nodes.
NODE_GROUP: Final = "stream-processor-node-metrics"


class MetricName(NamedTuple):
    """What a metric is called in Kafka Streams.

    Args:
        name: for example `dropped-records-total`.
        group: for example `stream-task-metrics`.
        tags: pairs of a name and a value, such as the id of the task.

    Example:
        >>> MetricName("dropped-records-total", "stream-task-metrics", (("task-id", "0_0"),)).name
        'dropped-records-total'
    """

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()
