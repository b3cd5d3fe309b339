"""Queries of random keys at a steady rate, from within a program under test.

Each query has a due time, from which its latency is measured, so that latencies include the delays
caused by slow queries. There are enough threads to send each query when it is due.
"""

from __future__ import annotations

import http.client
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import marks
from harness.load import USERS

from millstream import KafkaStreams, QueryableStoreTypes, StreamsError

#: Settings of a program for queries, in addition to those of the application.
RATE = "bench.queries.per.second"
FILE = "bench.queries.file"
OVER_HTTP = "bench.queries.over.http"
SILENT = "bench.queries.silent"
_THREADS = 32
#: How often a waiting thread checks for the end.
_CHECK_S = 0.1
#: Queries due this soon after the first record do not count, because they wait for that record.
_EXCLUDED_MS = 1_000


@dataclass(frozen=True, slots=True)
class QueryResults:
    """The results of the queries during a run.

    Args:
        latencies_ms: the latencies of all queries, sorted.
        found: the number of queries with a result.
        failed: the number of failed queries by error type.
        messages: the first message of each error type, with its time after the first record.
    """

    latencies_ms: list[float]
    found: int
    failed: Mapping[str, int]
    messages: Mapping[str, str]

    @classmethod
    def all_of(cls, every: Iterable[QueryResults]) -> QueryResults:
        """Combine the results of several runs."""
        runs = list(every)
        failed: Counter[str] = Counter()
        messages: dict[str, str] = {}
        for run in runs:
            failed.update(run.failed)
            messages = {**run.messages, **messages}
        latencies_ms = sorted(took for run in runs for took in run.latencies_ms)
        return cls(latencies_ms, sum(run.found for run in runs), failed, messages)

    def at(self, quantile: float) -> float:
        """Return the latency in milliseconds at a quantile."""
        return self.latencies_ms[
            min(len(self.latencies_ms) - 1, int(quantile * len(self.latencies_ms)))
        ]


class QueryLoad:
    """Queries a store of counts for random users.

    Args:
        rate: queries per second.
        marks_file: the marks of this run. `queried` is added when all queries due until the last
            record have been made; the application must not be closed before that.
        file: the file for the results of the queries that were due between one second after the
            first record and the last record.
        over_http: use HTTP requests to the application's server instead of a view.
        silent: do everything except querying, to separate the cost of queries from the cost of the
            waiting threads.
    """

    def __init__(
        self,
        streams: KafkaStreams,
        store: str,
        rate: float,
        marks_file: Path,
        file: Path,
        *,
        over_http: bool = False,
        silent: bool = False,
    ) -> None:
        self._is_silent = silent
        self._streams = streams
        self._address = streams.serve(port=0) if over_http else None
        self._store = store
        self._pause_s = _THREADS / rate
        self._marks_file = marks_file
        self._file = file
        self._ended = threading.Event()
        #: When the last record was decoded; None until then.
        self._last_ms: int | None = None
        #: The due time of each query in ms since the epoch, its duration, and its result.
        self._answers: list[tuple[int, float, str]] = []
        self._messages: dict[str, str] = {}
        self._threads = [
            threading.Thread(target=self._run_queries, args=(number / rate,), daemon=True)
            for number in range(_THREADS)
        ]
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Start the threads."""
        for thread in [*self._threads, self._watcher]:
            thread.start()

    def close(self) -> None:
        """Stop querying, even if further queries are due."""
        self._ended.set()
        self._watcher.join(60)

    def _watch(self) -> None:
        while not self._ended.wait(0.01):
            self._last_ms = marks.read(self._marks_file).get("last")
            if self._last_ms is not None:
                break
        for thread in self._threads:
            thread.join()
        if self._last_ms is not None:
            self._write(marks.read(self._marks_file))
            marks.put(str(self._marks_file), "queried")

    def _write(self, times: Mapping[str, int]) -> None:
        since_ms = times["first"] + min(_EXCLUDED_MS, (times["last"] - times["first"]) // 4)
        within = sorted(a for a in self._answers if since_ms <= a[0] <= times["last"])
        messages: dict[str, str] = {}
        for due_ms, _, result in within:
            if result in self._messages:
                after_s = (due_ms - times["first"]) / 1_000
                messages.setdefault(result, f"after {after_s:.3f} s: {self._messages[result]}")
        self._file.write_text(
            json.dumps(
                {
                    "latencies_ms": sorted(took for _, took, _ in within),
                    "found": sum(result == "found" for _, _, result in within),
                    "failed": Counter(result for *_, result in within if result in self._messages),
                    "messages": messages,
                }
            )
        )

    def _run_queries(self, offset_s: float) -> None:
        look_up = self._make_look_up()
        due = time.monotonic() + offset_s
        while not self._ended.is_set():
            wait_s = due - time.monotonic()
            due_ms = marks.now_ms() + int(wait_s * 1_000)
            if self._last_ms is not None and due_ms > self._last_ms:
                return
            if wait_s > 0:
                self._ended.wait(min(_CHECK_S, wait_s))
                continue
            result = self._query_once(look_up)
            self._answers.append((due_ms, (time.monotonic() - due) * 1_000, result))
            due += self._pause_s

    def _query_once(self, look_up: Callable[[str], bool]) -> str:
        """Make a query, and return its result or the type of its error."""
        try:
            found = look_up(f"user-{random.randrange(USERS)}")
        except (StreamsError, OSError, http.client.HTTPException) as error:
            name = type(error).__name__
            self._messages.setdefault(name, str(error))
            return name
        return "found" if found else "missing"

    def _make_look_up(self) -> Callable[[str], bool]:
        """Wait until the store can be read; return a function that looks up a user."""
        while True:
            try:
                view = self._streams.store(self._store, QueryableStoreTypes.key_value())
                break
            except StreamsError:
                if self._ended.wait(0.05):
                    raise
        if self._is_silent:
            return lambda user: bool(user)
        return (lambda user: view.get(user) is not None) if self._address is None else self._http()

    def _http(self) -> Callable[[str], bool]:
        assert self._address is not None
        headers = {"Authorization": f"Bearer {self._address.token}"}
        connection = http.client.HTTPConnection(urlsplit(self._address.url).netloc, timeout=30)

        def look_up(user: str) -> bool:
            try:
                connection.request("GET", f"/stores/{self._store}/keys/{user}", headers=headers)
                response = connection.getresponse()
                body = response.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                raise
            if response.status not in (http.client.OK, http.client.NOT_FOUND):
                raise http.client.HTTPException(f"{response.status}: {body.decode()}")
            return response.status == http.client.OK

        return look_up


def read(file: Path) -> QueryResults:
    """Read the results that a run has written."""
    return QueryResults(**json.loads(file.read_text()))
