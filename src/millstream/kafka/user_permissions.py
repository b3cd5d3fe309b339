"""The permissions that an operation needs, and how to grant them.

Error messages contain this information.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError

#: The kind of resource of each authorization error.
_KINDS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional-id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_ANY: Final = "..."
_PROCESS_SUFFIX: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+$")
_INTERNAL: Final = ("-changelog", "-repartition")


@dataclass(frozen=True)
class Permission:
    """The permission for an operation on a resource, in the terms of `kafka-acls`."""

    operation: str
    #: topic, group, transactional-id or cluster.
    kind: str
    #: Empty if unknown.
    name: str

    def __str__(self) -> str:
        """Return a description such as `READ on topic in`."""
        named = "" if self.kind == "cluster" else f" {self.name}".rstrip()
        return f"{self.operation.upper()} on {self.kind.replace('-', ' ')}{named}"

    def command(self, user: str) -> str:
        """Return the command that grants the permission; `user` is empty if unknown."""
        resource = "" if self.kind == "cluster" else f" '{self.name or _ANY}'"
        if self.kind == "transactional-id":
            # Each process has its own id, so the permission is for their common prefix.
            prefix = _PROCESS_SUFFIX.sub("", self.name)
            resource = f" '{prefix or _ANY}' --resource-pattern-type prefixed"
        return (
            f"kafka-acls --bootstrap-server {_ANY} --add --allow-principal 'User:{user or _ANY}' "
            f"--operation {self.operation} --{self.kind}{resource}"
        )


class AccessContext(NamedTuple):
    """The user and the operation of a request, if known."""

    user: str = ""
    operation: str = "Describe"
    #: The group or transactional id of the operation, if any.
    name: str = ""


#: For operations without further details.
NO_ACCESS_CONTEXT: Final = AccessContext()


def missing_permission(code: int, topic: str | None, access: AccessContext) -> Permission | None:
    """Return the missing permission that caused a broker's error.

    Returns None for other errors.
    """
    kind = _KINDS.get(code)
    if kind is None:
        return None
    if kind == "topic":
        return Permission(access.operation, kind, topic or "")
    if kind == "cluster":
        # Only these operations on a cluster are rejected in this way.
        creates = access.operation == "Create"
        return Permission("Create" if creates else "IdempotentWrite", kind, "")
    return Permission("Write" if kind == "transactional-id" else "Read", kind, access.name)


def permission_advice(permissions: Iterable[Permission], user: str) -> str:
    """Describe missing permissions and how to grant them, in one or more sentences."""
    missing = list(dict.fromkeys(permissions))
    subject = f"User:{user}" if user else "The user"
    commands = "; ".join(permission.command(user) for permission in missing)
    more = ""
    if any(
        permission.kind == "topic" and permission.name.endswith(_INTERNAL) for permission in missing
    ):
        more = (
            ". An application needs READ, WRITE, CREATE and DELETE on all topics that begin with "
            "its id: grant these with --resource-pattern-type prefixed"
        )
    lacking = ", ".join(map(str, missing))
    return f"{subject} lacks {lacking}. Grant access, and start again: {commands}{more}."


def user_of(settings: Mapping[str, Any]) -> str:
    """Return a client's user name.

    Empty if only the broker determines the name (certificates).
    """
    mechanism = settings.get("sasl.mechanism") or settings.get("sasl_mechanism")
    if mechanism not in _PASSWORD_MECHANISMS:
        return ""
    return str(settings.get("sasl.username") or settings.get("sasl_plain_username") or "")
