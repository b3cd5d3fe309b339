"""For tests of stream processing applications: a driver without broker, and a real broker."""

from __future__ import annotations

from millstream.kafka.embedded import EmbeddedKafka
from millstream.testing.driver import TopologyTestDriver
from millstream.testing.driver_topics import TestInputTopic, TestOutputTopic
from millstream.testing.driver_views import MetricName

__all__ = [
    "EmbeddedKafka",
    "MetricName",
    "TestInputTopic",
    "TestOutputTopic",
    "TopologyTestDriver",
]
