"""Settings for writing table rows: transactional, for all guarantees of the application."""

from __future__ import annotations

import pytest
from confluent_kafka import Producer

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2, StreamsConfig
from millstream.dataframes.lake.history_rows import transactional_output
from millstream.kafka.settings.librdkafka_settings import create_client


@pytest.mark.parametrize("guarantee", [AT_LEAST_ONCE, EXACTLY_ONCE_V2])
def test_librdkafka_accepts_the_settings(guarantee: str) -> None:
    """At-least-once settings let a record wait longer than a transaction lasts."""
    config = StreamsConfig(
        application_id="shop", bootstrap_servers="localhost:1", processing_guarantee=guarantee
    )
    settings = transactional_output("clicks-history", config).settings
    producer = create_client(Producer, {**settings, "transactional.id": "shop-0"})
    assert isinstance(producer, Producer)


def test_a_long_commit_interval_is_accepted() -> None:
    """Under exactly-once, it would have to be shorter than a transaction."""
    config = StreamsConfig(
        application_id="shop", bootstrap_servers="localhost:1", commit_interval_ms=300_000
    )
    assert (
        transactional_output("clicks-history", config).settings["transaction.timeout.ms"] == 60_000
    )
