"""How large a batch of records each topic takes.

librdkafka does not split a batch that the broker finds too large, as Java's producer does: it must
not be made too large. Its `batch.size` counts bytes before compression, so that a batch of no more
than the topic's `max.message.bytes` is never refused. A record that is larger than that alone is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from millstream.clock import Clock
from millstream.errors import BrokerUnavailableError, StreamsError
from millstream.kafka.cluster.insisting import insist

_log = logging.getLogger(__name__)

_SETTING: Final = "max.message.bytes"
#: One attempt; the caller is told in between that it waits.
_ASK_TIMEOUT_MS: Final = 3_000


class TopicConfigs(Protocol):
    """The admin client, as far as reading topic configs goes."""

    def topic_configs(
        self, topics: Iterable[str], timeout_ms: int, /
    ) -> Mapping[str, Mapping[str, str | None]]: ...


class BatchLimits:
    """The `max.message.bytes` of topics, each asked for once, when it is first written to.

    Args:
        configs: knows the configs of topics.
        clock: where deadlines are measured.
        timeout_ms: how long the cluster may not answer (`task.timeout.ms`).
    """

    def __init__(self, configs: TopicConfigs, clock: Clock, timeout_ms: int) -> None:
        self._configs = configs
        self._clock = clock
        self._timeout_ms = timeout_ms

    def of(self, topic: str, on_wait: Callable[[], None]) -> int | None:
        """Bytes of the largest batch that the topic takes; None where the cluster does not tell.

        Args:
            topic: what is going to be written.
            on_wait: called now and then while the cluster does not answer.

        Raises:
            BrokerUnavailableError: no answer for the whole timeout.
        """
        try:
            found = insist(
                lambda: self._configs.topic_configs([topic], _ASK_TIMEOUT_MS),
                f"{topic} cannot be written to",
                self._timeout_ms,
                self._clock,
                on_wait,
            )
        except BrokerUnavailableError:
            raise
        except StreamsError as error:
            _log.info(
                "%s of %s is not known, so batches may turn out too large for it; lower the "
                "producer's batch.size then, or grant DESCRIBE_CONFIGS on the topic: %s",
                _SETTING,
                topic,
                error,
            )
            return None
        value = found.get(topic, {}).get(_SETTING)
        return None if value is None else int(value)
