"""Test support for applications: a driver without a broker, and a real broker.

`driver` contains `TopologyTestDriver`, and `driver_topics` its topics. They use `stepping`, which
runs a topology as one task, with the same code as in an application, and lets tests inspect pending
state between steps. `driver_dataframes` runs DataFrame functions, and `topology_metadata` lists
topics. `mock_context` is a context for a single processor, and `pytest_plugin` provides fixtures.
"""

from __future__ import annotations

from millstream.embedded.embedded_kafka import EmbeddedKafka
from millstream.embedded.node import EmbeddedBroker
from millstream.metrics.values import MetricName
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
