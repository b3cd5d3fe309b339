"""The faults of a history: kinds, times, durations and targets."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from millstream.errors import (
    BrokerUnavailableError,
    GroupMembershipError,
    ProductionError,
    StreamsError,
    TaskCorruptedError,
)
from simulation.broker.cluster import Cluster, Network
from simulation.checks import Checks
from simulation.disks import DiskFaults
from simulation.instance import Instance, Worker
from simulation.scheduler import Process

#: The faults that may cause errors of brokers and disks.
_CLUSTER: Final = frozenset({"broker", "coordinator", "outage", "cut", "lossy", "late"})
_FREEZES_IN_COMMIT: Final = 0.5
_DISK: Final = frozenset({"disk full", "corrupt"})


class Faults:
    """Injects faults.

    Args:
        cluster: the cluster.
        checks: notified of killed processes.
        disk: the faults of disks.
        rng: chooses targets and durations.
        silences: chooses how long the coordinators are silent.
        instances: the possible targets.
        add_instance: starts another instance, up to a maximum.
    """

    def __init__(
        self,
        cluster: Cluster,
        checks: Checks,
        disk: DiskFaults,
        rng: random.Random,
        silences: random.Random,
        instances: Sequence[Instance],
        add_instance: Callable[[], bool],
    ) -> None:
        self._cluster = cluster
        self._scheduler = cluster.scheduler
        self._checks = checks
        self._disk = disk
        self._rng = rng
        self._silences = silences
        self._instances = instances
        self._add_instance = add_instance
        self.counts: Counter[str] = Counter()
        self.crashes = 0
        self._healed = False
        self._scheduler.on_planned_crash = self._kill
        self._injectors: dict[str, Callable[[], bool]] = {
            "crash": self._crash_thread,
            "crash instance": self._crash_instance,
            "wiped": self._wipe_disks,
            "corrupt": self._corrupt,
            "freeze": self._freeze,
            "slow": self._slow,
            "cut": self._cut,
            "broker": self._stop_broker,
            "outage": self._stop_all_brokers,
            "lossy": self._lossy,
            "late": self._late,
            "scale up": self._scale_up,
            "scale down": self._scale_down,
            "restart": self._restart,
            "thread added": self._add_thread,
            "thread removed": self._remove_thread,
            "disk full": self._fill_disk,
            "compaction": self._compact,
        }

        #: Planned separately, so that the other faults of a seed do not depend on them.
        self._separate_injectors: dict[str, Callable[[], bool]] = {
            "coordinator": self._silence_coordinators
        }

    @property
    def kinds(self) -> list[str]:
        """The kinds that are chosen at random; `coordinator` is planned separately."""
        return list(self._injectors)

    def inject(self, kind: str) -> None:
        """Inject a fault of a kind, if possible."""
        self._scheduler.log(f"--- fault: {kind}")
        if (self._injectors | self._separate_injectors)[kind]():
            self.counts[kind] += 1

    def heal(self) -> None:
        """Stop injecting faults and repair everything."""
        self._healed = True
        self._scheduler.log("--- no more faults")
        for broker in self._cluster.up:
            self._cluster.restart(broker)
        self._cluster.end_silence()
        self._cluster.network = Network()
        self._cluster.freeze_next_commit_us = 0
        self._disk.full.clear()
        for instance in self._instances:
            for worker in instance.workers.values():
                process = worker.process
                process.frozen_until_us = min(process.frozen_until_us, self._scheduler.now_us)
                process.cut_off = False
                process.crash_after_calls = None
                process.slow_us = 0
        for instance in self._instances[:2]:
            if instance.closed:
                instance.start()
        for instance in self._instances:
            if instance.should_run:
                instance.start()

    def explains(self, error: StreamsError) -> bool:
        """Whether the faults so far may have caused an error of a thread."""
        kinds = frozenset(self.counts)
        if isinstance(error, BrokerUnavailableError | ProductionError):
            return bool(kinds & (_CLUSTER | {"freeze", "slow"}))
        if isinstance(error, GroupMembershipError):
            # A restarted static member has replaced this one.
            return "static member" in str(error)
        if isinstance(error, TaskCorruptedError):
            return bool(kinds & _DISK)
        if "No space left" in str(error):
            return "disk full" in kinds
        return False

    # --- targets -------------------------------------------------------------------------------

    def _some_worker(self) -> Worker | None:
        living = [worker for instance in self._instances for worker in instance.living]
        return self._rng.choice(living) if living else None

    def _some_instance(self, *, living: bool = True) -> Instance | None:
        some = [i for i in self._instances if i.should_run and (i.living or not living)]
        return self._rng.choice(some) if some else None

    def _after_random_ms(self, min_ms: int, max_ms: int, call: Callable[[], None]) -> None:
        def due() -> None:
            if not self._healed:
                call()

        self._scheduler.call_after(self._rng.randrange(min_ms, max_ms) * 1000, due)

    # --- processes -----------------------------------------------------------------------------

    def _kill(self, process: Process) -> None:
        if not process.alive:
            return
        self.crashes += 1
        self._scheduler.log(f"{process.name} is killed")
        self._checks.process_killed(process)
        self._scheduler.kill(process)

    def _crash_thread(self) -> bool:
        """Kill the process of a thread at one of its next calls. The driver starts another."""
        worker = self._some_worker()
        if worker is None:
            return False
        worker.process.crash_after_calls = self._rng.randrange(0, 80)
        instance = next(i for i in self._instances if worker in i.workers.values())
        self._after_random_ms(1_500, 10_000, lambda: instance.start_thread(worker.index))
        return True

    def _crash_instance(self) -> bool:
        """Crash the hosts of an instance. They restart later with their disks."""
        instance = self._some_instance()
        if instance is None:
            return False
        calls = self._rng.randrange(0, 80)
        first = instance.living[0].process
        first.crash_after_calls = calls
        self._after_random_ms(0, 300, lambda: self._kill_all(instance))
        self._after_random_ms(500, 15_000, instance.start)
        return True

    def _wipe_disks(self) -> bool:
        """Crash an instance and restart it with empty disks."""
        return self._replace(lambda state_dir: shutil.rmtree(state_dir, ignore_errors=True))

    def _corrupt(self) -> bool:
        """Crash an instance and restart it with a damaged store file."""

        def damage(state_dir: str) -> None:
            files = sorted(Path(state_dir).rglob("rocksdb/*/*"))
            files = [file for file in files if file.name.endswith((".sst", "CURRENT"))]
            if files:
                self._rng.choice(files).write_bytes(b"damaged contents")

        return self._replace(damage)

    def _replace(self, change: Callable[[str], None]) -> bool:
        """Crash the hosts of an instance and restart them later, with changed disks."""
        instance = self._some_instance()
        if instance is None:
            return False
        self._kill_all(instance)

        def back() -> None:
            change(instance.state_dir)
            instance.start()

        self._after_random_ms(1_000, 10_000, back)
        return True

    def _kill_all(self, instance: Instance) -> None:
        for worker in instance.living:
            self._kill(worker.process)

    def _freeze(self) -> bool:
        """Pause a process, sometimes for longer than its session."""
        worker = self._some_worker()
        if worker is None:
            return False
        if self._rng.random() < _FREEZES_IN_COMMIT:
            self._cluster.freeze_next_commit_us = self._rng.choice((500, 6_500, 7_500)) * 1000
            return True
        us = self._rng.choice((500, 3_000, 9_000, 16_000)) * 1000
        worker.process.frozen_until_us = self._scheduler.now_us + us
        self._scheduler.log(f"{worker.process.name} is paused for {us // 1000} ms")
        return True

    def _slow(self) -> bool:
        """Slow down a user function, sometimes beyond `max.poll.interval.ms`."""
        worker = self._some_worker()
        if worker is None:
            return False
        process = worker.process
        process.slow_us = self._rng.choice((20, 300, 3_000, 14_000)) * 1000

        def quick() -> None:
            process.slow_us = 0

        self._after_random_ms(1_000, 15_000, quick)
        return True

    def _cut(self) -> bool:
        """Disconnect a process from the cluster for a while."""
        worker = self._some_worker()
        if worker is None:
            return False
        process = worker.process
        process.cut_off = True
        self._scheduler.log(f"{process.name} is cut off")

        def back() -> None:
            process.cut_off = False

        self._after_random_ms(500, 12_000, back)
        return True

    def _scale_up(self) -> bool:
        return self._add_instance()

    def _scale_down(self) -> bool:
        running = [i for i in self._instances if i.should_run and i.living]
        if len(running) < 2:
            return False
        self._rng.choice(running).close(leave_group=self._rng.random() < 0.7)
        return True

    def _add_thread(self) -> bool:
        instance = self._some_instance()
        return instance is not None and instance.add_thread()

    def _remove_thread(self) -> bool:
        instance = self._some_instance()
        if instance is None:
            return False
        return instance.remove_thread(self._rng.choice(instance.living))

    def _restart(self) -> bool:
        """Close an instance cleanly and start it again."""
        instance = self._some_instance()
        if instance is None:
            return False
        instance.close(leave_group=self._rng.random() < 0.7)

        def back() -> None:
            if instance.closed:
                instance.start()
            else:
                self._after_random_ms(200, 1_000, back)

        self._after_random_ms(200, 4_000, back)
        return True

    # --- brokers and the network ---------------------------------------------------------------

    def _stop_broker(self) -> bool:
        broker = self._rng.randrange(self._cluster.brokers)
        self._cluster.stop(broker)
        self._after_random_ms(500, 12_000, lambda: self._cluster.restart(broker))
        return True

    def _stop_all_brokers(self) -> bool:
        for broker in self._cluster.up:
            self._cluster.stop(broker)
        after_ms = self._rng.choice((1_000, 5_000, 9_000, 18_000))
        for broker in self._cluster.up:
            self._after_random_ms(
                after_ms, after_ms + 2_000, partial(self._cluster.restart, broker)
            )
        return True

    def _silence_coordinators(self) -> bool:
        """Pause the coordinators for about a commit or session timeout; some answers are late."""
        self._cluster.silence_coordinators(self._silences.randrange(4_000, 6_000) * 1000)
        return True

    def _lossy(self) -> bool:
        return self._bad_network(Network(loss=self._rng.choice((0.02, 0.1, 0.3))))

    def _late(self) -> bool:
        most = self._rng.choice((20, 300, 2_000)) * 1000
        return self._bad_network(Network(delay=0.2, max_delay_us=most))

    def _bad_network(self, network: Network) -> bool:
        self._cluster.network = network

        def good() -> None:
            if self._cluster.network is network:
                self._cluster.network = Network()

        self._after_random_ms(500, 8_000, good)
        return True

    # --- disks and logs ------------------------------------------------------------------------

    def _fill_disk(self) -> bool:
        instance = self._some_instance()
        if instance is None:
            return False
        self._disk.full.add(instance.name)
        self._after_random_ms(500, 6_000, lambda: self._disk.full.discard(instance.name))
        return True

    def _compact(self) -> bool:
        for _, log in sorted(self._cluster.logs.items()):
            if "compact" in log.cleanup and log.end:
                log.compact(self._rng.randrange(log.end + 1))
        return True
