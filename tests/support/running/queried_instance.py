"""An instance of a continuously queried application (`support.running.queried_application`), as a
script that reports queries and answers.

    python queried_instance.py BOOTSTRAP NAME STATE SETTINGS

SETTINGS is JSON with settings of the application. The lines `add` and `remove` on stdin change the
number of threads. Pages are so small that ranges have many, and some responses of other instances
are dropped.
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
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
)
from millstream.query.local_threads import LocalThreads
from millstream.query.remote_instances import RemoteInstance
from millstream.runtime.queries.query_messages import QueryStore
from support.running.instance_script import (
    SHORT_SESSIONS,
    emit,
    follow_commands,
    report_changes,
    run_instance,
)
from support.running.queried_application import KEYS, STORE, queried_topology

_PAUSE_S = 0.01
_KINDS = ("key", "key", "key", "active", "range", "view", "stale", "all")
#: The kinds of queries that only active tasks answer, and that have no bound.
_ACTIVE = ("active", "view", "all")
_PAGE_BYTES = 40
_LOST = 0.05


class FaultyTransport:
    """Uses small pages, drops some responses of other instances, and counts their answers."""

    def __init__(self) -> None:
        #: For the current query: the numbers of remote `partitions` and `pages`, and of `lost`
        #: responses.
        self.counted: Counter[str] = Counter()

    def begin(self) -> None:
        """Activate the faults."""
        original, original_local = RemoteInstance.query, LocalThreads.query
        page: Callable[..., Any] = RemoteInstance.next_page
        own_page: Callable[..., Any] = LocalThreads.next_page
        receive = http.client.HTTPConnection.getresponse

        def query_remote(
            instance: RemoteInstance, query: QueryStore, *more: Any, **named: Any
        ) -> Any:
            answers = original(instance, _small(query), *more, **named)
            self.counted["partitions"] += sum(each.reason is None for each in answers)
            return answers

        def query_local(own: LocalThreads, query: QueryStore, *more: Any, **named: Any) -> Any:
            return original_local(own, _small(query), *more, **named)

        def next_remote_page(instance: RemoteInstance, *which: Any) -> Any:
            found = page(instance, *which[:-1], _PAGE_BYTES)
            self.counted["pages"] += 1
            return found

        def next_local_page(own: LocalThreads, *which: Any) -> Any:
            return own_page(own, *which[:-1], _PAGE_BYTES)

        def received(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
            response = receive(connection)
            if random.random() < _LOST:
                response.read()
                self.counted["lost"] += 1
                raise ConnectionResetError("The response was lost.")
            return response

        changed: tuple[tuple[type, str, Callable[..., Any]], ...] = (
            (RemoteInstance, "query", query_remote),
            (RemoteInstance, "next_page", next_remote_page),
            (LocalThreads, "query", query_local),
            (LocalThreads, "next_page", next_local_page),
            (http.client.HTTPConnection, "getresponse", received),
        )
        for kind, name, call in changed:
            patch.object(kind, name, call).start()


def _small(query: QueryStore) -> QueryStore:
    return replace(query, page_bytes=_PAGE_BYTES)


class QueryLoop:
    """Queries the application in all ways, with bounds, as a user does whose reads must be
    monotonic.
    """

    def __init__(self, streams: KafkaStreams, topic: str, transport: FaultyTransport) -> None:
        self._streams = streams
        self._topic = topic
        self._transport = transport
        self._chance = random.Random()
        self._seen = Position()

    def run(self) -> None:
        """Query continuously, and report each query with its result."""
        while True:
            began = time.perf_counter()
            self._transport.counted.clear()
            query = {**self._query(), "others": dict(self._transport.counted)}
            took_ms = (time.perf_counter() - began) * 1_000
            emit("query", {**query, "at_s": time.time(), "took_ms": round(took_ms, 3)})
            time.sleep(_PAUSE_S)

    def _query(self) -> dict[str, Any]:
        kind, key = self._chance.choice(_KINDS), self._chance.choice(KEYS)
        bound = self._seen if self._chance.random() < 0.7 else Position()
        if kind in _ACTIVE or kind == "stale":
            bound = Position()
        query = {
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
            return {**query, "error": name, "typed": typed, "message": str(error)}
        return {**query, **shape, "results": results}

    def _results(self, kind: str, key: str, bound: Position) -> dict[str, Any]:
        if kind in ("view", "stale", "all"):
            types = QueryableStoreTypes.key_value()
            view = self._streams.store(STORE, types, stale=kind == "stale")
            # A view does not report which partition has answered.
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
        **{"consumer": SHORT_SESSIONS, **json.loads(given)},
    )
    streams = KafkaStreams(queried_topology(name), config)
    transport = FaultyTransport()
    transport.begin()
    query_loop = QueryLoop(streams, f"{name}-records", transport)
    run_instance(
        streams,
        partial(report_changes, streams),
        partial(follow_commands, streams),
        query_loop.run,
    )


if __name__ == "__main__":
    main()
