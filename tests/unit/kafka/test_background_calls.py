"""Calls that may never return: a result belongs to its request and its transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from support.waiting import wait_for

from millstream.clock import SystemClock
from millstream.kafka.clients.transactional_producer import BackgroundCall

SOON_MS = 50
LONG_MS = 20_000


class BlockedCall:
    """A call that blocks until the test releases it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls_made = 0
        self._error = error
        self._released = threading.Event()

    def release(self) -> None:
        self._released.set()

    def __call__(self) -> None:
        self.calls_made += 1
        self._released.wait()
        if self._error is not None:
            raise self._error


class FailingClient:
    """A client whose other requests fail, because no broker is reachable."""

    def __init__(self) -> None:
        self.list_calls = 0

    def list_topics(self, timeout: float) -> None:
        self.list_calls += 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.fixture
def failing_client() -> FailingClient:
    return FailingClient()


@pytest.fixture
def calls(failing_client: FailingClient) -> BackgroundCall:
    client: Producer = failing_client  # type: ignore[assignment]
    return BackgroundCall(client, SystemClock())


@pytest.fixture
def blocked() -> Iterator[BlockedCall]:
    call = BlockedCall()
    yield call
    call.release()


def assert_timeout(calls: BackgroundCall, request: str, call: BlockedCall) -> None:
    with pytest.raises(KafkaException) as caught:
        calls.run(request, call, SOON_MS)
    assert caught.value.args[0].code() == KafkaError._TIMED_OUT


def test_a_call_that_returns_in_time(calls: BackgroundCall) -> None:
    """Its error is raised, and no call stays pending."""
    calls_made: list[str] = []
    calls.run("first", lambda: calls_made.append("first"), LONG_MS)
    fenced = BlockedCall(KafkaException(KafkaError(KafkaError._FENCED)))
    fenced.release()
    with pytest.raises(KafkaException) as caught:
        calls.run("second", fenced, LONG_MS)
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert not calls.is_pending
    calls.run("first", lambda: calls_made.append("again"), LONG_MS)
    assert calls_made == ["first", "again"]


def test_a_timeout_resumes_the_same_call(calls: BackgroundCall, blocked: BlockedCall) -> None:
    """librdkafka accepts one such call at a time, so a retry must wait for the pending call."""
    assert_timeout(calls, "offsets", blocked)
    assert calls.is_pending
    assert_timeout(calls, "offsets", blocked)
    blocked.release()
    calls.run("offsets", blocked, LONG_MS)
    assert blocked.calls_made == 1
    assert not calls.is_pending


def test_a_result_belongs_to_its_request(calls: BackgroundCall, blocked: BlockedCall) -> None:
    """Other offsets are sent after the pending call has returned."""
    assert_timeout(calls, "offsets 1", blocked)
    other = BlockedCall()
    other.release()
    assert_timeout(calls, "offsets 2", other)
    assert not other.calls_made
    blocked.release()
    calls.run("offsets 2", other, LONG_MS)
    assert (blocked.calls_made, other.calls_made) == (1, 1)


def test_an_error_of_the_previous_request_is_raised(calls: BackgroundCall) -> None:
    """Its offsets belong to the same transaction, which cannot be committed without them."""
    before = BlockedCall(KafkaException(KafkaError(KafkaError._FENCED)))
    assert_timeout(calls, "offsets 1", before)
    before.release()
    other = BlockedCall()
    other.release()
    with pytest.raises(KafkaException) as caught:
        calls.run("offsets 2", other, LONG_MS)
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert not other.calls_made


def test_a_discarded_result_is_never_returned(calls: BackgroundCall, blocked: BlockedCall) -> None:
    """The next transaction may send the same offsets. It needs the result of its own call, not a
    late one."""
    assert_timeout(calls, "offsets", blocked)
    blocked.release()
    wait_for(lambda: not calls.is_pending, 20, "the call returns")
    calls.discard()
    again = BlockedCall()
    again.release()
    calls.run("offsets", again, LONG_MS)
    assert again.calls_made == 1


def test_brokers_are_contacted_during_a_pending_call(
    calls: BackgroundCall, failing_client: FailingClient, blocked: BlockedCall
) -> None:
    """The pending call only returns after the state of a broker has changed."""
    with pytest.raises(KafkaException):
        calls.run("offsets", blocked, 1_000)
    assert failing_client.list_calls >= 1
