"""Injects faults while a thousand calls of a subscription or of `map_async` are in flight.

    make chaos ARGS="--kind mapped --seed 7 --minutes 2"

Two processes run one thread each, without Spark, on a broker behind a proxy; `storm` has Spark and
its workers. Faults occur one after another; each is over when everything written by its end is
committed. Exits with 1 if anything is lost, or, for `map_async` under exactly-once, if the
committed output differs from that of sequential calls.
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
from support.running.parallel_application import ParallelInstances
from support.running.topologies.work_log import most_at_once, overlapping, unfinished_work
from support.waiting import wait_for

from millstream import EXACTLY_ONCE_V2
from millstream.testing import EmbeddedKafka

logger = logging.getLogger("storm")

PARTITIONS = 4
KEYS = 4_000
#: Records written every 50 ms: with calls of a second on average, over 1,000 are in flight.
RECORDS_PER_WRITE = 80
MAX_CALL_MS = 2_000
CONCURRENCY = 500
_NAMES = ("one", "other")
_RECOVERED_S = 180
#: Longer than the session timeout.
_LONG_S = 10.0


@dataclass
class Report:
    """The results of a storm.

    Args:
        kinds: the number of faults of each kind.
        written: the number of records.
        lost: records with incomplete work or without a readable result.
        again: the number of repeated starts of work.
        overlaps: the number of keys that two instances processed at once, after one was fenced.
        wrong: keys with wrong output; none for a subscription.
        in_flight: the maximum number of calls at a time.
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
            f"{faults}\nrecords {self.written}, lost {self.lost}, started again {self.again}, "
            f"overlapping {self.overlaps}, keys with wrong output {self.wrong}, maximum in flight "
            f"{self.in_flight}"
        )


@dataclass
class ParallelStorm:
    """Injects faults into two instances.

    Args:
        seed: determines the faults and their targets.
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
        self._rng = random.Random(self.seed)
        self._scripts: dict[str, Script] = {}
        self.kinds: dict[str, Callable[[str], None]] = {
            "instance killed": self._kill,
            "instance paused": self._pause,
            "connections cut": self._cut,
            "broker killed": self._lose_broker,
            "instance closed": self._close,
        }
        if self.subscribes:
            self.kinds["properties changed"] = self._change

    def run(self, seconds: float, kinds: Sequence[str] | None = None) -> Report:
        """Inject random faults for this time, or faults of the given kinds in their order."""
        running = self.running
        running.records.write(RECORDS_PER_WRITE)
        try:
            with running.records.continuous_input(RECORDS_PER_WRITE):
                for name in _NAMES:
                    self._scripts[name] = running.start(name)
                self._recover()
                end = time.monotonic() + seconds
                for kind in kinds or iter(lambda: self._next(end), ""):
                    self._inject(kind)
            wait_for(
                lambda: running.left == 0,
                _RECOVERED_S,
                lambda: f"nothing is left to commit; {running.left} are left",
            )
            for script in self._scripts.values():
                script.signal(signal.SIGTERM)
                assert script.wait_ended(60) == 0, script.errors
        finally:
            for script in self._scripts.values():
                script.__exit__()
        return self._report()

    def _next(self, end: float) -> str:
        return self._rng.choice(sorted(self.kinds)) if time.monotonic() < end else ""

    def _inject(self, kind: str) -> None:
        self.times[kind] = self.times.get(kind, 0) + 1
        began = time.monotonic()
        logger.info("%s", kind)
        self.kinds[kind](self._rng.choice(_NAMES))
        self._recover()
        logger.info("recovered after %.1f s", time.monotonic() - began)

    def _recover(self) -> None:
        """Wait until everything written so far is committed, and all instances are running."""
        running = self.running
        for script in self._scripts.values():
            # Before this line, the script does not handle signals.
            script.wait_for_line("started", _RECOVERED_S)
        target = sum(running.records.written.values())

        def recovered() -> bool:
            for name, script in self._scripts.items():
                assert script.is_running, f"{name} has ended: {script.errors}"
            return sum(running.records.written.values()) - running.left >= target

        wait_for(
            recovered, _RECOVERED_S, lambda: f"nothing is left to commit; {running.left} are left"
        )

    def _report(self) -> Report:
        running = self.running
        written, work = running.records.written, running.work()
        lost, wrong = len(unfinished_work(written, work)), 0
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
        self._scripts[name] = self.running.start(name)

    def _kill(self, name: str) -> None:
        self._scripts[name].kill()
        self._restart(name)

    def _close(self, name: str) -> None:
        script = self._scripts[name]
        script.signal(self._rng.choice([signal.SIGINT, signal.SIGTERM]))
        assert script.wait_ended(60) == 0, script.errors
        self._restart(name)

    def _pause(self, name: str) -> None:
        self._scripts[name].signal(signal.SIGSTOP)
        time.sleep(self._rng.choice([1.0, _LONG_S]))
        self._scripts[name].signal(signal.SIGCONT)

    def _cut(self, _: str) -> None:
        for _turn in range(3):
            self.proxy.cut(self._rng.choice([0.3, 1.0]), self._rng)
            time.sleep(self._rng.random())

    def _lose_broker(self, _: str) -> None:
        self.kafka.kill()
        time.sleep(self._rng.choice([0.5, 2.0]))
        self.kafka.start()

    def _change(self, _: str) -> None:
        concurrency = self._rng.choice([50, CONCURRENCY, 2 * CONCURRENCY])
        for script in self._scripts.values():
            script.write_line(f'{{"partition_concurrency": {concurrency}}}')


def parallel_storm(
    folder: Path, kind: str, seed: int, seconds: float, kinds: Sequence[str] | None = None
) -> Report:
    """Start the broker and the application, inject faults, and shut everything down.

    Args:
        folder: an empty folder.
        kind: "coroutines" for a subscription, or one of `parallel_instance.MAPPED`.
        seed: determines the faults.
        seconds: the duration of the faults.
        kinds: the kinds of faults, instead of random ones.
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
        EmbeddedKafka(port=port, advertised_port=proxy.ports[0]) as kafka,
    ):
        running = ParallelInstances(
            kafka,
            folder,
            kind,
            partitions=PARTITIONS,
            keys=KEYS,
            alone=True,
            most_ms=MAX_CALL_MS,
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
