"""Whether brokers create a topic by themselves when somebody writes to it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it has no __all__
    AdminClient,
    ConfigResource,
    ResourceType,
)

from millstream.kafka.client_settings import create_client

_SETTING = "auto.create.topics.enable"


def creates_topics(settings: Mapping[str, Any], timeout_ms: int) -> bool | None:
    """What the brokers' setting `auto.create.topics.enable` is.

    Args:
        settings: from `librdkafka_settings` for "admin".
        timeout_ms: for the two questions together.

    Returns:
        None if no broker tells: the user may not read its settings, or it does not answer in time.

    Raises:
        ConfigError: librdkafka refuses a setting.
    """
    admin: AdminClient = create_client(AdminClient, settings)
    timeout_s = timeout_ms / 2_000
    try:
        broker = next(iter(admin.list_topics(timeout=timeout_s).brokers))
        asked = ConfigResource(ResourceType.BROKER, str(broker))
        (answer,) = admin.describe_configs([asked], request_timeout=timeout_s).values()
        value = answer.result(timeout_s)[_SETTING].value
    except (KafkaException, FutureTimeoutError, StopIteration, KeyError):
        return None
    return bool(value == "true") if value else None
