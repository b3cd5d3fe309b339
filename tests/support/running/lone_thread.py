"""A stream thread without Spark, of an application that keeps ids: here, or in a process of its own
that kills itself.

    python lone_thread.py BOOTSTRAP NAME STATE STORES PLACE TIMES NOTE

runs one until it comes to a failpoint (`support.running.failpoints`).
"""

from __future__ import annotations

import json
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from millstream import StreamsConfig
from millstream.errors import StreamsError
from millstream.runtime.build_thread import build_thread
from millstream.runtime.control import (
    Asked,
    Close,
    Report,
    RestoreEvent,
    RestoreStep,
    ThreadOutcome,
)
from millstream.runtime.loop.stream_thread import StreamThread
from millstream.runtime.ownership.restore_reports import RestoreAudience
from millstream.runtime.thread_identity import ThreadIdentity
from support.running.failpoints import Failpoint
from support.running.topologies.identified import identified_topology

#: So that a thread that is started anew takes its place in the group at once.
INSTANCE_ID = "one"
_COMMIT_INTERVAL_MS = 50
_CLOSE_S = 30


class LoneControl:
    """A driver that says nothing but, once, that the thread is to close."""

    lost = False
    lost_reason: str | None = None

    def __init__(self) -> None:
        self.restored = 0
        self.on_news: Callable[[], None] = lambda: None
        self._closing = threading.Event()
        self._told = False

    def close(self) -> None:
        """Have the thread close."""
        self._closing.set()
        self.on_news()

    def report(self, report: Report) -> None:
        """Only restorations are of interest."""
        if isinstance(report, RestoreEvent) and report.step is RestoreStep.END:
            self.restored += report.records

    def attend(self) -> None:
        """What is said here needs nobody to carry it."""

    def commands(self) -> Sequence[Asked]:
        if self._told or not self._closing.is_set():
            return ()
        self._told = True
        return (Asked(Close()),)

    def reply(self, asked: Asked, answer: Any) -> None:
        """Nothing is asked."""

    def refuse_questions(self, error: StreamsError) -> None:
        """Nothing is asked."""


def lone_thread(
    bootstrap: str,
    name: str,
    state: Path,
    stores: Sequence[str],
    control: LoneControl,
) -> StreamThread:
    """The one thread of an application, not running yet."""
    config = StreamsConfig(
        application_id=name,
        bootstrap_servers=bootstrap,
        state_dir=str(state),
        commit_interval_ms=_COMMIT_INTERVAL_MS,
        consumer={"group.instance.id": INSTANCE_ID},
    )
    topology = identified_topology(name, stores=stores)
    identity = ThreadIdentity(f"{name}-StreamThread-1", 1, uuid.uuid5(uuid.NAMESPACE_URL, name))
    return build_thread(topology, config, identity, control, RestoreAudience())


@contextmanager
def running(bootstrap: str, name: str, state: Path, stores: Sequence[str]) -> Iterator[LoneControl]:
    """A thread at work in this process; closed in an orderly way at the end."""
    control = LoneControl()
    thread = lone_thread(bootstrap, name, state, stores, control)
    outcomes: list[ThreadOutcome] = []
    runner = threading.Thread(target=lambda: outcomes.append(thread.run()))
    runner.start()
    try:
        yield control
    finally:
        control.close()
        runner.join(_CLOSE_S)
    (outcome,) = outcomes
    assert outcome.error is None, outcome
    assert outcome.close_error is None, outcome


def main() -> None:
    bootstrap, name, state, stores, place, times, note = sys.argv[1:]
    Failpoint(place, int(times), Path(note)).arm()
    lone_thread(bootstrap, name, Path(state), json.loads(stores), LoneControl()).run()


if __name__ == "__main__":
    main()
