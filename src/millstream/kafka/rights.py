"""What a user has to be allowed to do, and how that is granted: for errors that say what to do."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError

#: By what kind of resource a broker refuses an operation.
_KINDS: Final = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "group",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "transactional-id",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "cluster",
}
_PASSWORD_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_ANY: Final = "..."
_OF_A_PROCESS: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-\d+$")
_INTERNAL: Final = ("-changelog", "-repartition")


@dataclass(frozen=True)
class Right:
    """One operation on one resource.

    Args:
        operation: as `kafka-acls` calls it: Read.
        kind: of the resource, as `kafka-acls` calls it: topic, group, transactional-id, cluster.
        name: of the resource; empty if it is not known.
    """

    operation: str
    kind: str
    name: str

    def __str__(self) -> str:
        """For example `READ on topic in`."""
        named = "" if self.kind == "cluster" else f" {self.name}".rstrip()
        return f"{self.operation.upper()} on {self.kind.replace('-', ' ')}{named}"

    def command(self, user: str) -> str:
        """What an administrator types to grant it.

        Args:
            user: to whom; empty if that is not known.
        """
        resource = "" if self.kind == "cluster" else f" '{self.name or _ANY}'"
        if self.kind == "transactional-id":
            # Each process has one of its own: only what they begin with can be granted.
            beginning = _OF_A_PROCESS.sub("", self.name)
            resource = f" '{beginning or _ANY}' --resource-pattern-type prefixed"
        return (
            f"kafka-acls --bootstrap-server {_ANY} --add --allow-principal 'User:{user or _ANY}' "
            f"--operation {self.operation} --{self.kind}{resource}"
        )


class Needs(NamedTuple):
    """What an operation needs, as far as whoever asks for it knows.

    Args:
        user: who asks; empty if that is not known.
        operation: on the resource, as `kafka-acls` calls it.
        name: of the group or transactional id that it is about, if it is about one.
    """

    user: str = ""
    operation: str = "Describe"
    name: str = ""


#: Of an operation of which nobody says more.
NOTHING_KNOWN: Final = Needs()


def missing_right(code: int, topic: str | None, needs: Needs) -> Right | None:
    """The right for want of which a broker refuses something; None if that is not why.

    Args:
        code: of the error that it answered with.
        topic: the topic concerned, if any.
        needs: what was asked for.
    """
    kind = _KINDS.get(code)
    if kind is None:
        return None
    if kind == "topic":
        return Right(needs.operation, kind, topic or "")
    if kind == "cluster":
        # Of what is asked of a cluster, only these are refused in this way.
        creates = needs.operation == "Create"
        return Right("Create" if creates else "IdempotentWrite", kind, "")
    return Right("Write" if kind == "transactional-id" else "Read", kind, needs.name)


def told(rights: Iterable[Right], user: str) -> str:
    """Who lacks what, and how to grant it: one or more sentences.

    Args:
        rights: those that are missing.
        user: who lacks them; empty if that is not known.
    """
    missing = list(dict.fromkeys(rights))
    who = f"User:{user}" if user else "The user"
    commands = "; ".join(right.command(user) for right in missing)
    more = ""
    if any(right.kind == "topic" and right.name.endswith(_INTERNAL) for right in missing):
        more = (
            ". Of the topics that begin with its id an application has to READ, WRITE, CREATE and "
            "DELETE all: grant these with --resource-pattern-type prefixed"
        )
    lacking = ", ".join(map(str, missing))
    return f"{who} lacks {lacking}. Grant it, and start again: {commands}{more}."


def user_of(settings: Mapping[str, Any]) -> str:
    """As whom a client logs in; empty where only the broker knows, as with certificates.

    Args:
        settings: of librdkafka or of kafka-python.
    """
    mechanism = settings.get("sasl.mechanism") or settings.get("sasl_mechanism")
    if mechanism not in _PASSWORD_MECHANISMS:
        return ""
    return str(settings.get("sasl.username") or settings.get("sasl_plain_username") or "")
