"""What the user lacks to run an application, as far as the cluster tells before anything is
started.

Of topics that exist brokers tell what may be done with them. Topics that are yet to be created,
transactional ids and the creation itself are left to the threads.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from millstream.errors import AccessDeniedError, BrokerUnavailableError
from millstream.kafka.cluster.rights_admin import RightsAdmin
from millstream.kafka.rights import Right, told

logger = logging.getLogger(__name__)

_ANSWER_MS = 2_000


class StartRights:
    """Compares what an application does with what its user may do.

    Args:
        group: the application's consumer group.
        user: as whom it logs in; empty if only the broker knows.
        read: the topics of others that it reads.
        written: the topics of others that it writes.
        internal: its own topics.
    """

    def __init__(
        self,
        group: str,
        user: str,
        *,
        read: Collection[str],
        written: Collection[str],
        internal: Collection[str],
    ) -> None:
        self._group = group
        self._user = user
        self._needed: dict[str, set[str]] = {}
        for operation, topics in (("Read", read), ("Write", written)):
            for topic in (*sorted(topics), *sorted(internal)):
                self._needed.setdefault(topic, set()).add(operation)

    def check(self, admin: RightsAdmin) -> None:
        """Ask about the topics and the group.

        Raises:
            AccessDeniedError: rights are missing; names them all.
        """
        missing: list[Right] = []
        try:
            missing += self._missing_of_topics(admin)
            missing += self._missing_of_group(admin)
        except BrokerUnavailableError as error:
            # Whoever needs the answer more waits for it.
            logger.debug("it is not known what the user may do: %s", error)
        if missing:
            topics = [right.name for right in missing if right.kind == "topic"]
            raise AccessDeniedError(told(missing, self._user), topic=next(iter(topics), None))

    def _missing_of_topics(self, admin: RightsAdmin) -> list[Right]:
        allowed = admin.allowed_on_topics(self._needed, _ANSWER_MS)
        return [
            Right(operation, "topic", topic)
            for topic, operations in self._needed.items()
            for operation in sorted(operations)
            if topic in allowed and operation.upper() not in allowed[topic]
        ]

    def _missing_of_group(self, admin: RightsAdmin) -> list[Right]:
        allowed = admin.allowed_on_group(self._group, _ANSWER_MS)
        is_missing = allowed is not None and "READ" not in allowed
        return [Right("Read", "group", self._group)] if is_missing else []
