"""Goal: where a thread runs is known from when it registers until it ends."""

from __future__ import annotations

from millstream.application.workers import NOWHERE, Worker, Workers
from millstream.runtime.control import ClientJoined
from millstream.spark.connection.messages import Epoch, Hello

THREAD = "shop-StreamThread-1"


def test_a_thread_is_of_the_client_of_its_host() -> None:
    """Another worker of it may be on another host, and is of none until it says so."""
    workers = Workers()
    assert workers.of(THREAD) == NOWHERE
    words = workers.registered(Hello("shop", THREAD, 1, Epoch(1, 0), 4711, "one"))
    assert words == "runs in process 4711 on one"
    words = workers.joined(THREAD, ClientJoined("8f6a", "/data/shop"))
    assert words == "is of client 8f6a on one, with state in /data/shop"
    assert workers.of(THREAD) == Worker("one", 4711, "8f6a", "/data/shop")
    workers.registered(Hello("shop", THREAD, 1, Epoch(2, 0), 4712, "two"))
    assert workers.of(THREAD) == Worker("two", 4712)
    words = workers.joined(THREAD, ClientJoined("1234", None))
    assert words == "is of client 1234 on two, which keeps nothing on disk"
    workers.ended(THREAD)
    assert workers.of(THREAD) == NOWHERE
