"""Queries of random keys at a steady pace, from within a program under test.

Each is due at a fixed time, and its latency counts from then, so that what waits behind a slow one
is not forgotten. The threads are many enough for that.
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
from load import USERS

from millstream import KafkaStreams, QueryableStoreTypes, StreamsError

#: The settings that a program takes for this, beside those of the application.
RATE = "bench.queries.per.second"
FILE = "bench.queries.file"
OVER_HTTP = "bench.queries.over.http"
SILENT = "bench.queries.silent"
_THREADS = 32
#: How often a thread that waits looks whether all is over.
_LOOKS_S = 0.1
#: What is due so soon after the first record does not count: it waits for that one.
_COLD_MS = 1_000


@dataclass(frozen=True, slots=True)
class Asked:
    """What came of the queries that were asked while records were decoded.

    Args:
        latencies_ms: of each, sorted.
        found: how many have found something.
        failed: how many ended with an error, by its type.
        messages: of each type of error the first one, and when it came after the first record.
    """

    latencies_ms: list[float]
    found: int
    failed: Mapping[str, int]
    messages: Mapping[str, str]

    @classmethod
    def all_of(cls, every: Iterable[Asked]) -> Asked:
        """Several runs as one."""
        runs = list(every)
        failed: Counter[str] = Counter()
        messages: dict[str, str] = {}
        for run in runs:
            failed.update(run.failed)
            messages = {**run.messages, **messages}
        latencies_ms = sorted(took for run in runs for took in run.latencies_ms)
        return cls(latencies_ms, sum(run.found for run in runs), failed, messages)

    def at(self, part: float) -> float:
        """The latency that this part of all is not above, in milliseconds."""
        return self.latencies_ms[
            min(len(self.latencies_ms) - 1, int(part * len(self.latencies_ms)))
        ]


class Asking:
    """Asks a store of counts for random users.

    Args:
        streams: the application.
        store: the store.
        rate: queries per second.
        marked: the marks of this run; it gets another one, `asked`, when all is asked that was due
            until the last record. Only then the application may be closed.
        file: gets what came of the queries that were due from a second after the first record to
            the last one.
        over_http: whether they are asked as requests to the application's server, instead of by a
            view.
        silent: whether all is done but to ask: to tell what queries cost from what it costs to be
            on time for them.
    """

    def __init__(
        self,
        streams: KafkaStreams,
        store: str,
        rate: float,
        marked: Path,
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
        self._marked = marked
        self._file = file
        self._over = threading.Event()
        #: When the last record was decoded, once it is known.
        self._last_ms: int | None = None
        #: When each was due, in ms since the epoch, how long it took, and what came of it.
        self._answers: list[tuple[int, float, str]] = []
        self._messages: dict[str, str] = {}
        self._threads = [
            threading.Thread(target=self._ask, args=(number / rate,), daemon=True)
            for number in range(_THREADS)
        ]
        self._watching = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Begin, once the application runs."""
        for thread in [*self._threads, self._watching]:
            thread.start()

    def close(self) -> None:
        """Ask no more, whatever is still due."""
        self._over.set()
        self._watching.join(60)

    def _watch(self) -> None:
        while not self._over.wait(0.01):
            self._last_ms = marks.read(self._marked).get("last")
            if self._last_ms is not None:
                break
        for thread in self._threads:
            thread.join()
        if self._last_ms is not None:
            self._write(marks.read(self._marked))
            marks.put(str(self._marked), "asked")

    def _write(self, times: Mapping[str, int]) -> None:
        since_ms = times["first"] + min(_COLD_MS, (times["last"] - times["first"]) // 4)
        within = sorted(a for a in self._answers if since_ms <= a[0] <= times["last"])
        messages: dict[str, str] = {}
        for due_ms, _, what in within:
            if what in self._messages:
                after_s = (due_ms - times["first"]) / 1_000
                messages.setdefault(what, f"after {after_s:.3f} s: {self._messages[what]}")
        self._file.write_text(
            json.dumps(
                {
                    "latencies_ms": sorted(took for _, took, _ in within),
                    "found": sum(what == "found" for _, _, what in within),
                    "failed": Counter(what for *_, what in within if what in self._messages),
                    "messages": messages,
                }
            )
        )

    def _ask(self, offset_s: float) -> None:
        look = self._look_up()
        due = time.monotonic() + offset_s
        while not self._over.is_set():
            wait_s = due - time.monotonic()
            due_ms = marks.now_ms() + int(wait_s * 1_000)
            if self._last_ms is not None and due_ms > self._last_ms:
                return
            if wait_s > 0:
                self._over.wait(min(_LOOKS_S, wait_s))
                continue
            what = self._one(look)
            self._answers.append((due_ms, (time.monotonic() - due) * 1_000, what))
            due += self._pause_s

    def _one(self, look: Callable[[str], bool]) -> str:
        """What comes of one query: an error is told by its type."""
        try:
            found = look(f"user-{random.randrange(USERS)}")
        except (StreamsError, OSError, http.client.HTTPException) as error:
            name = type(error).__name__
            self._messages.setdefault(name, str(error))
            return name
        return "found" if found else "missing"

    def _look_up(self) -> Callable[[str], bool]:
        """What says whether a user is there, once the store can be read."""
        while True:
            try:
                view = self._streams.store(self._store, QueryableStoreTypes.key_value())
                break
            except StreamsError:
                if self._over.wait(0.05):
                    raise
        if self._is_silent:
            return lambda user: bool(user)
        return (lambda user: view.get(user) is not None) if self._address is None else self._http()

    def _http(self) -> Callable[[str], bool]:
        assert self._address is not None
        headers = {"Authorization": f"Bearer {self._address.token}"}
        connection = http.client.HTTPConnection(urlsplit(self._address.url).netloc, timeout=30)

        def look(user: str) -> bool:
            try:
                connection.request("GET", f"/stores/{self._store}/keys/{user}", headers=headers)
                response = connection.getresponse()
                said = response.read()
            except (OSError, http.client.HTTPException):
                connection.close()
                raise
            if response.status not in (http.client.OK, http.client.NOT_FOUND):
                raise http.client.HTTPException(f"{response.status}: {said.decode()}")
            return response.status == http.client.OK

        return look


def read(file: Path) -> Asked:
    """What a run has written."""
    return Asked(**json.loads(file.read_text()))
