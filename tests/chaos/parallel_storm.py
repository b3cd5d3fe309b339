"""Faults come while a thousand calls are in flight: of a subscription, or of `map_async`.

    make chaos ARGS="--kind mapped --seed 7 --minutes 2"

Two processes of a thread each, without Spark, on a broker that they reach through a proxy; `storm`
has Spark and its workers. Faults come one after another; each is over when everything written by
its end is committed. Ends with 1 if anything was lost, or, of `map_async` under exactly-once, if
what a reader of committed records gets is not what one call after the other would have written.
"""

from __future__ import annotations

import logging
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.command_line import parsed, parser_of
from support.machine.ports import free_port
from support.machine.scripts import Script
from support.machine.tcp_proxy import TcpProxy
from support.running.parallel_instances import ParallelInstances
from support.running.topologies.work_log import most_at_once, never_done, overlapping
from support.waiting import wait_for

from millstream import EXACTLY_ONCE_V2
from millstream.testing import EmbeddedKafka

logger = logging.getLogger("storm")

PARTITIONS = 4
KEYS = 4_000
#: Every 50 ms: with waits of a second on average, more than 1,000 calls are in flight.
AT_ONCE = 80
MOST_MS = 2_000
CONCURRENCY = 500
_NAMES = ("one", "other")
_RECOVERED_S = 180
#: Longer than a session.
_LONG_S = 10.0


@dataclass
class Report:
    """What a storm has done.

    Args:
        kinds: of faults, how often each came.
        written: how many records.
        lost: those whose work never came to its end, or whose result nobody can read.
        again: how often work was begun once more.
        overlaps: how often a key was worked on by two: by one who was given up for dead.
        wrong: keys whose output is not what it should be; none of a subscription.
        in_flight: how many calls there were at a time, at most.
    """

    kinds: dict[str, int]
    written: int
    lost: int
    again: int
    overlaps: int
    wrong: int
    in_flight: int

    def __str__(self) -> str:
        faults = ", ".join(f"{kind} {times}" for kind, times in sorted(self.kinds.items()))
        return (
            f"{faults}\nrecords {self.written}, lost {self.lost}, begun again {self.again}, "
            f"overlapping {self.overlaps}, keys with wrong output {self.wrong}, in flight at most "
            f"{self.in_flight}"
        )


@dataclass
class ParallelStorm:
    """Faults that come over two instances.

    Args:
        seed: decides which, and on whom.
        kafka: the broker, behind the proxy.
        proxy: cuts connections.
        running: the application.
        subscribes: whether it is a subscription, which has properties.
    """

    seed: int
    kafka: EmbeddedKafka
    proxy: TcpProxy
    running: ParallelInstances
    subscribes: bool
    times: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)
        self._scripts: dict[str, Script] = {}
        self.kinds: dict[str, Callable[[str], None]] = {
            "instance killed": self._kill,
            "instance paused": self._pause,
            "connections cut": self._cut,
            "broker killed": self._lose_broker,
            "instance closes": self._close,
        }
        if self.subscribes:
            self.kinds["properties changed"] = self._change

    def run(self, seconds: float, kinds: Sequence[str] | None = None) -> Report:
        """Let faults come for so long, or those of these kinds, once each in this order."""
        running = self.running
        running.records.write(AT_ONCE)
        try:
            with running.records.arriving(AT_ONCE):
                for name in _NAMES:
                    self._scripts[name] = running.started(name)
                self._recover()
                end = time.monotonic() + seconds
                for kind in kinds or iter(lambda: self._next(end), ""):
                    self._strike(kind)
            wait_for(lambda: running.left == 0, _RECOVERED_S, lambda: f"{running.left} are left")
            for script in self._scripts.values():
                script.signal(signal.SIGTERM)
                assert script.wait_ended(60) == 0, script.errors
        finally:
            for script in self._scripts.values():
                script.__exit__()
        return self._report()

    def _next(self, end: float) -> str:
        return self._chance.choice(sorted(self.kinds)) if time.monotonic() < end else ""

    def _strike(self, kind: str) -> None:
        self.times[kind] = self.times.get(kind, 0) + 1
        began = time.monotonic()
        logger.info("%s", kind)
        self.kinds[kind](self._chance.choice(_NAMES))
        self._recover()
        logger.info("over after %.1f s", time.monotonic() - began)

    def _recover(self) -> None:
        """Wait until what is written by now is committed, and all run."""
        running = self.running
        for script in self._scripts.values():
            # Before that it does not heed signals.
            script.wait_for_line("started", _RECOVERED_S)
        wanted = sum(running.records.written.values())

        def recovered() -> bool:
            for name, script in self._scripts.items():
                assert script.is_running, f"{name} has ended: {script.errors}"
            return sum(running.records.written.values()) - running.left >= wanted

        wait_for(recovered, _RECOVERED_S, lambda: f"{running.left} are left")

    def _report(self) -> Report:
        running = self.running
        written, work = running.records.written, running.work()
        lost, wrong = len(never_done(written, work)), 0
        if not self.subscribes:
            output = running.output()
            lost = sum(len(set(range(n)) - set(output.get(k, ()))) for k, n in written.items())
            wrong = sum(output.get(k, []) != list(range(n)) for k, n in written.items())
        return Report(
            kinds=self.times,
            written=sum(written.values()),
            lost=lost,
            again=sum(map(len, work.values())) - sum(written.values()),
            overlaps=len(overlapping(work)),
            wrong=wrong,
            in_flight=most_at_once(work),
        )

    def _restart(self, name: str) -> None:
        self._scripts[name].__exit__()
        self._scripts[name] = self.running.started(name)

    def _kill(self, name: str) -> None:
        self._scripts[name].kill()
        self._restart(name)

    def _close(self, name: str) -> None:
        script = self._scripts[name]
        script.signal(self._chance.choice([signal.SIGINT, signal.SIGTERM]))
        assert script.wait_ended(60) == 0, script.errors
        self._restart(name)

    def _pause(self, name: str) -> None:
        self._scripts[name].signal(signal.SIGSTOP)
        time.sleep(self._chance.choice([1.0, _LONG_S]))
        self._scripts[name].signal(signal.SIGCONT)

    def _cut(self, _: str) -> None:
        for _turn in range(3):
            self.proxy.cut(self._chance.choice([0.3, 1.0]), self._chance)
            time.sleep(self._chance.random())

    def _lose_broker(self, _: str) -> None:
        self.kafka.kill()
        time.sleep(self._chance.choice([0.5, 2.0]))
        self.kafka.start()

    def _change(self, _: str) -> None:
        concurrency = self._chance.choice([50, CONCURRENCY, 2 * CONCURRENCY])
        for script in self._scripts.values():
            script.say(f'{{"partition_concurrency": {concurrency}}}')


def parallel_storm(
    folder: Path, kind: str, seed: int, seconds: float, kinds: Sequence[str] | None = None
) -> Report:
    """Start everything, let faults come, and end everything.

    Args:
        folder: an empty one.
        kind: "coroutines" for a subscription, or one of `parallel_instance.MAPPED`.
        seed: decides the faults.
        seconds: for how long they come.
        kinds: those that are to come, instead of any.
    """
    port = free_port()
    subscribes = kind == "coroutines"
    settings: dict[str, Any]
    if subscribes:
        settings = {"properties": {"partition_concurrency": CONCURRENCY}}
    else:
        settings = {
            "calls": {"concurrency": CONCURRENCY},
            "processing_guarantee": EXACTLY_ONCE_V2,
            "statestore_cache_max_bytes": 0,
        }
    with (
        TcpProxy(port) as proxy,
        EmbeddedKafka(port=port, advertised_port=proxy.port) as kafka,
    ):
        running = ParallelInstances(
            kafka,
            folder,
            kind,
            partitions=PARTITIONS,
            keys=KEYS,
            alone=True,
            most_ms=MOST_MS,
            **settings,
        )
        return ParallelStorm(seed, kafka, proxy, running, subscribes).run(seconds, kinds)


def main() -> int:
    parser = parser_of(__doc__, minutes=2)
    parser.add_argument("--kind", choices=("coroutines", "mapped", "counted_behind"), required=True)
    arguments = parsed(parser)
    with tempfile.TemporaryDirectory() as folder:
        report = parallel_storm(
            Path(folder), arguments.kind, arguments.seed, arguments.minutes * 60, arguments.only
        )
    print(report)  # noqa: T201
    return 1 if report.lost or report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
