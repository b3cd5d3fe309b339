"""The state of an application, and its listener."""

from __future__ import annotations

import threading

import pytest
from support.waiting import wait_for

from millstream.clock import ManualClock
from millstream.runtime.states.client_states import ClientStateTracker
from millstream.runtime.states.thread_states import ClientState, ThreadState

REBALANCING, RUNNING = ClientState.REBALANCING, ClientState.RUNNING


@pytest.fixture
def states() -> ClientStateTracker:
    return ClientStateTracker("shop", ManualClock())


def test_slow_listener_does_not_delay_readers_of_the_state(states: ClientStateTracker) -> None:
    """Probes read the state in the server's event loop, which would block until the listener
    returns."""
    called, release = threading.Event(), threading.Event()

    def slow(new: ClientState, old: ClientState) -> None:
        called.set()
        release.wait(20)

    states.set_listener(slow)
    changing = threading.Thread(target=states.try_transition, args=(REBALANCING, "started"))
    changing.start()
    assert called.wait(10)
    results: list[object] = []
    reading = threading.Thread(target=lambda: results.append((states.threads(), states.state)))
    reading.start()
    reading.join(5)
    assert results == [({}, REBALANCING)]
    release.set()
    changing.join()


def test_listener_is_called_for_one_change_after_the_other(states: ClientStateTracker) -> None:
    """For changes in several threads, while the first call takes its time."""
    calls: list[tuple[str, str]] = []
    called, release = threading.Event(), threading.Event()

    def listener(new: ClientState, old: ClientState) -> None:
        calls.append((old.name, new.name))
        called.set()
        release.wait(20)
        calls.append(("end of", new.name))

    states.set_listener(listener)
    first = threading.Thread(target=states.try_transition, args=(REBALANCING, "started"))
    first.start()
    assert called.wait(10)
    second = threading.Thread(
        target=states.set_thread_state, args=("t", ThreadState.RUNNING, "runs")
    )
    second.start()
    wait_for(lambda: states.state is RUNNING, 10, "it runs")
    assert calls == [("CREATED", "REBALANCING")]
    release.set()
    # wait_for() returns after the call of the listener.
    assert states.wait_for(frozenset({RUNNING}), 10)
    assert calls[1:] == [
        ("end of", "REBALANCING"),
        ("REBALANCING", "RUNNING"),
        ("end of", "RUNNING"),
    ]
    first.join()
    second.join()


def test_listener_can_change_and_await_the_state(states: ClientStateTracker) -> None:
    """For example a listener that closes the application, or waits until it runs."""
    calls: list[str] = []

    def listener(new: ClientState, old: ClientState) -> None:
        calls.append(new.name)
        if new is REBALANCING:
            states.try_transition(ClientState.PENDING_SHUTDOWN, "requested by the listener")
            assert states.wait_for(frozenset({ClientState.PENDING_SHUTDOWN}), 10)
            calls.append("has waited")

    states.set_listener(listener)
    states.try_transition(REBALANCING, "started")
    assert calls == ["REBALANCING", "PENDING_SHUTDOWN", "has waited"]
