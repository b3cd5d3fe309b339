"""Fuzz target: clients without a broker, created, used and closed in any order.

Columns contain numbers that call a hook when they are converted; the hook uses or closes the same
clients. All hooked objects must be released, and calls on closed clients must raise an error.
"""

from __future__ import annotations

import gc
import random
import threading
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, Producer

from extension.cases.hooks import HookedNumber, HookedObject, World, run_world
from extension.cases.values import MAX_LONG, Trace, value_of
from millstream.kafka.speedups import chosen_speedups

_PRODUCER: Final = {
    "log_level": 0,
    "queue.buffering.max.messages": 100,
    "message.timeout.ms": 200,
    "linger.ms": 0,
}
_CONSUMER: Final = {"log_level": 0, "group.id": "g"}
_TOPICS: Final = ("t", "u", "", "a b", "t" * 600, "ü")
_DATA: Final = (
    b"k",
    None,
    b"",
    "text",
    ("memoryview", b"view"),
    ("every second byte", b"ab"),
    ("bytearray", b"b"),
    5,
    ("Faulty", None),
)
_HEADERS: Final = (
    None,
    (),
    [("h", b"x")],
    [("i", None), ("j", "text")],
    [("k", 5)],
    [("l", b"x"), 5],
    5,
    ("Faulty", None),
)


class _Clients(World):
    def __init__(self) -> None:
        super().__init__()
        self.clients: list[tuple[Any, Any]] = []
        #: A column that running calls use and reactions change.
        self.shared: list[Any] = []

    def _create(self, is_producer: bool) -> None:
        speedups = chosen_speedups(True)
        assert speedups is not None
        if len(self.clients) < 4:
            kind, settings = (Producer, _PRODUCER) if is_producer else (Consumer, _CONSUMER)
            self.clients.append(speedups.create(kind, settings))

    def _client(self, number: int) -> tuple[Any, Any]:
        if not self.clients:
            self._create(True)
        return self.clients[number % len(self.clients)]

    def _produce(
        self, number: int, topic: int, records: list[Any], partitions: Any, start: int
    ) -> None:
        columns = [[value_of(each) for each in column] for column in zip(*records, strict=True)]
        keys, values, times, headers = columns or ([], [], [], [])
        self.shared[:] = [HookedNumber(time) if isinstance(time, int) else time for time in times]
        all_headers = None if all(each is None for each in headers) else headers
        if partitions == "each":
            partitions = [HookedNumber(index % 3) for index in range(len(keys))]
        native = self._client(number)[1]
        topic_name = _TOPICS[topic % len(_TOPICS)]
        native.produce_columns(
            topic_name, partitions, keys, values, self.shared, all_headers, start
        )

    def _shorten(self, count: int) -> None:
        del self.shared[count:]

    def _read(self, number: int, most: int, timeout_ms: int) -> None:
        self._client(number)[1].read_columns(most, timeout_ms)

    def _forward(self, number: int, topic: int, partition: int) -> None:
        self._client(number)[1].forward(_TOPICS[topic % len(_TOPICS)], partition)

    def _call(self, number: int, name: str) -> None:
        native = self._client(number)[1]
        getattr(native, name)()
        assert native.failed >= 0

    def _in_thread(self, number: int, name: str) -> None:
        """Call a method in another thread, which may run at the same time as the hook's caller."""
        native = self._client(number)[1]
        errors: list[BaseException] = []

        def call() -> None:
            try:
                getattr(native, name)()
            except RuntimeError as error:
                errors.append(error)

        thread = threading.Thread(target=call)
        thread.start()
        thread.join()

    def _owner(self, number: int, name: str) -> None:
        owner = self._client(number)[0]
        is_producer = isinstance(owner, Producer)
        if name == "poll":
            owner.poll(0)
        elif name == "purge" and is_producer:
            owner.purge()
        elif name == "close" and not is_producer and self.depth == 1:
            # Only between calls: confluent-kafka's own close waits for running calls.
            owner.close()

    def _drop(self, number: int, how: int) -> None:
        """Drop both objects in some order, or as a cycle."""
        if not self.clients:
            return
        owner, native = self.clients.pop(number % len(self.clients))
        if how == 0:
            del owner
        elif how == 1:
            cycle: list[Any] = [owner, native, HookedObject()]
            cycle.append(cycle)
        elif how == 2 and self.depth == 1:
            native.close()
            native.close()
            del owner

    def _attach(self) -> None:
        """A thread that has created no client cannot attach one."""
        speedups = chosen_speedups(True)
        assert speedups is not None
        try:
            speedups.attach(object())
        except RuntimeError:
            return
        raise AssertionError("attached without a client")

    def check(self) -> None:
        for owner, native in self.clients:
            if isinstance(owner, Producer):
                owner.purge()
            native.close()
            try:
                native.acked_offsets()
            except RuntimeError:
                assert native.failed == 0
            else:
                self.faults.append("a closed client was used")
        self.clients.clear()
        gc.collect()


def generate(rng: random.Random) -> Trace:
    def number() -> int:
        return rng.randrange(12)

    def record() -> tuple[Any, ...]:
        good = rng.random() < 0.9
        data = _DATA[:5] if good else _DATA
        time = (
            rng.choice((0, 1, 10**12)) if good else rng.choice((-1, MAX_LONG, MAX_LONG + 1, None))
        )
        return (
            rng.choice(data),
            rng.choice(data),
            time,
            rng.choice(_HEADERS[:4] if good else _HEADERS),
        )

    def produce() -> tuple[Any, ...]:
        records = [record() for _ in range(rng.choice((0, 1, 3, 10, 200)))]
        partitions = rng.choice(
            (None, 0, 1, 2**31 - 1, 2**31, -1, -2, "each", [0], ("Faulty", None))
        )
        start = rng.choice((0, 0, 0, 1, -1, len(records), len(records) + 1))
        return ("produce", number(), number(), records, partitions, start)

    names = ("open_queue", "take_failures", "acked_offsets", "reset_deliveries", "close")
    makers: list[Callable[[], tuple[Any, ...]]] = [
        produce,
        produce,
        produce,
        lambda: ("shorten", rng.randrange(3)),
        lambda: ("read", number(), rng.choice((-5, 0, 1, 100, 2**40)), rng.choice((0, 0, 1))),
        lambda: ("forward", number(), number(), rng.choice((-1, -(2**31), 0, 5, 2**31 - 1))),
        lambda: ("call", number(), rng.choice(names)),
        lambda: ("call", number(), rng.choice(names)),
        lambda: ("in_thread", number(), rng.choice(names)),
        lambda: ("owner", number(), rng.choice(("poll", "purge", "close"))),
        lambda: ("drop", number(), rng.randrange(3)) if rng.random() < 0.5 else ("attach",),
        lambda: ("raise", number()),
    ]

    def action() -> tuple[Any, ...]:
        return rng.choice(makers)()

    steps: Trace = []
    for _ in range(rng.randrange(1, 3)):
        steps.append(("create", rng.random() < 0.7, []))
        for _ in range(rng.randrange(12)):
            steps.append((*action(), [action() for _ in range(rng.choice((0, 2, 10)))]))
    return steps


def run(trace: Trace) -> list[str]:
    return run_world(_Clients, trace)
