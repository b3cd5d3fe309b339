"""Which topics there are, asked by a group member without creating any."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final

from kafka import errors as client_errors

from millstream.kafka.kafka_python import MetadataRequest
from millstream.kafka.member.link import MemberLink

#: Short, because a member waits for it; whoever asks tries again.
_TIMEOUT_MS: Final = 4_000


async def partition_counts(link: MemberLink, topics: Collection[str]) -> dict[str, int]:
    """The partition count of each of `topics` that exists.

    Raises:
        TopicAuthorizationFailedError: of the client, with the names of the topics.
        RetriableError: of the client; no broker answered in time.
    """
    if not topics:
        return {}
    wanted = [MetadataRequest.MetadataRequestTopic(name=topic) for topic in sorted(topics)]
    counts: dict[str, int] = {}
    refused: list[str] = []
    for topic in (await _metadata(link, wanted)).topics:
        error_type = client_errors.for_code(topic.error_code)
        if error_type is client_errors.NoError:
            counts[topic.name] = len(topic.partitions)
        elif issubclass(error_type, client_errors.TopicAuthorizationFailedError):
            refused.append(topic.name)
    if refused:
        raise client_errors.TopicAuthorizationFailedError(", ".join(sorted(refused)))
    return counts


async def topics_matching(link: MemberLink, pattern: re.Pattern[str]) -> tuple[str, ...]:
    """The topics whose whole name matches, Kafka's internal ones aside. Raises as above.

    Follows Java's consumer: a pattern must match from end to end.
    """
    return tuple(
        sorted(
            topic.name
            for topic in (await _metadata(link, MetadataRequest.ALL_TOPICS)).topics
            if not topic.error_code and not topic.is_internal and pattern.fullmatch(topic.name)
        )
    )


async def _metadata(link: MemberLink, topics: Any) -> Any:
    request = MetadataRequest(
        topics=topics,
        # Said here, because kafka-python 3.0 does not hand its setting of that name on.
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )
    return await link.wait_for(link.send(request), _TIMEOUT_MS)
