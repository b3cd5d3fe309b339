"""An instance of the application: its stream threads, each in a process of its own on one of the
hosts, and a driver that replaces failed threads."""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from millstream.errors import StreamsError
from millstream.runtime.build_thread import build_thread, memory_share
from millstream.runtime.client_process import ThreadIdentity, WorkerHost
from millstream.runtime.loop.stream_thread import StreamThread
from millstream.runtime.task_management.restore_reports import RestoreReportOptions
from millstream.runtime.thread_control import (
    Close,
    Command,
    ReceivedCommand,
    Report,
    ResizeMemory,
    ThreadFailed,
    ThreadOutcome,
)
from simulation.application import Shape
from simulation.broker.cluster import Cluster
from simulation.calls import SimulatedCalls
from simulation.clients.opening import SimulatedClients, opening
from simulation.disks import DiskFaults, SimulatedDisk, SimulatedStorages
from simulation.scheduler import Actor, Process, SimulatedClock

_RESTART_DELAY_US: Final = 2_000_000
#: The probability that reading the clock takes a moment.
_STALL_PROBABILITY: Final = 0.002
#: The maximum number of threads of an instance.
_MAX_THREADS: Final = 4


class Driver:
    """A thread's connection to its driver, which sends the commands of the history."""

    lost = False
    lost_reason = None

    def __init__(self) -> None:
        self.on_event: Callable[[], None] = lambda: None
        self._commands: list[ReceivedCommand] = []

    def send(self, command: Command) -> None:
        """Send a command to the thread."""
        self._commands.append(ReceivedCommand(command))
        self.on_event()

    def report(self, report: Report) -> None:
        """Ignore reports, since the checks observe tasks directly; but close a failed thread."""
        if isinstance(report, ThreadFailed):
            self.send(Close())

    def process_io(self) -> None:
        """Do nothing: commands are delivered directly."""

    def commands(self) -> Sequence[ReceivedCommand]:
        commands, self._commands = self._commands, []
        return commands

    def reply(self, commands: ReceivedCommand, answer: Any) -> None:
        """Do nothing: the driver sends no requests."""

    def reject_requests(self, error: StreamsError) -> None:
        """Do nothing: the driver sends no requests."""


class Worker:
    """A stream thread in its process.

    Args:
        process: the thread's process.
        index: the thread's number in the instance.
        host: the host on which it runs.
        faults: the faults of its disk.
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
    """An instance of the application.

    Args:
        cluster: the cluster.
        disk_faults: the faults of its disk.
        name: such as "a".
        shape: of the application.
        state_dir: its state directory, with a folder for each host.
        threads: the number of threads.
        hosts: the number of hosts; a thread may start on any. The threads of one host share a
            folder, so they are one process of the assignment.
        on_failure: called with the worker and the error of a failed thread.
        on_end: called with the worker of an ended thread, before its process ends.
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
        #: The indexes of the threads that should run.
        self._indexes = set(range(1, threads + 1))
        self._on_failure = on_failure
        self._on_end = on_end
        self._driver_id = self._new_id()
        self._topology = shape.topology()
        self.workers: dict[int, Worker] = {}
        #: Whether the instance should run.
        self.should_run = False
        self._starts = 0

    def _new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self._scheduler.random.getrandbits(128), version=4)

    def start(self) -> None:
        """Start all threads that do not run."""
        self.should_run = True
        for index in sorted(self._indexes):
            self.start_thread(index)

    def start_thread(self, index: int) -> None:
        """Start one thread, unless it already runs or the instance is closed."""
        if not self.should_run or index not in self._indexes or not self._is_free(index):
            return
        self._starts += 1
        process = Process(f"{self.name}{index}.{self._starts}", self.name)
        host = f"{self.name}-{self._scheduler.random.randrange(self._hosts)}"
        worker = self.workers[index] = Worker(process, index, host, self._disk_faults)
        self._scheduler.log(f"{process.name} starts on {host}")
        worker.actor = self._scheduler.start(process, process.name, lambda: self._run(worker))

    def _is_free(self, index: int) -> bool:
        known = self.workers.get(index)
        return known is None or known.outcome is not None or not known.process.alive

    def add_thread(self) -> bool:
        """Start another thread with the lowest free index."""
        if len(self._indexes) >= _MAX_THREADS:
            return False
        index = next(
            each for each in itertools.count(1) if each not in self._indexes and self._is_free(each)
        )
        self._indexes.add(index)
        self.start_thread(index)
        self._share_cache()
        return True

    def remove_thread(self, worker: Worker) -> bool:
        """Close a thread permanently, unless it is the last one."""
        if worker.closing or len(self._indexes) < 2 or worker.index not in self._indexes:
            return False
        self._indexes.discard(worker.index)
        self._send_close(worker, Close(for_good=True))
        self._share_cache()
        return True

    def _share_cache(self) -> None:
        config = self._shape.config(self.state_dir, self.name, self._threads)
        for worker in self.living:
            worker.driver.send(ResizeMemory(memory_share(config, len(self._indexes))))

    def _run(self, worker: Worker) -> None:
        """Run a thread in its process."""
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
                RestoreReportOptions(),
                open_clients=opening(self._cluster, worker.process, opened),
                clock=SimulatedClock(self._scheduler, _STALL_PROBABILITY),
                disk=worker.disk,
                storages=worker.storages,
                make_runners=lambda wake: SimulatedCalls(
                    self._scheduler,
                    worker.process,
                    lambda: None if worker.clients is None else worker.clients.wait_point,
                    wake,
                ),
                host=WorkerHost(worker.host, new_process_id=self._new_id),
            )
            outcome = worker.thread.run()
        except StreamsError as error:
            outcome = ThreadOutcome(error)
        if not worker.process.alive:
            return
        worker.outcome = outcome
        self._on_end(worker)
        # The process ends with its thread.
        self._scheduler.kill(worker.process)
        self._scheduler.log(f"{worker.process.name} ended: {outcome.error or outcome.close_error}")
        if outcome.error is not None:
            self._on_failure(worker, outcome.error)
            self._scheduler.call_after(_RESTART_DELAY_US, lambda: self.start_thread(worker.index))

    def close(self, *, leave_group: bool = True) -> None:
        """Close all threads cleanly."""
        self.should_run = False
        for worker in self.workers.values():
            if worker.outcome is None and worker.process.alive:
                self._send_close(worker, Close(leave_group=leave_group))

    @staticmethod
    def _send_close(worker: Worker, command: Close) -> None:
        worker.closing = True
        worker.driver.send(command)
        if worker.clients is not None:
            worker.clients.wait_point.end()

    @property
    def closed(self) -> bool:
        """Whether no thread is running."""
        return all(
            worker.outcome is not None or not worker.process.alive
            for worker in self.workers.values()
        )

    @property
    def living(self) -> list[Worker]:
        """The threads with live processes."""
        return [worker for worker in self.workers.values() if worker.process.alive]
