"""One instance of an application that is asked all the while (`support.running.queried`), a script
that says what it was asked, and told.

    python queried_instance.py BOOTSTRAP NAME STATE SETTINGS

SETTINGS are those of the application, as JSON. The lines `add` and `remove` on stdin change how
many threads there are. Pages are so small that ranges have many, and answers of other instances get
lost now and then on their way here.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from millstream import (
    KafkaStreams,
    KeyQuery,
    Position,
    PositionBound,
    QueryableStoreTypes,
    RangeQuery,
    StateQueryRequest,
    StreamsConfig,
    StreamsError,
    StreamsUncaughtExceptionHandlerResponse,
)
from millstream.query.asking import OwnThreads
from millstream.query.peers import Instance
from millstream.runtime.queries.questions import AskStore
from support.running.queried import KEYS, STORE, queried_topology
from support.running.telling import obey, tell, tell_changes

_PAUSE_S = 0.01
_KINDS = ("key", "key", "key", "active", "range", "view", "stale", "all")
#: What active tasks answer. They are asked without a bound.
_ACTIVE = ("active", "view", "all")
_PAGE_BYTES = 40
_LOST = 0.05


class OnTheWay:
    """Makes pages small, loses some answers of other instances, and counts what comes from them."""

    def __init__(self) -> None:
        #: Of the question at hand: how many `partitions` and `pages` others gave, and were `lost`.
        self.counted: Counter[str] = Counter()

    def begin(self) -> None:
        """From now on."""
        ask, ask_own = Instance.ask, OwnThreads.ask
        page: Callable[..., Any] = Instance.next_page
        own_page: Callable[..., Any] = OwnThreads.next_page
        receive = http.client.HTTPConnection.getresponse

        def asked(instance: Instance, question: AskStore, *more: Any, **named: Any) -> Any:
            answers = ask(instance, _small(question), *more, **named)
            self.counted["partitions"] += sum(each.reason is None for each in answers)
            return answers

        def asked_own(own: OwnThreads, question: AskStore, *more: Any, **named: Any) -> Any:
            return ask_own(own, _small(question), *more, **named)

        def paged(instance: Instance, *which: Any) -> Any:
            found = page(instance, *which[:-1], _PAGE_BYTES)
            self.counted["pages"] += 1
            return found

        def paged_own(own: OwnThreads, *which: Any) -> Any:
            return own_page(own, *which[:-1], _PAGE_BYTES)

        def received(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
            response = receive(connection)
            if random.random() < _LOST:
                response.read()
                self.counted["lost"] += 1
                raise ConnectionResetError("The answer got lost on its way.")
            return response

        changed: tuple[tuple[type, str, Callable[..., Any]], ...] = (
            (Instance, "ask", asked),
            (Instance, "next_page", paged),
            (OwnThreads, "ask", asked_own),
            (OwnThreads, "next_page", paged_own),
            (http.client.HTTPConnection, "getresponse", received),
        )
        for kind, name, call in changed:
            patch.object(kind, name, call).start()


def _small(question: AskStore) -> AskStore:
    return replace(question, page_bytes=_PAGE_BYTES)


class Asker:
    """Asks the application all kinds of questions, as a user does whose answers must not go back.

    Args:
        streams: the application.
        topic: its input.
        way: what happens on the way to other instances.
    """

    def __init__(self, streams: KafkaStreams, topic: str, way: OnTheWay) -> None:
        self._streams = streams
        self._topic = topic
        self._way = way
        self._chance = random.Random()
        self._seen = Position()

    def ask_for_ever(self) -> None:
        """Ask one thing after the other, and say what came of it."""
        while True:
            began = time.perf_counter()
            self._way.counted.clear()
            asked = {**self._asked(), "others": dict(self._way.counted)}
            took_ms = (time.perf_counter() - began) * 1_000
            tell("asked", {**asked, "at_s": time.time(), "took_ms": round(took_ms, 3)})
            time.sleep(_PAUSE_S)

    def _asked(self) -> dict[str, Any]:
        kind, key = self._chance.choice(_KINDS), self._chance.choice(KEYS)
        bound = self._seen if self._chance.random() < 0.7 else Position()
        if kind in _ACTIVE or kind == "stale":
            bound = Position()
        told = {
            "how": kind,
            "active": kind in _ACTIVE,
            "bound": {str(n): o for n, o in bound.partitions(self._topic).items()},
        }
        shape = {"kind": "range" if kind in ("range", "all") else "key", "key": key}
        try:
            results = self._results(kind, key, bound)
        except Exception as error:
            name = type(error).__name__
            typed = isinstance(error, StreamsError)
            return {**told, "error": name, "typed": typed, "message": str(error)}
        return {**told, **shape, "results": results}

    def _results(self, kind: str, key: str, bound: Position) -> dict[str, Any]:
        if kind in ("view", "stale", "all"):
            types = QueryableStoreTypes.key_value()
            view = self._streams.store(STORE, types, stale=kind == "stale")
            # Which partition has said it, a view does not tell.
            return {"-1": {"value": dict(view.all()) if kind == "all" else view.get(key)}}
        query: Any = RangeQuery() if kind == "range" else KeyQuery(key)
        request = StateQueryRequest.in_store(STORE).with_query(query)
        request = request.with_position_bound(PositionBound.at(bound))
        request = request.require_active() if kind == "active" else request
        results: dict[str, Any] = {}
        for partition, each in self._streams.query(request).partition_results.items():
            if each.failure_reason is not None:
                results[str(partition)] = {"failure": each.failure_reason.name}
                continue
            value = dict(each.result) if kind == "range" else each.result
            at = each.position.partitions(self._topic).get(partition)
            results[str(partition)] = {"value": value, "at": at}
            self._seen = self._seen.merge(each.position)
        return results


def main() -> None:
    bootstrap, name, state, given = sys.argv[1:]
    config = StreamsConfig(
        application_id=name,
        bootstrap_servers=bootstrap,
        state_dir=state,
        **{
            "consumer": {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
            **json.loads(given),
        },
    )
    streams = KafkaStreams(queried_topology(name), config)
    streams.set_uncaught_exception_handler(
        lambda _: StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
    )
    way = OnTheWay()
    way.begin()
    asker = Asker(streams, f"{name}-records", way)
    for work in (lambda: tell_changes(streams), lambda: obey(streams), asker.ask_for_ever):
        threading.Thread(target=work, daemon=True).start()
    streams.run()


if __name__ == "__main__":
    main()
