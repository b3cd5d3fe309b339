"""Where rows of a table are sent: in transactions, whatever the application's guarantee is."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2, StreamsConfig
from millstream.kafka.settings.clients import create_client
from millstream.structured.lake.history_rows import target_of


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE_V2])
def test_librdkafka_takes_the_settings(guarantee: str) -> None:
    """Those of at least once let a record wait for longer than a transaction lasts."""
    config = StreamsConfig(
        application_id="shop", bootstrap_servers="localhost:1", processing_guarantee=guarantee
    )
    settings = target_of("clicks-history", config).settings
    producer = create_client(Producer, {**settings, "transactional.id": "shop-0"})
    assert isinstance(producer, Producer)


def test_a_long_commit_interval_is_no_matter() -> None:
    """With exactly once it would have to be shorter than a transaction."""
    config = StreamsConfig(
        application_id="shop", bootstrap_servers="localhost:1", commit_interval_ms=300_000
    )
    assert target_of("clicks-history", config).settings["transaction.timeout.ms"] == 60_000
