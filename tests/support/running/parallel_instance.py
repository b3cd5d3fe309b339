"""One instance of an application with many calls at a time, as a script.

    python parallel_instance.py KIND BOOTSTRAP NAME FOLDER SETTINGS

KIND is one of `KINDS`. It reads `NAME-in`, notes its work in FOLDER
(`support.running.topologies.work_log`), and ends in an orderly way on SIGTERM or SIGINT. SETTINGS
are JSON: `alone` for a stream thread in this very process, without Spark; `properties` of a
subscription; `calls` of map_async, how long a call takes at most (`most_ms`); the rest are settings
of the application.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
import uuid
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from millstream import (
    KafkaStreams,
    StreamsBuilder,
    StreamsConfig,
    StreamsUncaughtExceptionHandlerResponse,
    Topology,
)
from millstream.parallel import ProcessorSubscription, Properties, SubscriptionConfig
from millstream.runtime.build_thread import build_thread
from millstream.runtime.control import Asked, ChangeProperties, ThreadOutcome
from millstream.runtime.ownership.restore_reports import RestoreAudience
from millstream.runtime.thread_identity import ThreadIdentity
from millstream.serdes import STRING, Serde
from support.running.lone_thread import LoneControl
from support.running.telling import tell_changes
from support.running.topologies.subscribed import inside
from support.running.topologies.work_log import WorkLog

_NUMBER: Serde[int] = Serde(lambda _, number: b"%d" % number, lambda _, data: int(data))
_CONSUMER = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000}


class Waits:
    """User code that waits, as long as the key and the number say, and notes what it does.

    Args:
        log: gets the notes.
        most_ms: the longest wait.
    """

    def __init__(self, log: WorkLog, most_ms: int) -> None:
        self._log = log
        self._most_ms = most_ms

    def pause_s(self, key: str, number: int) -> float:
        """How long a call takes."""
        return zlib.crc32(f"{key}:{number}".encode()) % (self._most_ms + 1) / 1_000

    async def map(self, key: str, number: int) -> int:
        """For `map_async`."""
        self._log.began(key, number)
        await asyncio.sleep(self.pause_s(key, number))
        self._log.ended(key, number)
        return number

    async def task(self, context: Any, number: int) -> None:
        """For a subscription, on the event loop."""
        await self.map(context.key.decode(), number)

    def plain_task(self, context: Any, number: int) -> None:
        """For a subscription, on threads."""
        key = context.key.decode()
        self._log.began(key, number)
        time.sleep(self.pause_s(key, number))
        self._log.ended(key, number)


def _mapped(name: str, waits: Waits, **calls: Any) -> Topology:
    builder = StreamsBuilder()
    (
        builder.stream(f"{name}-in", key=STRING, value=_NUMBER)
        .map_async(waits.map, with_key=True, **calls)
        .to(f"{name}-out", key=STRING, value=_NUMBER)
    )
    return builder.build()


def _counted_before(name: str, waits: Waits, **calls: Any) -> Topology:
    """A store upstream: what comes is the count so far, less one, which is the number again."""
    builder = StreamsBuilder()
    (
        builder.stream(f"{name}-in", key=STRING, value=_NUMBER)
        .group_by_key(key=STRING, value=_NUMBER)
        .count(store="counts")
        .to_stream()
        .map_values(lambda count: count - 1)
        .map_async(waits.map, with_key=True, **calls)
        .to(f"{name}-out", key=STRING, value=_NUMBER)
    )
    return builder.build()


def _counted_behind(name: str, waits: Waits, **calls: Any) -> Topology:
    """A store downstream, which would count what comes twice."""
    builder = StreamsBuilder()
    (
        builder.stream(f"{name}-in", key=STRING, value=_NUMBER)
        .map_async(waits.map, with_key=True, **calls)
        .group_by_key(key=STRING, value=_NUMBER)
        .count(store="counts")
        .to_stream()
        .map_values(lambda count: count - 1)
        .to(f"{name}-out", key=STRING, value=_NUMBER)
    )
    return builder.build()


#: What maps asynchronously: by name.
MAPPED: dict[str, Callable[..., Topology]] = {
    "mapped": _mapped,
    "counted_before": _counted_before,
    "counted_behind": _counted_behind,
}
#: Subscriptions, by who waits.
SUBSCRIBED = ("coroutines", "threads")
KINDS = (*MAPPED, *SUBSCRIBED)


def subscription(
    kind: str,
    bootstrap: str,
    name: str,
    folder: Path,
    *,
    most_ms: int = 10,
    properties: dict[str, Any] | None = None,
    **settings: Any,
) -> ProcessorSubscription:
    """One that waits."""
    waits = Waits(WorkLog(folder, name), most_ms)
    return ProcessorSubscription(
        name,
        topics=f"{name}-in",
        processor=waits.task if kind == "coroutines" else waits.plain_task,
        value=_NUMBER,
        properties=Properties(**(properties or {})),
        config=SubscriptionConfig(
            name, bootstrap, **{"consumer": _CONSUMER, **settings, "state_dir": str(folder)}
        ),
    )


def parts(
    kind: str, bootstrap: str, name: str, folder: Path, given: dict[str, Any]
) -> tuple[Topology, StreamsConfig]:
    """Topology and settings of any kind, to be run without Spark."""
    settings = dict(given)
    if kind in SUBSCRIBED:
        return inside(subscription(kind, bootstrap, name, folder, **settings))
    waits = Waits(WorkLog(folder, name), settings.pop("most_ms", 10))
    calls = settings.pop("calls", {})
    config = StreamsConfig(
        application_id=name,
        bootstrap_servers=bootstrap,
        **{
            "state_dir": str(folder),
            "commit_interval_ms": 100,
            "consumer": _CONSUMER,
            **settings,
        },
    )
    return MAPPED[kind](name, waits, **calls), config


class _Control(LoneControl):
    """A driver that passes on properties as well."""

    def __init__(self) -> None:
        super().__init__()
        self._changes: deque[Asked] = deque()

    def change(self, properties: dict[str, Any]) -> None:
        """From now on these hold."""
        self._changes.append(Asked(ChangeProperties(properties)))
        self.on_news()

    def commands(self) -> Sequence[Asked]:
        changes = [self._changes.popleft() for _ in range(len(self._changes))]
        return (*changes, *super().commands())


def _run_alone(topology: Topology, config: StreamsConfig, given: dict[str, Any]) -> None:
    control = _Control()
    # Its directory of state is what a thread is known by when it comes back.
    process = uuid.uuid5(uuid.NAMESPACE_URL, str(config.state_dir))
    identity = ThreadIdentity(f"{config.application_id}-StreamThread-1", 1, process)
    thread = build_thread(topology, config, identity, control, RestoreAudience())
    outcomes: list[ThreadOutcome] = []
    runner = threading.Thread(target=lambda: outcomes.append(thread.run()))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: control.close())
    runner.start()
    change = lambda values: control.change({**given, **values})  # noqa: E731
    threading.Thread(target=_obey, args=(change,), daemon=True).start()
    print("started", flush=True)  # noqa: T201
    runner.join()
    (outcome,) = outcomes
    if outcome.error or outcome.close_error:
        raise SystemExit(f"{outcome.error}; {outcome.close_error}")


def _obey(change: Callable[[dict[str, Any]], object]) -> None:
    """Lines of stdin are properties to change."""
    while line := os.read(0, 1_000):
        for each in line.decode().splitlines():
            change(json.loads(each))


def main() -> None:
    kind, bootstrap, name, folder, given = sys.argv[1:]
    settings = json.loads(given)
    if settings.pop("alone", False):
        at_first = settings.get("properties", {})
        _run_alone(*parts(kind, bootstrap, name, Path(folder), settings), at_first)
        return
    running: ProcessorSubscription | KafkaStreams
    if kind in SUBSCRIBED:
        running = subscription(kind, bootstrap, name, Path(folder), **settings)
        streams = running._streams
        change = running.update_properties
        threading.Thread(target=_obey, args=(lambda new: change(**new),), daemon=True).start()
    else:
        running = streams = KafkaStreams(*parts(kind, bootstrap, name, Path(folder), settings))
    running.set_uncaught_exception_handler(
        lambda _: StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
    )
    threading.Thread(target=tell_changes, args=(streams,), daemon=True).start()
    running.run()


if __name__ == "__main__":
    main()
