"""One instance of the application: its stream threads, each a process of its own on one of its
hosts, and its driver, which starts a thread anew when it ends though nobody asked for that."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from millstream.errors import StreamsError
from millstream.runtime.build_thread import build_thread, memory_share
from millstream.runtime.control import (
    Asked,
    Close,
    Command,
    Report,
    ResizeMemory,
    ThreadFailed,
    ThreadOutcome,
)
from millstream.runtime.host import Host
from millstream.runtime.loop.stream_thread import StreamThread
from millstream.runtime.ownership.restore_reports import RestoreAudience
from millstream.runtime.thread_identity import ThreadIdentity
from simulation.application import Shape
from simulation.broker.cluster import Cluster
from simulation.calls import SimulatedCalls
from simulation.clients.opening import SimulatedClients, opening
from simulation.disks import DiskFaults, SimulatedDisk, SimulatedStorages
from simulation.scheduler import Actor, Process, SimulatedClock

_START_AGAIN_US: Final = 2_000_000
#: How likely it takes a moment to read the clock.
_STALLS: Final = 0.002
#: How many threads an instance has at most, however many are added.
_MOST_THREADS: Final = 4


class Driver:
    """A thread's connection to its driver, which says what it is told to."""

    lost = False
    lost_reason = None

    def __init__(self) -> None:
        self.on_news: Callable[[], None] = lambda: None
        self._asked: list[Asked] = []

    def ask(self, command: Command) -> None:
        """Ask something of the thread."""
        self._asked.append(Asked(command))
        self.on_news()

    def report(self, report: Report) -> None:
        """Nobody listens, since checks see tasks themselves; but one that fails may go."""
        if isinstance(report, ThreadFailed):
            self.ask(Close())

    def attend(self) -> None:
        """What is said here needs nobody to carry it."""

    def commands(self) -> Sequence[Asked]:
        asked, self._asked = self._asked, []
        return asked

    def reply(self, asked: Asked, answer: Any) -> None:
        """Nothing is asked."""

    def refuse_questions(self, error: StreamsError) -> None:
        """Nothing is asked."""


class Worker:
    """A stream thread in its process.

    Args:
        process: of the thread.
        index: which of the instance's.
        host: where it runs.
        faults: of its disk.
    """

    def __init__(self, process: Process, index: int, host: str, faults: DiskFaults) -> None:
        self.process = process
        self.disk = SimulatedDisk(faults, process)
        self.storages = SimulatedStorages(faults, process)
        self.index = index
        self.host = host
        self.driver = Driver()
        self.actor: Actor | None = None
        self.thread: StreamThread | None = None
        self.clients: SimulatedClients | None = None
        self.outcome: ThreadOutcome | None = None
        self.closing = False


class Instance:
    """One instance.

    Args:
        cluster: the cluster.
        disk_faults: of its disk.
        name: such as "a".
        shape: of the application.
        state_dir: its own, with a folder of each of its hosts.
        threads: how many.
        hosts: on how many they run, each on any of them whenever it starts. Those on one host are a
            client, which has its folder.
        on_failure: told of a thread that ended by itself: its worker and why.
        on_end: told of a thread that ended, before its process does.
    """

    def __init__(
        self,
        cluster: Cluster,
        disk_faults: DiskFaults,
        name: str,
        shape: Shape,
        state_dir: str,
        threads: int,
        hosts: int,
        on_failure: Callable[[Worker, StreamsError], None],
        on_end: Callable[[Worker], None],
    ) -> None:
        self._cluster = cluster
        self._disk_faults = disk_faults
        self._scheduler = cluster.scheduler
        self.name = name
        self._shape = shape
        self.state_dir = state_dir
        self._threads = threads
        self._hosts = hosts
        #: The indexes of the threads that are to run.
        self._indexes = set(range(1, threads + 1))
        self._on_failure = on_failure
        self._on_end = on_end
        self._driver_id = self._new_id()
        self._topology = shape.topology()
        self.workers: dict[int, Worker] = {}
        #: Whether it is meant to run.
        self.wanted = False
        self._starts = 0

    def _new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self._scheduler.random.getrandbits(128), version=4)

    def start(self) -> None:
        """Start all threads that do not run."""
        self.wanted = True
        for index in sorted(self._indexes):
            self.start_thread(index)

    def start_thread(self, index: int) -> None:
        """Start one thread, unless it runs or the instance is not wanted."""
        if not self.wanted or index not in self._indexes or not self._is_free(index):
            return
        self._starts += 1
        process = Process(f"{self.name}{index}.{self._starts}", self.name)
        host = f"{self.name}-{self._scheduler.random.randrange(self._hosts)}"
        worker = self.workers[index] = Worker(process, index, host, self._disk_faults)
        self._scheduler.tell(f"{process.name} starts on {host}")
        worker.actor = self._scheduler.start(process, process.name, lambda: self._run(worker))

    def _is_free(self, index: int) -> bool:
        known = self.workers.get(index)
        return known is None or known.outcome is not None or not known.process.alive

    def add_thread(self) -> bool:
        """One more thread, under the lowest index that is free."""
        if len(self._indexes) >= _MOST_THREADS:
            return False
        index = next(
            each for each in itertools.count(1) if each not in self._indexes and self._is_free(each)
        )
        self._indexes.add(index)
        self.start_thread(index)
        self._share_cache()
        return True

    def remove_thread(self, worker: Worker) -> bool:
        """Close a thread for good, unless it is the last one."""
        if worker.closing or len(self._indexes) < 2 or worker.index not in self._indexes:
            return False
        self._indexes.discard(worker.index)
        self._ask_to_close(worker, Close(for_good=True))
        self._share_cache()
        return True

    def _share_cache(self) -> None:
        config = self._shape.config(self.state_dir, self.name, self._threads)
        for worker in self.living:
            worker.driver.ask(ResizeMemory(memory_share(config, len(self._indexes))))

    def _run(self, worker: Worker) -> None:
        """What the process of a thread does."""
        identity = ThreadIdentity(
            f"{self.name}-StreamThread-{worker.index}", worker.index, self._driver_id
        )

        def opened(clients: SimulatedClients) -> None:
            worker.clients = clients

        try:
            worker.thread = build_thread(
                self._topology,
                self._shape.config(f"{self.state_dir}/{worker.host}", self.name, self._threads),
                identity,
                worker.driver,
                RestoreAudience(),
                open_clients=opening(self._cluster, worker.process, opened),
                clock=SimulatedClock(self._scheduler, _STALLS),
                disk=worker.disk,
                storages=worker.storages,
                make_apart=lambda wake: SimulatedCalls(
                    self._scheduler,
                    worker.process,
                    lambda: None if worker.clients is None else worker.clients.waits,
                    wake,
                ),
                host=Host(worker.host, new_process_id=self._new_id),
            )
            outcome = worker.thread.run()
        except StreamsError as error:
            outcome = ThreadOutcome(error)
        if not worker.process.alive:
            return
        worker.outcome = outcome
        self._on_end(worker)
        # Nothing of it lives on: its process goes on to nothing.
        self._scheduler.kill(worker.process)
        self._scheduler.tell(f"{worker.process.name} ended: {outcome.error or outcome.close_error}")
        if outcome.error is not None:
            self._on_failure(worker, outcome.error)
            self._scheduler.call_after(_START_AGAIN_US, lambda: self.start_thread(worker.index))

    def close(self, *, leave_group: bool = True) -> None:
        """Ask all threads to close in an orderly way."""
        self.wanted = False
        for worker in self.workers.values():
            if worker.outcome is None and worker.process.alive:
                self._ask_to_close(worker, Close(leave_group=leave_group))

    @staticmethod
    def _ask_to_close(worker: Worker, command: Close) -> None:
        worker.closing = True
        worker.driver.ask(command)
        if worker.clients is not None:
            worker.clients.waits.end()

    @property
    def closed(self) -> bool:
        """Whether no thread runs."""
        return all(
            worker.outcome is not None or not worker.process.alive
            for worker in self.workers.values()
        )

    @property
    def living(self) -> list[Worker]:
        """The threads whose processes live."""
        return [worker for worker in self.workers.values() if worker.process.alive]
