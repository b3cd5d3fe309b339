"""Injects all kinds of faults in an order given by a seed, and checks that no ids are lost.

    make chaos ARGS="--seed 7 --minutes 4"

Two instances of an application with two sub-topologies and a store, each a driver process with
Spark and its workers, use one broker or several (`--brokers 3`: three replicas of everything), each
behind a proxy. Faults occur one after another, sometimes before the previous one is over. At the
end, a table shows for each kind its number, and the maximum time until everything that had been
written by its end was in the output; and the numbers of lost, repeated and reordered ids. The
process exits with 1 if ids are lost or, under exactly-once, repeated or out of order, or if the
dead-letter queue is incomplete.

A full disk is simulated by a limit on the size of files (RLIMIT_FSIZE) for the processes of an
instance: each write to a state store fails, with EFBIG instead of ENOSPC.
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
from chaos.tending import SupervisedInstances, send
from confluent_kafka import Consumer, TopicPartition
from support.background import background
from support.machine.ports import free_port
from support.machine.tcp_proxy import TcpProxy
from support.running.instances import Instances, last_report
from support.running.topologies.identified import Account, Identified
from support.waiting import wait_for

from millstream import AT_LEAST_ONCE, EXACTLY_ONCE_V2
from millstream.testing import EmbeddedKafka

logger = logging.getLogger("storm")

SESSION_MS = 6_000
DELIVERY_MS = 8_000
#: Longer than the session and delivery timeouts.
LONG_S = 12.0
PARTITIONS = 4
_WRITE_S = 0.1
_IDS = 5
_RECOVERED_S = 240
_RECOVERED_IDS = 100
#: The probability that the next fault does not wait for the end of a fault.
_OVERLAPS = 0.25
SETTINGS: dict[str, Any] = {
    "num_stream_threads": 2,
    "num_standby_replicas": 1,
    "dead_letters": True,
    "consumer": {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 1_000},
    "producer": {"delivery.timeout.ms": DELIVERY_MS, "request.timeout.ms": DELIVERY_MS // 2},
}


def settings_under(guarantee: str) -> dict[str, Any]:
    """The application's settings for a processing guarantee."""
    if guarantee == AT_LEAST_ONCE:
        return SETTINGS
    return {**SETTINGS, "processing_guarantee": guarantee, "producer": {}}


class Watch:
    """Reads the output continuously: the ids in it, and the longest wait for the next id."""

    def __init__(self, application: Identified) -> None:
        self.longest_s = 0.0
        #: All ids below are in the output.
        self.next_id = 0
        self._later_ids: set[int] = set()
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
                if message.error() is None and self._advances(message.value() or b""):
                    now = time.monotonic()
                    self.longest_s = max(self.longest_s, now - (last or now))
                    last = now
        reader.close()

    def _advances(self, value: bytes) -> bool:
        new = {each for each in map(int, value.split()) if each >= self.next_id} - self._later_ids
        self._later_ids |= new
        before = self.next_id
        while self.next_id in self._later_ids:
            self._later_ids.remove(self.next_id)
            self.next_id += 1
        return self.next_id > before


@dataclass
class Row:
    """The results of one kind of fault.

    Args:
        times: the number of faults.
        recovery_s: the longest time from the start of a fault to the recovery.
    """

    times: int = 0
    recovery_s: float = 0.0


@dataclass
class Report:
    """The results of a storm.

    Args:
        seed: of its faults.
        seconds: the duration.
        rows: by kind of fault.
        account: of the ids.
        out_of_order: the number of ids that overtook another one of their group and partition.
        poisoned: the number of poison records.
        dead_letters: the number of records in the dead-letter queue.
        may_repeat: the number of repetitions that the faults explain.
        longest_s: the longest wait for the next id.
        starts: the number of starts of instances.
        connections: the number of connections through the proxy.
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
            f"records {account.written}, never output {len(account.never_output)}, "
            f"lost {len(lost)}, "
            f"overwritten after the loss of a task {len(account.overwritten)}, "
            f"repeated {account.repeated} (explained: {self.may_repeat}), "
            f"out of order {self.out_of_order}, dead letters {self.dead_letters} of "
            f"{self.poisoned}, longest stall {self.longest_s:.1f} s\n"
            f"instance starts {self.starts}, connections {self.connections}"
            f"{f'; missing at the end: {sorted(account.lost)[:50]}' if account.lost else ''}"
        )


@dataclass
class Storm:
    """Injects faults into two instances.

    Args:
        seed: determines the faults, their times, targets and durations.
        kafka: the brokers, behind the proxies.
        proxy: cuts connections.
        instances: the application.
    """

    seed: int
    kafka: EmbeddedKafka
    proxy: TcpProxy
    instances: Instances
    rows: dict[str, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._poisoned = 0
        self._rng = random.Random(self.seed)
        self._supervised = SupervisedInstances(self.instances, self._rng)
        self._open = 0
        self._committed = 0
        self.kinds: dict[str, Callable[[], None]] = {
            "worker killed": self._kill_worker,
            "driver killed": self._kill_driver,
            "instance killed": self._kill_instance,
            "worker paused": lambda: self._pause(self._supervised.worker()),
            "driver paused": lambda: self._pause([self._supervised.any().script.pid]),
            "instance paused": lambda: self._pause(self._supervised.any().processes),
            "broker killed, absent": self._lose_broker,
            "broker paused": self._pause_broker,
            "broker shut down": self._close_broker,
            "connections cut": self._cut,
            "connections refused": self._refuse,
            "network silent": self._silence,
            "disk full": self._fill_disk,
            "thread failed": self._fail_thread,
            "user code slow": self._slow_down,
            "poison record": self._poison,
            "thread added": lambda: self._supervised.change_threads("add"),
            "thread removed": lambda: self._supervised.change_threads("remove"),
            "instance closed": self._close_instance,
        }
        if len(self.kafka.brokers) > 1:
            self.kinds["all brokers killed"] = self._lose_all_brokers
            self.kinds["rolling broker restart"] = self._restart_brokers_in_turn

    def run(self, seconds: float, kinds: Sequence[str] | None = None) -> Report:
        """Inject random faults for this time, or faults of the given kinds in their order."""
        application = self.instances.application
        began = time.monotonic()
        with self._supervised.running(), Watch(application) as watch:
            with background(lambda: application.write(_IDS), _WRITE_S):
                wait_for(lambda: self._supervised.are_up, _RECOVERED_S, "both instances run")
                wait_for(lambda: watch.next_id > 0, _RECOVERED_S, "ids are in the output")
                chosen = self._chosen(time.monotonic() + seconds) if kinds is None else kinds
                for kind in chosen:
                    self._inject(kind, watch, overlaps=kinds is None)
                self._recover(watch)
            application.wait_committed(_RECOVERED_S)
            self.kafka.wait_in_sync()
            account = application.account()
            wait_for(lambda: self._supervised.are_up, _RECOVERED_S, "both instances run")
            self._supervised.end()
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
            starts=self._supervised.starts,
            connections=self.proxy.total,
        )

    def _chosen(self, end: float) -> Iterator[str]:
        """All kinds in random order, repeatedly."""
        while True:
            for kind in self._rng.sample(sorted(self.kinds), len(self.kinds)):
                if time.monotonic() > end:
                    return
                yield kind

    def _inject(self, kind: str, watch: Watch, *, overlaps: bool) -> None:
        row = self.rows.setdefault(kind, Row())
        row.times += 1
        began = time.monotonic()
        application = self.instances.application
        if not self._open:
            self._committed = application.committed
        self._open += 1
        logger.info("%s", kind)
        self.kinds[kind]()
        if overlaps and self._rng.random() < _OVERLAPS:
            return
        self._recover(watch)
        took_s = time.monotonic() - began
        logger.info("recovered after %.1f s", took_s)
        row.recovery_s = max(row.recovery_s, took_s)

    def _recover(self, watch: Watch) -> None:
        """Wait until everything written so far and in the next seconds is in the output, so that
        all tasks process records, and until all instances are running."""
        application = self.instances.application
        target = application.written + _RECOVERED_IDS
        wait_for(
            lambda: watch.next_id >= target,
            _RECOVERED_S,
            lambda: (
                f"{target} ids are output after {self.rows}; {watch.next_id} are. "
                f"{self._describe_progress()}"
            ),
        )
        if self._open:
            # Each fault may cause all of these records to be processed again.
            done = application.ends - self._committed
            application.may_repeat += self._open * done
            self._open = 0
        wait_for(lambda: self._supervised.are_up, _RECOVERED_S, "both instances run")

    def _describe_progress(self) -> str:
        """The state that may prevent the recovery: open transactions, lag, instances."""
        application = self.instances.application
        ups = {each.name: last_report(each.script) for each in self._supervised.all}
        return (
            f"Open transactions: {application.open_transactions()}; lag: {application.lag}; "
            f"instances: {ups}; their last errors: {self._supervised.last_errors(3_000)}"
        )

    def _sleep_during_fault(self) -> None:
        """Sleep for the duration of a fault: often longer than session and delivery timeouts."""
        time.sleep(self._rng.choice([0.5, 2.0, LONG_S]))

    def _kill_worker(self) -> None:
        send(signal.SIGKILL, *self._supervised.worker())

    def _kill_driver(self) -> None:
        send(signal.SIGKILL, self._supervised.any().processes[0])

    def _kill_instance(self) -> None:
        send(signal.SIGKILL, *self._supervised.any().processes)

    def _pause(self, processes: list[int]) -> None:
        send(signal.SIGSTOP, *processes)
        self._sleep_during_fault()
        send(signal.SIGCONT, *processes)

    def _lose_broker(self) -> None:
        broker = self._rng.choice(self.kafka.brokers)
        broker.kill()
        self._sleep_during_fault()
        broker.start()

    def _pause_broker(self) -> None:
        broker = self._rng.choice(self.kafka.brokers)
        broker.pause()
        self._sleep_during_fault()
        broker.resume()

    def _close_broker(self) -> None:
        broker = self._rng.choice(self.kafka.brokers)
        broker.stop()
        self._sleep_during_fault()
        broker.start()

    def _lose_all_brokers(self) -> None:
        self.kafka.kill()
        self._sleep_during_fault()
        self.kafka.start()

    def _restart_brokers_in_turn(self) -> None:
        for broker in self.kafka.brokers:
            self.kafka.wait_in_sync()
            broker.stop()
            broker.start()
        self.kafka.wait_in_sync()

    def _cut(self) -> None:
        for _ in range(3):
            self.proxy.cut(self._rng.choice([0.3, 1.0]), self._rng)
            time.sleep(self._rng.random())

    def _refuse(self) -> None:
        self.proxy.refuse(refused=True)
        self._sleep_during_fault()
        self.proxy.refuse(refused=False)

    def _silence(self) -> None:
        self.proxy.hold(held=True)
        self._sleep_during_fault()
        self.proxy.hold(held=False)

    def _fill_disk(self) -> None:
        processes = self._supervised.any().processes
        # Not Java's processes: Spark's own files must stay writable.
        python = [pid for pid in processes if b"python" in _command(pid)]
        for pid in python:
            _limit_files(pid, 1)
        time.sleep(self._rng.uniform(1, 5))
        for pid in python:
            _limit_files(pid, resource.RLIM_INFINITY)

    def _fail_thread(self) -> None:
        fails = self._supervised.any().fails
        fails.touch()
        wait_for(lambda: not fails.exists(), _RECOVERED_S, "a thread has failed")

    def _slow_down(self) -> None:
        slow = self._supervised.any().slow
        slow.write_text(str(self._rng.choice([0.5, 2.0, LONG_S])))
        wait_for(lambda: not slow.exists(), _RECOVERED_S, "user code is slow")

    def _poison(self) -> None:
        self.instances.application.poison()
        self._poisoned += 1

    def _close_instance(self) -> None:
        send(self._rng.choice([signal.SIGINT, signal.SIGTERM]), self._supervised.any().script.pid)


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
    """Start the brokers and the application, inject faults, and shut everything down.

    Args:
        folder: an empty folder.
        seed: determines everything.
        seconds: the duration of the faults.
        kinds: the kinds of faults, instead of all kinds repeatedly.
        guarantee: the processing guarantee of the application.
        brokers: the number of brokers.
        settings: further settings of the application.
    """
    ports = [free_port() for _ in range(brokers)]
    with (
        TcpProxy(*ports) as proxy,
        EmbeddedKafka(port=ports, advertised_port=proxy.ports, brokers=brokers) as kafka,
    ):
        instances = Instances(kafka, folder, **settings_under(guarantee), **(settings or {}))
        return Storm(seed, kafka, proxy, instances).run(seconds, kinds)


def main() -> int:
    parser = parser_of(__doc__, minutes=4)
    add_guarantee(parser, AT_LEAST_ONCE)
    parser.add_argument("--brokers", type=int, default=1, help="number of brokers")
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
        # Exactly-once prevents overwriting.
        lost = account.lost
        twice = account.repeated or report.out_of_order
        wrong = bool(twice) or report.dead_letters != report.poisoned
    return 1 if account.never_output or lost or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
