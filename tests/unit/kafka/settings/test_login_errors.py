"""Connection errors that are failed logins, and their messages, for both libraries."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError
from kafka import errors as client_errors

from millstream.clock import ManualClock
from millstream.errors import AccessDeniedError
from millstream.kafka.librdkafka_errors import is_access_error, login_error
from millstream.kafka.membership.member_errors import commit_error, is_login_error, membership_error
from millstream.kafka.settings.tokens import LibrdkafkaTokens, TokenSupply

_SETTINGS = {"bootstrap.servers": "a:1"}
_REQUIRED = "ssl://a:1/bootstrap: Receive failed: error:0A00045C:SSL routines::{}"


def test_a_broker_that_requires_a_certificate() -> None:
    """TLS reports this by an alert; the libraries report a broken connection."""
    for alert in ("alert bad certificate: SSL alert number 42", "required: SSL alert number 116"):
        theirs = KafkaError(KafkaError.NETWORK_EXCEPTION, _REQUIRED.format(alert))
        assert is_access_error(theirs)
        assert "Set ssl.keystore.location" in str(login_error(theirs, _SETTINGS))
    other = KafkaError(KafkaError.NETWORK_EXCEPTION, _REQUIRED.format("SSL alert number 80"))
    assert not is_access_error(other)
    for name in ("SSLV3_ALERT_BAD_CERTIFICATE", "TLSV13_ALERT_CERTIFICATE_REQUIRED"):
        ours = client_errors.KafkaConnectionError(f"[SSL: {name}] (_ssl.c:2580)")
        assert is_login_error(ours)
        denied = membership_error(ours, group_id="g", instance_id=None)
        assert isinstance(denied, AccessDeniedError)
        assert "Set ssl.keystore.location" in str(denied)
    assert not is_login_error(client_errors.KafkaConnectionError("[SSL: INTERNAL_ERROR]"))


def test_a_login_too_soon_after_another_is_not_an_access_error() -> None:
    soon = "SASL OAUTHBEARER mechanism handshake failed: Broker: Request not valid in current SASL "
    assert not is_access_error(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, f"{soon}state"))
    assert is_access_error(KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, "wrong password"))


def test_the_error_of_the_token_function_replaces_that_of_the_library() -> None:
    def failing() -> tuple[str, float]:
        raise OSError("away")

    supply = TokenSupply(failing, ManualClock())
    settings = {**_SETTINGS, "oauth_cb": LibrdkafkaTokens(supply)}
    error = KafkaError(KafkaError.SASL_AUTHENTICATION_FAILED, "callback raised exception")
    assert "callback raised exception" in str(login_error(error, settings))
    with pytest.raises(AccessDeniedError):
        supply.token()
    assert "raised OSError: away" in str(login_error(error, settings))


@pytest.mark.parametrize(
    ("error", "right"),
    [
        (client_errors.GroupAuthorizationFailedError("g"), "READ on group g."),
        (client_errors.TopicAuthorizationFailedError("in-0"), "READ on topic in."),
    ],
)
def test_rejected_commits(error: BaseException, right: str) -> None:
    denied = commit_error(error, group_id="g", generation=1, user="ann")
    assert f"User:ann lacks {right}" in str(denied)
