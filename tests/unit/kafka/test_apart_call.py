"""Calls that may never return: a result belongs to its request, and to its transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from support.waiting import wait_for

from millstream.clock import SystemClock
from millstream.kafka.data.apart import ApartCall

SOON_MS = 50
LONG_MS = 20_000


class HeldCall:
    """A call that returns when the test releases it."""

    def __init__(self, error: Exception | None = None) -> None:
        self.made = 0
        self._error = error
        self._released = threading.Event()

    def release(self) -> None:
        self._released.set()

    def __call__(self) -> None:
        self.made += 1
        self._released.wait()
        if self._error is not None:
            raise self._error


class Brokers:
    """The client's other requests, of which each fails as long as no broker is there."""

    def __init__(self) -> None:
        self.listed = 0

    def list_topics(self, timeout: float) -> None:
        self.listed += 1
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))


@pytest.fixture
def brokers() -> Brokers:
    return Brokers()


@pytest.fixture
def calls(brokers: Brokers) -> ApartCall:
    client: Producer = brokers  # type: ignore[assignment]
    return ApartCall(client, SystemClock())


@pytest.fixture
def held() -> Iterator[HeldCall]:
    call = HeldCall()
    yield call
    call.release()


def timed_out(calls: ApartCall, request: str, call: HeldCall) -> None:
    with pytest.raises(KafkaException) as caught:
        calls.run(request, call, SOON_MS)
    assert caught.value.args[0].code() == KafkaError._TIMED_OUT


def test_a_call_that_returns(calls: ApartCall) -> None:
    """Its error is raised here; afterwards nothing is pending."""
    made: list[str] = []
    calls.run("first", lambda: made.append("first"), LONG_MS)
    fenced = HeldCall(KafkaException(KafkaError(KafkaError._FENCED)))
    fenced.release()
    with pytest.raises(KafkaException) as caught:
        calls.run("second", fenced, LONG_MS)
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert not calls.is_pending
    calls.run("first", lambda: made.append("again"), LONG_MS)
    assert made == ["first", "again"]


def test_a_timeout_resumes_the_same_call(calls: ApartCall, held: HeldCall) -> None:
    """librdkafka accepts one such call at a time: a second attempt must not make another."""
    timed_out(calls, "offsets", held)
    assert calls.is_pending
    timed_out(calls, "offsets", held)
    held.release()
    calls.run("offsets", held, LONG_MS)
    assert held.made == 1
    assert not calls.is_pending


def test_a_result_is_only_that_of_its_request(calls: ApartCall, held: HeldCall) -> None:
    """Other offsets wait until the pending call has returned, and are sent themselves."""
    timed_out(calls, "offsets 1", held)
    other = HeldCall()
    other.release()
    timed_out(calls, "offsets 2", other)
    assert not other.made
    held.release()
    calls.run("offsets 2", other, LONG_MS)
    assert (held.made, other.made) == (1, 1)


def test_an_error_of_the_request_before_is_raised(calls: ApartCall) -> None:
    """Its offsets are part of the same transaction: it cannot be committed without them."""
    before = HeldCall(KafkaException(KafkaError(KafkaError._FENCED)))
    timed_out(calls, "offsets 1", before)
    before.release()
    other = HeldCall()
    other.release()
    with pytest.raises(KafkaException) as caught:
        calls.run("offsets 2", other, LONG_MS)
    assert caught.value.args[0].code() == KafkaError._FENCED
    assert not other.made


def test_a_forgotten_result_is_never_returned(calls: ApartCall, held: HeldCall) -> None:
    """The next transaction sends the same offsets: its own call, not a late answer, counts."""
    timed_out(calls, "offsets", held)
    held.release()
    wait_for(lambda: not calls.is_pending, 20, "the call returns")
    calls.forget()
    again = HeldCall()
    again.release()
    calls.run("offsets", again, LONG_MS)
    assert again.made == 1


def test_brokers_are_looked_for_meanwhile(
    calls: ApartCall, brokers: Brokers, held: HeldCall
) -> None:
    """The pending call is only answered after the state of a broker changes."""
    with pytest.raises(KafkaException):
        calls.run("offsets", held, 1_000)
    assert brokers.listed >= 1
