"""The state of an application, and the listener that hears of it."""

from __future__ import annotations

import threading

import pytest
from support.waiting import wait_for

from millstream.clock import ManualClock
from millstream.runtime.client_states import ClientStates
from millstream.runtime.states import ClientState, ThreadState

REBALANCING, RUNNING = ClientState.REBALANCING, ClientState.RUNNING


@pytest.fixture
def states() -> ClientStates:
    return ClientStates("shop", ManualClock())


def test_a_slow_listener_holds_up_nobody_who_asks(states: ClientStates) -> None:
    """Probes ask on the server's only loop: it would answer nothing until the listener is done."""
    called, go_on = threading.Event(), threading.Event()

    def slow(new: ClientState, old: ClientState) -> None:
        called.set()
        go_on.wait(20)

    states.listen(slow)
    changing = threading.Thread(target=states.become, args=(REBALANCING, "started"))
    changing.start()
    assert called.wait(10)
    asked: list[object] = []
    asking = threading.Thread(target=lambda: asked.append((states.threads(), states.state)))
    asking.start()
    asking.join(5)
    assert asked == [({}, REBALANCING)]
    go_on.set()
    changing.join()


def test_the_listener_hears_of_one_change_after_the_other(states: ClientStates) -> None:
    """From several threads, while the first call takes its time."""
    heard: list[tuple[str, str]] = []
    called, go_on = threading.Event(), threading.Event()

    def listener(new: ClientState, old: ClientState) -> None:
        heard.append((old.name, new.name))
        called.set()
        go_on.wait(20)
        heard.append(("end of", new.name))

    states.listen(listener)
    first = threading.Thread(target=states.become, args=(REBALANCING, "started"))
    first.start()
    assert called.wait(10)
    second = threading.Thread(target=states.thread_is, args=("t", ThreadState.RUNNING, "runs"))
    second.start()
    wait_for(lambda: states.state is RUNNING, 10, "it runs")
    assert heard == [("CREATED", "REBALANCING")]
    go_on.set()
    # Who waits for a state finds that the listener knows.
    assert states.wait_for(frozenset({RUNNING}), 10)
    assert heard[1:] == [
        ("end of", "REBALANCING"),
        ("REBALANCING", "RUNNING"),
        ("end of", "RUNNING"),
    ]
    first.join()
    second.join()


def test_a_listener_may_change_and_await_the_state_itself(states: ClientStates) -> None:
    """As one does that closes the application, or waits until it runs."""
    heard: list[str] = []

    def listener(new: ClientState, old: ClientState) -> None:
        heard.append(new.name)
        if new is REBALANCING:
            states.become(ClientState.PENDING_SHUTDOWN, "the listener wants it")
            assert states.wait_for(frozenset({ClientState.PENDING_SHUTDOWN}), 10)
            heard.append("has waited")

    states.listen(listener)
    states.become(REBALANCING, "started")
    assert heard == ["REBALANCING", "PENDING_SHUTDOWN", "has waited"]
