"""Which topics of a cluster an application has made for itself."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

_ENDS: Final = (
    "-changelog",
    "-repartition",
    "-subscription-registration-topic",
    "-subscription-response-topic",
)
_FOREIGN_KEY: Final = re.compile(
    r".+-KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d+-topic"
)


class Internal(NamedTuple):
    """The internal topics of an application, and those that look like it and are another's.

    Args:
        own: its own.
        others: whose name begins with its id, but also with the longer id of another application:
            the topic, and that id.
        unknown: those that only look like it: the topology at hand does not have them.
    """

    own: list[str]
    others: dict[str, str]
    unknown: list[str]


def looks_internal(topic: str) -> bool:
    """Whether a topic is called as Kafka Streams calls internal ones."""
    return topic.endswith(_ENDS) or _FOREIGN_KEY.fullmatch(topic) is not None


def internal_topics(
    application_id: str,
    topics: Iterable[str],
    *,
    user_topics: Collection[str],
    groups: Iterable[str],
    known: Collection[str] | None = None,
) -> Internal:
    """The internal topics of an application.

    With a topology those that it has, and no others: a name proves nothing. Without one as Kafka's
    tool does it: what begins with the application's id and is called like one, unless the user has
    named it. Unlike there, those that begin with the id of another group of the cluster, `shop-eu`
    beside `shop`, are left to that one.

    Args:
        application_id: of the application.
        topics: all of the cluster.
        user_topics: which the user reads and writes, whatever they are called.
        groups: the ids of the cluster's groups.
        known: the internal topics of its topology; None if there is none at hand.
    """
    longer = [group for group in groups if group.startswith(f"{application_id}-")]
    found = Internal([], {}, [])
    for topic in sorted(topics):
        if topic in user_topics:
            continue
        if known is not None and topic in known:
            found.own.append(topic)
        elif topic.startswith(f"{application_id}-") and looks_internal(topic):
            owner = next((each for each in longer if topic.startswith(f"{each}-")), None)
            if owner is not None:
                found.others[topic] = owner
            elif known is None:
                found.own.append(topic)
            else:
                found.unknown.append(topic)
    return found
