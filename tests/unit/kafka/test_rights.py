"""Errors for want of a right: who lacks what, and how it is granted."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError

from millstream.errors import AccessDeniedError
from millstream.kafka.data.producer_errors import delivery_error, transaction_error
from millstream.kafka.librdkafka_errors import client_error
from millstream.kafka.rights import NOTHING_KNOWN, Needs, Right, missing_right, told, user_of

_PROCESS = "0f9dadb6-3632-492e-b754-e1f529391547"


@pytest.mark.parametrize(
    ("code", "needs", "right"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, Needs(operation="Write"), "WRITE on topic in"),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NOTHING_KNOWN, "DESCRIBE on topic in"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, Needs(name="shop"), "READ on group shop"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            Needs(name="shop-1"),
            "WRITE on transactional id shop-1",
        ),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, NOTHING_KNOWN, "IDEMPOTENTWRITE on cluster"),
        (KafkaError.CLUSTER_AUTHORIZATION_FAILED, Needs(operation="Create"), "CREATE on cluster"),
    ],
)
def test_what_is_missing(code: int, needs: Needs, right: str) -> None:
    assert str(missing_right(code, "in", needs)) == right


def test_other_errors_are_about_no_right() -> None:
    assert missing_right(KafkaError.REQUEST_TIMED_OUT, "in", NOTHING_KNOWN) is None


@pytest.mark.parametrize(
    ("right", "resource"),
    [
        (Right("Read", "topic", "in"), "--operation Read --topic 'in'"),
        (Right("Read", "topic", ""), "--operation Read --topic '...'"),
        (Right("Create", "cluster", ""), "--operation Create --cluster"),
        (
            Right("Write", "transactional-id", f"shop-{_PROCESS}-12"),
            "--operation Write --transactional-id 'shop-' --resource-pattern-type prefixed",
        ),
    ],
)
def test_how_it_is_granted(right: Right, resource: str) -> None:
    command = "kafka-acls --bootstrap-server ... --add --allow-principal 'User:{}' "
    assert right.command("ann") == command.format("ann") + resource
    assert right.command("") == command.format("...") + resource


def test_several_rights_and_an_unknown_user() -> None:
    rights = [Right("Read", "topic", "in"), Right("Write", "topic", "shop-counts-changelog")]
    text = told([*rights, rights[0]], "")
    assert text.startswith("The user lacks READ on topic in, WRITE on topic shop-counts-changelog.")
    assert text.count("kafka-acls") == 2
    assert text.endswith("grant these with --resource-pattern-type prefixed.")
    assert "prefixed" not in told(rights[:1], "ann")


@pytest.mark.parametrize(
    ("settings", "user"),
    [
        ({"sasl.mechanism": "PLAIN", "sasl.username": "ann"}, "ann"),
        ({"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "ann"}, "ann"),
        # What a token says is known to the broker only, and so is what a certificate means to it.
        ({"sasl.mechanism": "OAUTHBEARER", "sasl.username": "ann"}, ""),
        ({}, ""),
    ],
)
def test_who_it_is(settings: dict[str, str], user: str) -> None:
    assert user_of(settings) == user


def test_errors_of_clients_name_it() -> None:
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    read = client_error(denied, "Reading records", topic="in", needs=Needs("ann", "Read"))
    assert isinstance(read, AccessDeniedError)
    assert "refused by the broker: User:ann lacks READ on topic in." in str(read)
    assert "User:ann lacks WRITE on topic out." in str(delivery_error(denied, "out", 1, user="ann"))


def test_a_transaction_tells_which_topics_it_may_be() -> None:
    denied = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    needs = Needs("ann", "Write", "shop-1")
    one = transaction_error(denied, "Committing", "", needs, ["a"])
    assert (one.topic, str(one).count("kafka-acls")) == ("a", 1)
    two = transaction_error(denied, "Committing", "", needs, ["b", "a"])
    assert "one is refused, or more. User:ann lacks WRITE on topic a, WRITE on topic b" in str(two)
    assert two.topic is None
