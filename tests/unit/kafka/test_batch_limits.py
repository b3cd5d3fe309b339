"""How large a batch each topic takes, asked of a cluster that may not tell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import pytest

from millstream.clock import ManualClock
from millstream.errors import AccessDeniedError, BrokerUnavailableError, StreamsError
from millstream.kafka.data.batch_limits import BatchLimits


class Configs:
    """Stands in for the admin client: raises what it is given, then answers."""

    def __init__(self, *errors: StreamsError, answer: str | None = "20000") -> None:
        self.errors = list(errors)
        self.answer = answer

    def topic_configs(
        self, topics: Iterable[str], timeout_ms: int, /
    ) -> Mapping[str, Mapping[str, str | None]]:
        if self.errors:
            raise self.errors.pop(0)
        return {topic: {"max.message.bytes": self.answer} for topic in topics if topic != "gone"}


def limit(configs: Configs, topic: str = "out", timeout_ms: int = 1_000) -> int | None:
    waits: list[bool] = []
    found = BatchLimits(configs, ManualClock(), timeout_ms).of(topic, lambda: waits.append(True))
    assert len(waits) <= 2
    return found


def test_the_topics_own_limit() -> None:
    assert limit(Configs()) == 20_000


def test_what_the_cluster_does_not_tell_limits_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """No right to see the config, no such topic: sending will tell what is wrong, if anything."""
    caplog.set_level("INFO")
    assert limit(Configs(AccessDeniedError("no right to describe configs"))) is None
    assert "lower the producer's batch.size" in caplog.text
    assert limit(Configs(), "gone") is None
    assert limit(Configs(answer=None)) is None


def test_an_outage_is_waited_out_for_task_timeout() -> None:
    away = BrokerUnavailableError("no answer")
    assert limit(Configs(away, away)) == 20_000
    with pytest.raises(BrokerUnavailableError):
        limit(Configs(away), timeout_ms=0)
