"""Authorization errors: the missing permission, and the command that grants it."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from millstream.errors import AccessDeniedError
from millstream.kafka.clients.producer_errors import delivery_error, transaction_error
from millstream.kafka.librdkafka_errors import client_error
from millstream.kafka.user_permissions import (
    NO_ACCESS_CONTEXT,
    AccessContext,
    Permission,
    missing_permission,
    permission_advice,
    user_of,
)

_PROCESS = "0f9dadb6-3632-492e-b754-e1f529391547"


@pytest.mark.parametrize(
    ("code", "access", "permission"),
    [
        (
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
            AccessContext(operation="Write"),
            "WRITE on topic in",
        ),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NO_ACCESS_CONTEXT, "DESCRIBE on topic in"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, AccessContext(name="shop"), "READ on group shop"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            AccessContext(name="shop-1"),
            "WRITE on transactional id shop-1",
        ),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, NO_ACCESS_CONTEXT, "IDEMPOTENTWRITE on cluster"),
        (
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            AccessContext(operation="Create"),
            "CREATE on cluster",
        ),
    ],
)
def test_missing_permissions(code: int, access: AccessContext, permission: str) -> None:
    assert str(missing_permission(code, "in", access)) == permission


def test_other_errors_have_no_missing_permission() -> None:
    assert missing_permission(KafkaError.REQUEST_TIMED_OUT, "in", NO_ACCESS_CONTEXT) is None


@pytest.mark.parametrize(
    ("permission", "resource"),
    [
        (Permission("Read", "topic", "in"), "--operation Read --topic 'in'"),
        (Permission("Read", "topic", ""), "--operation Read --topic '...'"),
        (Permission("Create", "cluster", ""), "--operation Create --cluster"),
        (
            Permission("Write", "transactional-id", f"shop-{_PROCESS}-12"),
            "--operation Write --transactional-id 'shop-' --resource-pattern-type prefixed",
        ),
    ],
)
def test_grant_commands(permission: Permission, resource: str) -> None:
    command = "kafka-acls --bootstrap-server ... --add --allow-principal 'User:{}' "
    assert permission.command("ann") == command.format("ann") + resource
    assert permission.command("") == command.format("...") + resource


def test_advice_for_several_permissions_and_an_unknown_user() -> None:
    permissions = [
        Permission("Read", "topic", "in"),
        Permission("Write", "topic", "shop-counts-changelog"),
    ]
    text = permission_advice([*permissions, permissions[0]], "")
    assert text.startswith("The user lacks READ on topic in, WRITE on topic shop-counts-changelog.")
    assert text.count("kafka-acls") == 2
    assert text.endswith("grant these with --resource-pattern-type prefixed.")
    assert "prefixed" not in permission_advice(permissions[:1], "ann")


@pytest.mark.parametrize(
    ("settings", "user"),
    [
        ({"sasl.mechanism": "PLAIN", "sasl.username": "ann"}, "ann"),
        ({"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "ann"}, "ann"),
        # Only the broker interprets tokens and certificates.
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.username": "ann"}, ""),
        ({}, ""),
    ],
)
def test_user_names(settings: dict[str, str], user: str) -> None:
    assert user_of(settings) == user


def test_client_errors_name_the_missing_permission() -> None:
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    read = client_error(denied, "Reading records", topic="in", access=AccessContext("ann", "Read"))
    assert isinstance(read, AccessDeniedError)
    assert "rejected by the broker: User:ann lacks READ on topic in." in str(read)
    assert "User:ann lacks WRITE on topic out." in str(delivery_error(denied, "out", 1, user="ann"))


def test_transaction_errors_list_the_possible_topics() -> None:
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    access = AccessContext("ann", "Write", "shop-1")
    one = transaction_error(denied, "Committing", "", access, ["a"])
    assert (one.topic, str(one).count("kafka-acls")) == ("a", 1)
    two = transaction_error(denied, "Committing", "", access, ["b", "a"])
    assert (
        "One or more of its topics were rejected. User:ann lacks WRITE on topic a, WRITE on topic b"
        in str(two)
    )
    assert two.topic is None
