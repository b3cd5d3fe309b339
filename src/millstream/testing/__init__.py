"""For tests of stream processing applications: a driver without broker, and a real broker."""

from __future__ import annotations

from millstream.embedded.broker import EmbeddedKafka
from millstream.embedded.node import EmbeddedBroker
from millstream.metrics.names import MetricName
from millstream.testing.driver import TopologyTestDriver
from millstream.testing.driver_topics import TestInputTopic, TestOutputTopic
from millstream.testing.mock_context import (
    CapturedForward,
    CapturedPunctuator,
    MockProcessorContext,
)

__all__ = [
    "CapturedForward",
    "CapturedPunctuator",
    "EmbeddedBroker",
    "EmbeddedKafka",
    "MetricName",
    "MockProcessorContext",
    "TestInputTopic",
    "TestOutputTopic",
    "TopologyTestDriver",
]
