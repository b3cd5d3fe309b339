"""Goal: the host of a thread is known from its registration to its end."""

from __future__ import annotations

from millstream.application.thread_metadata import NO_LOCATION, WorkerLocation, WorkerRegistry
from millstream.runtime.thread_control import ClientJoined
from millstream.spark.connection.messages import Epoch, Hello

THREAD = "shop-StreamThread-1"


def test_a_thread_belongs_to_the_client_of_its_host() -> None:
    """A later worker of the thread may be on another host, and belongs to no client before it
    joins."""
    workers = WorkerRegistry()
    assert workers.location_of(THREAD) == NO_LOCATION
    words = workers.registered(Hello("shop", THREAD, 1, Epoch(1, 0), 4711, "one"))
    assert words == "runs in process 4711 on one"
    words = workers.joined(THREAD, ClientJoined("8f6a", "/data/shop"))
    assert words == "belongs to client 8f6a on one, with state in /data/shop"
    assert workers.location_of(THREAD) == WorkerLocation("one", 4711, "8f6a", "/data/shop")
    workers.registered(Hello("shop", THREAD, 1, Epoch(2, 0), 4712, "two"))
    assert workers.location_of(THREAD) == WorkerLocation("two", 4712)
    words = workers.joined(THREAD, ClientJoined("1234", None))
    assert words == "belongs to client 1234 on two, without state on disk"
    workers.ended(THREAD)
    assert workers.location_of(THREAD) == NO_LOCATION
