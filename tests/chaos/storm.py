"""Everything goes wrong, in an order that a seed decides, while ids must not be lost.

    make chaos ARGS="--seed 7 --minutes 4"

Two instances of an application with two sub-topologies and a store, each a driver process with
Spark and its workers, on one broker or several (`--brokers 3`: three replicas of everything), each
behind a proxy. Faults come one after another,
sometimes before the former one is over. At the end a table tells of each kind how often it came and
how long it took until everything that had been written by its end was told; and of all ids how many
were lost, repeated or out of order. The process ends with 1 if any was lost, or, under
exactly-once, repeated or out of order, or if the dead-letter queue lacks something.

A full disk is a limit on the size of files (RLIMIT_FSIZE), which the kernel puts on the processes
of an instance: each write to a state store fails, with EFBIG instead of ENOSPC.
"""

from __future__ import annotations

import contextlib
import logging
import random
import resource
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.command_line import add_guarantee, parsed, parser_of
from chaos.tending import Tended, send
from confluent_kafka import Consumer, TopicPartition
from support.machine.ports import free_port
from support.machine.tcp_proxy import TcpProxies
from support.meanwhile import meanwhile
from support.running.instances import Instances, last_told
from support.running.topologies.identified import Account, Identified
from support.waiting import wait_for

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from millstream.testing import EmbeddedKafka

logger = logging.getLogger("storm")

SESSION_MS = 6_000
DELIVERY_MS = 8_000
#: Longer than a session and a delivery may take.
LONG_S = 12.0
PARTITIONS = 4
_WRITE_S = 0.1
_IDS = 5
_RECOVERED_S = 240
_RECOVERED_IDS = 100
#: The next fault does not wait for the end of this one.
_OVERLAPS = 0.25
SETTINGS: dict[str, Any] = {
    "num_stream_threads": 2,
    "num_standby_replicas": 1,
    "dead_letters": True,
    "consumer": {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 1_000},
    "producer": {"delivery.timeout.ms": DELIVERY_MS, "request.timeout.ms": DELIVERY_MS // 2},
}


def settings_under(guarantee: str) -> dict[str, Any]:
    """The application's settings under a processing guarantee."""
    if guarantee == AT_LEAST_ONCE:
        return SETTINGS
    return {**SETTINGS, "processing_guarantee": guarantee, "producer": {}}


class Watch:
    """Reads the output all the while: which ids were told, and how long the next one took."""

    def __init__(self, application: Identified) -> None:
        self.longest_s = 0.0
        #: All ids below were told.
        self.told = 0
        self._ahead: set[int] = set()
        self._application = application
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _watch(self) -> None:
        application = self._application
        reader = Consumer(
            {"bootstrap.servers": application.bootstrap, "group.id": "watch", "log_level": 2}
        )
        reader.assign(
            [
                TopicPartition(topic, number, 0)
                for topic in application.outputs
                for number in range(PARTITIONS)
            ]
        )
        last = None
        while not self._stop.is_set():
            for message in reader.consume(100, 0.1):
                if message.error() is None and self._is_news(message.value() or b""):
                    now = time.monotonic()
                    self.longest_s = max(self.longest_s, now - (last or now))
                    last = now
        reader.close()

    def _is_news(self, value: bytes) -> bool:
        new = {each for each in map(int, value.split()) if each >= self.told} - self._ahead
        self._ahead |= new
        before = self.told
        while self.told in self._ahead:
            self._ahead.remove(self.told)
            self.told += 1
        return self.told > before


@dataclass
class Row:
    """What one kind of fault has done.

    Args:
        times: how often it came.
        recovery_s: how long it took at most, from its beginning.
    """

    times: int = 0
    recovery_s: float = 0.0


@dataclass
class Report:
    """What a storm has done.

    Args:
        seed: of its faults.
        seconds: how long it took.
        rows: by kind of fault.
        account: of the ids.
        out_of_order: how often an id overtook another one of its group and partition.
        poisoned: how many records were written that are no ids.
        dead_letters: how many came to the dead-letter queue.
        may_repeat: how many repeats the faults account for.
        longest_s: for how long the next id was not told.
        starts: of instances, the first ones included.
        connections: that the proxy has passed on.
    """

    seed: int
    seconds: float
    rows: dict[str, Row]
    account: Account
    out_of_order: int
    poisoned: int
    dead_letters: int
    may_repeat: int
    longest_s: float
    starts: int
    connections: int

    def __str__(self) -> str:
        account = self.account
        lost = account.lost - account.overwritten
        faults = "\n".join(
            f"{kind:<42}{row.times:>6}{row.recovery_s:>12.1f} s"
            for kind, row in sorted(self.rows.items())
        )
        return (
            f"seed {self.seed}: {self.seconds:.0f} s\n"
            f"{'fault':<42}{'times':>6}{'longest':>14}\n{faults}\n"
            f"records {account.written}, never told {len(account.untold)}, lost {len(lost)}, "
            f"written over by who had lost the task {len(account.overwritten)}, "
            f"repeated {account.repeated} (accounted for: {self.may_repeat}), "
            f"out of order {self.out_of_order}, dead letters {self.dead_letters} of "
            f"{self.poisoned}, longest stall {self.longest_s:.1f} s\n"
            f"instances were started {self.starts} times and opened {self.connections} connections"
            f"{f'; not there at the end: {sorted(account.lost)[:50]}' if account.lost else ''}"
        )


@dataclass
class Storm:
    """Faults that come over two instances.

    Args:
        seed: decides which, when, where, and how long each is.
        kafka: the brokers, behind the proxies.
        proxy: cuts connections.
        instances: the application.
    """

    seed: int
    kafka: EmbeddedKafka
    proxy: TcpProxies
    instances: Instances
    rows: dict[str, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._poisoned = 0
        self._chance = random.Random(self.seed)
        self._tended = Tended(self.instances, self._chance)
        self._open = 0
        self._committed = 0
        self.kinds: dict[str, Callable[[], None]] = {
            "worker killed": self._kill_worker,
            "driver killed": self._kill_driver,
            "instance killed": self._kill_instance,
            "worker paused": lambda: self._pause(self._tended.worker()),
            "driver paused": lambda: self._pause([self._tended.any().script.pid]),
            "instance paused": lambda: self._pause(self._tended.any().processes),
            "broker killed, absent": self._lose_broker,
            "broker paused": self._pause_broker,
            "broker closed in order": self._close_broker,
            "connections cut": self._cut,
            "connections refused": self._refuse,
            "network silent": self._silence,
            "disk full": self._fill_disk,
            "thread fails": self._fail_thread,
            "user code takes long": self._slow_down,
            "poison record": self._poison,
            "thread added": lambda: self._tended.change_threads("add"),
            "thread removed": lambda: self._tended.change_threads("remove"),
            "instance closes": self._close_instance,
        }
        if len(self.kafka.brokers) > 1:
            self.kinds["all brokers killed"] = self._lose_all_brokers
            self.kinds["brokers restarted in turn"] = self._restart_brokers_in_turn

    def run(self, seconds: float, kinds: Sequence[str] | None = None) -> Report:
        """Let faults come for so long, or those of these kinds, once each in this order."""
        application = self.instances.application
        began = time.monotonic()
        with self._tended.running(), Watch(application) as watch:
            with meanwhile(lambda: application.write(_IDS), _WRITE_S):
                wait_for(lambda: self._tended.are_up, _RECOVERED_S, "both run")
                wait_for(lambda: watch.told > 0, _RECOVERED_S, "ids are told")
                chosen = self._chosen(time.monotonic() + seconds) if kinds is None else kinds
                for kind in chosen:
                    self._strike(kind, watch, overlaps=kinds is None)
                self._recover(watch)
            application.wait_committed(_RECOVERED_S)
            self.kafka.wait_in_sync()
            account = application.account()
            wait_for(lambda: self._tended.are_up, _RECOVERED_S, "both run")
            self._tended.end()
        return Report(
            seed=self.seed,
            seconds=time.monotonic() - began,
            rows=self.rows,
            account=account,
            out_of_order=application.out_of_order(),
            poisoned=self._poisoned,
            dead_letters=application.dead_letters(),
            may_repeat=application.may_repeat,
            longest_s=watch.longest_s,
            starts=self._tended.starts,
            connections=self.proxy.total,
        )

    def _chosen(self, end: float) -> Iterator[str]:
        """Each kind once in every round, so that none is forgotten."""
        while True:
            for kind in self._chance.sample(sorted(self.kinds), len(self.kinds)):
                if time.monotonic() > end:
                    return
                yield kind

    def _strike(self, kind: str, watch: Watch, *, overlaps: bool) -> None:
        row = self.rows.setdefault(kind, Row())
        row.times += 1
        began = time.monotonic()
        application = self.instances.application
        if not self._open:
            self._committed = application.committed
        self._open += 1
        logger.info("%s", kind)
        self.kinds[kind]()
        if overlaps and self._chance.random() < _OVERLAPS:
            return
        self._recover(watch)
        took_s = time.monotonic() - began
        logger.info("over after %.1f s", took_s)
        row.recovery_s = max(row.recovery_s, took_s)

    def _recover(self, watch: Watch) -> None:
        """Wait until all that was written is told, and what comes in the next seconds, so that it
        goes through every task; and until whoever was away is there again."""
        application = self.instances.application
        wanted = application.written + _RECOVERED_IDS
        wait_for(
            lambda: watch.told >= wanted,
            _RECOVERED_S,
            lambda: f"{wanted} ids are told after {self.rows}; {watch.told} are. {self._stuck()}",
        )
        if self._open:
            # Each fault may have every one of them be done again.
            done = application.ends - self._committed
            application.may_repeat += self._open * done
            self._open = 0
        wait_for(lambda: self._tended.are_up, _RECOVERED_S, "both run")

    def _stuck(self) -> str:
        """What stands in the way: open transactions, records that nobody commits, instances."""
        application = self.instances.application
        ups = {each.name: last_told(each.script) for each in self._tended.all}
        return (
            f"Open transactions: {application.open_transactions()}; lag: {application.lag}; "
            f"instances: {ups}; their last words: {self._tended.last_words(3_000)}"
        )

    def _lasting(self) -> None:
        """For how long something is gone: often longer than sessions and deliveries last."""
        time.sleep(self._chance.choice([0.5, 2.0, LONG_S]))

    def _kill_worker(self) -> None:
        send(signal.SIGKILL, *self._tended.worker())

    def _kill_driver(self) -> None:
        send(signal.SIGKILL, self._tended.any().processes[0])

    def _kill_instance(self) -> None:
        send(signal.SIGKILL, *self._tended.any().processes)

    def _pause(self, processes: list[int]) -> None:
        send(signal.SIGSTOP, *processes)
        self._lasting()
        send(signal.SIGCONT, *processes)

    def _lose_broker(self) -> None:
        broker = self._chance.choice(self.kafka.brokers)
        broker.kill()
        self._lasting()
        broker.start()

    def _pause_broker(self) -> None:
        broker = self._chance.choice(self.kafka.brokers)
        broker.pause()
        self._lasting()
        broker.resume()

    def _close_broker(self) -> None:
        broker = self._chance.choice(self.kafka.brokers)
        broker.stop()
        self._lasting()
        broker.start()

    def _lose_all_brokers(self) -> None:
        self.kafka.kill()
        self._lasting()
        self.kafka.start()

    def _restart_brokers_in_turn(self) -> None:
        for broker in self.kafka.brokers:
            self.kafka.wait_in_sync()
            broker.stop()
            broker.start()
        self.kafka.wait_in_sync()

    def _cut(self) -> None:
        for _ in range(3):
            self.proxy.cut(self._chance.choice([0.3, 1.0]), self._chance)
            time.sleep(self._chance.random())

    def _refuse(self) -> None:
        self.proxy.refuse(refused=True)
        self._lasting()
        self.proxy.refuse(refused=False)

    def _silence(self) -> None:
        self.proxy.hold(held=True)
        self._lasting()
        self.proxy.hold(held=False)

    def _fill_disk(self) -> None:
        processes = self._tended.any().processes
        # Not Java's: Spark's own files are no concern of ours.
        python = [pid for pid in processes if b"python" in _command(pid)]
        for pid in python:
            _limit_files(pid, 1)
        time.sleep(self._chance.uniform(1, 5))
        for pid in python:
            _limit_files(pid, resource.RLIM_INFINITY)

    def _fail_thread(self) -> None:
        fails = self._tended.any().fails
        fails.touch()
        wait_for(lambda: not fails.exists(), _RECOVERED_S, "a thread has failed")

    def _slow_down(self) -> None:
        slow = self._tended.any().slow
        slow.write_text(str(self._chance.choice([0.5, 2.0, LONG_S])))
        wait_for(lambda: not slow.exists(), _RECOVERED_S, "user code takes long")

    def _poison(self) -> None:
        self.instances.application.poison()
        self._poisoned += 1

    def _close_instance(self) -> None:
        send(self._chance.choice([signal.SIGINT, signal.SIGTERM]), self._tended.any().script.pid)


def _command(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]
    return b""


def _limit_files(pid: int, limit_bytes: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit_bytes, resource.RLIM_INFINITY))


def storm(
    folder: Path,
    seed: int,
    seconds: float,
    kinds: Sequence[str] | None = None,
    guarantee: str = AT_LEAST_ONCE,
    brokers: int = 1,
    settings: Mapping[str, Any] | None = None,
) -> Report:
    """Start everything, let faults come, and end everything.

    Args:
        folder: an empty one.
        seed: decides everything.
        seconds: for how long faults come.
        kinds: those that are to come, instead of all again and again.
        guarantee: the processing guarantee of the application.
        brokers: how many there are.
        settings: further settings of the application.
    """
    ports = [free_port() for _ in range(brokers)]
    with (
        TcpProxies(ports) as proxy,
        EmbeddedKafka(port=ports, advertised_port=proxy.ports, brokers=brokers) as kafka,
    ):
        instances = Instances(kafka, folder, **settings_under(guarantee), **(settings or {}))
        return Storm(seed, kafka, proxy, instances).run(seconds, kinds)


def main() -> int:
    parser = parser_of(__doc__, minutes=4)
    add_guarantee(parser, AT_LEAST_ONCE)
    parser.add_argument("--brokers", type=int, default=1, help="how many brokers there are")
    parser.add_argument(
        "--uncommitted-max-bytes",
        type=int,
        help="the application's statestore_uncommitted_max_bytes",
    )
    parser.add_argument("--keep", type=Path, help="a folder for logs and state of the instances")
    arguments = parsed(parser)
    limit = arguments.uncommitted_max_bytes
    settings = None if limit is None else {"statestore_uncommitted_max_bytes": limit}
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        report = storm(
            folder,
            arguments.seed,
            arguments.minutes * 60,
            arguments.only,
            arguments.guarantee,
            arguments.brokers,
            settings,
        )
    print(report)  # noqa: T201
    account = report.account
    lost = account.lost - account.overwritten
    wrong = report.dead_letters < report.poisoned
    if arguments.guarantee == EXACTLY_ONCE_V2:
        # Nobody can write over anything there.
        lost = account.lost
        twice = account.repeated or report.out_of_order
        wrong = bool(twice) or report.dead_letters != report.poisoned
    return 1 if account.untold or lost or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
