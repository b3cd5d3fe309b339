"""The maximum batch size of each topic, requested from the cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from millstream.clock import ManualClock
from millstream.errors import AccessDeniedError, BrokerUnavailableError, StreamsError
from millstream.kafka.clients.producer_clients import BatchLimits


class Configs:
    """Stands in for the admin client: raises the given errors, then returns configs."""

    def __init__(self, *errors: StreamsError, max_message_bytes: str | None = "20000") -> None:
        self.errors = list(errors)
        self.max_message_bytes = max_message_bytes

    def topic_configs(
        self, topics: Iterable[str], timeout_ms: int, /
    ) -> Mapping[str, Mapping[str, str | None]]:
        if self.errors:
            raise self.errors.pop(0)
        return {
            topic: {"max.message.bytes": self.max_message_bytes}
            for topic in topics
            if topic != "gone"
        }


def limit(configs: Configs, topic: str = "out", timeout_ms: int = 1_000) -> int | None:
    waits: list[bool] = []
    found = BatchLimits(configs, ManualClock(), timeout_ms).of(topic, lambda: waits.append(True))
    assert len(waits) <= 2
    return found


def test_the_limit_of_a_topic() -> None:
    assert limit(Configs()) == 20_000


def test_an_unavailable_config_is_not_a_limit(caplog: pytest.LogCaptureFixture) -> None:
    """Missing permissions or topics are reported when records are sent."""
    caplog.set_level("INFO")
    assert limit(Configs(AccessDeniedError("no right to describe configs"))) is None
    assert "lower the producer's batch.size" in caplog.text
    assert limit(Configs(), "gone") is None
    assert limit(Configs(max_message_bytes=None)) is None


def test_requests_are_retried_for_task_timeout() -> None:
    away = BrokerUnavailableError("no answer")
    assert limit(Configs(away, away)) == 20_000
    with pytest.raises(BrokerUnavailableError):
        limit(Configs(away), timeout_ms=0)
