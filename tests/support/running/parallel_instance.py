"""An instance of an application with many concurrent calls, as a script.

    python parallel_instance.py KIND BOOTSTRAP NAME FOLDER SETTINGS

KIND is one of `KINDS`. The script reads `NAME-in`, logs its work in FOLDER
(`support.running.topologies.work_log`), and shuts down on SIGTERM or SIGINT. SETTINGS is JSON:
`alone` for a stream thread in this process, without Spark; `properties` of a subscription; `calls`
of map_async; the maximum duration of a call (`most_ms`); the rest are settings of the application.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from millstream import (
    KafkaStreams,
    KStream,
    StreamsBuilder,
    StreamsConfig,
    Topology,
)
from millstream.parallel import ProcessorSubscription, Properties, SubscriptionConfig
from millstream.runtime.thread_control import ChangeProperties
from millstream.serdes import STRING, Serde
from support.running.instance_script import SHORT_SESSIONS, report_changes, run_instance
from support.running.thread_run import ThreadRun
from support.running.topologies.subscribed import inside
from support.running.topologies.work_log import WorkLog

_NUMBER: Serde[int] = Serde(lambda _, number: b"%d" % number, lambda _, data: int(data))


class DelayedWork:
    """User code whose duration depends on the key and the number; it logs its work."""

    def __init__(self, log: WorkLog, most_ms: int) -> None:
        self._log = log
        self._most_ms = most_ms

    def pause_s(self, key: str, number: int) -> float:
        """The duration of a call."""
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


def _mapped(name: str, work: DelayedWork, stores: str, **calls: Any) -> Topology:
    """The topology, with a store upstream or downstream of the calls, or without one.

    The output is the count minus one, which equals the number. A store downstream would count
    duplicates.
    """
    builder = StreamsBuilder()
    stream: KStream[str, Any] = builder.stream(f"{name}-in", key=STRING, value=_NUMBER)
    if stores == "before":
        stream = _counted(stream)
    stream = stream.map_async(work.map, with_key=True, **calls)
    if stores == "behind":
        stream = _counted(stream)
    stream.to(f"{name}-out", key=STRING, value=_NUMBER)
    return builder.build()


def _counted(stream: KStream[str, Any]) -> KStream[str, Any]:
    counts = stream.group_by_key(key=STRING, value=_NUMBER).count(store="counts")
    return counts.to_stream().map_values(lambda count: count - 1)


#: The place of the store in topologies with `map_async`, by name.
MAPPED = {"mapped": "", "counted_before": "before", "counted_behind": "behind"}
#: Subscriptions, by the kind of their processor.
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
    """A subscription of the given kind."""
    work = DelayedWork(WorkLog(folder, name), most_ms)
    return ProcessorSubscription(
        name,
        topics=f"{name}-in",
        processor=work.task if kind == "coroutines" else work.plain_task,
        value=_NUMBER,
        properties=Properties(**(properties or {})),
        config=SubscriptionConfig(
            name, bootstrap, **{"consumer": SHORT_SESSIONS, **settings, "state_dir": str(folder)}
        ),
    )


def parts(
    kind: str, bootstrap: str, name: str, folder: Path, given: dict[str, Any]
) -> tuple[Topology, StreamsConfig]:
    """The topology and settings of a kind, for a run without Spark."""
    settings = dict(given)
    if kind in SUBSCRIBED:
        return inside(subscription(kind, bootstrap, name, folder, **settings))
    work = DelayedWork(WorkLog(folder, name), settings.pop("most_ms", 10))
    calls = settings.pop("calls", {})
    config = StreamsConfig(
        application_id=name,
        bootstrap_servers=bootstrap,
        **{
            "state_dir": str(folder),
            "commit_interval_ms": 100,
            "consumer": SHORT_SESSIONS,
            **settings,
        },
    )
    return _mapped(name, work, MAPPED[kind], **calls), config


def _run_alone(topology: Topology, config: StreamsConfig, given: dict[str, Any]) -> None:
    run = ThreadRun(topology, config)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: run.control.close())

    def change(values: dict[str, Any]) -> None:
        run.control.send(ChangeProperties({**given, **values}))

    threading.Thread(target=_apply_properties, args=(change,), daemon=True).start()
    with run:
        print("started", flush=True)  # noqa: T201
        run.wait_ended()


def _apply_properties(change: Callable[[dict[str, Any]], object]) -> None:
    """Apply lines of stdin as properties."""
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
        threading.Thread(
            target=_apply_properties, args=(lambda new: change(**new),), daemon=True
        ).start()
    else:
        running = streams = KafkaStreams(*parts(kind, bootstrap, name, Path(folder), settings))
    run_instance(running, partial(report_changes, streams))


if __name__ == "__main__":
    main()
