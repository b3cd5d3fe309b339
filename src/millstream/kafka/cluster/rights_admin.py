"""Asks the cluster what its user may do."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from confluent_kafka import KafkaError, TopicCollection

from millstream.clock import Deadline
from millstream.kafka.cluster.admin import ClusterAdmin

_TIMEOUT_MS: Final = 30_000


class RightsAdmin(ClusterAdmin):
    """An admin client that knows about rights (KIP-430)."""

    def allowed_on_topics(
        self, topics: Iterable[str], timeout_ms: int = _TIMEOUT_MS
    ) -> dict[str, frozenset[str]]:
        """What may be done with each topic, such as READ.

        Left out are topics that do not exist, as far as that may be known, and those of which the
        broker does not tell.

        Raises:
            BrokerUnavailableError: no broker answered in time.
        """
        asked = list(topics)
        if not asked:
            return {}
        answers, errors = self._ask_once(
            self._client,
            lambda client, timeout_s: client.describe_topics(
                TopicCollection(asked),
                include_authorized_operations=True,
                request_timeout=timeout_s,
            ),
            Deadline(self._clock, timeout_ms),
            "Looking up topics",
        )
        found = {topic: _names(answer) for topic, answer in answers.items()}
        # Who sees a topic may at least describe it.
        found = {topic: names for topic, names in found.items() if names}
        for topic, error in errors.items():
            if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                found[topic] = frozenset()
        return found

    def allowed_on_group(self, group: str, timeout_ms: int = _TIMEOUT_MS) -> frozenset[str] | None:
        """What may be done with a group, which need not exist; None where the broker does not tell.

        Raises:
            BrokerUnavailableError: no broker answered in time.
        """
        answers, errors = self._ask_once(
            self._client,
            lambda client, timeout_s: client.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=timeout_s
            ),
            Deadline(self._clock, timeout_ms),
            "Looking up the group",
        )
        for error in errors.values():
            # Others may pass: the first group of a cluster waits until its topic of offsets is
            # there.
            is_refused = error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED
            return frozenset() if is_refused else None
        return _names(answers[group]) or None


def _names(described: Any) -> frozenset[str]:
    return frozenset(operation.name for operation in described.authorized_operations or ())
