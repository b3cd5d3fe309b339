"""Sample data for the console: an application after failures and rebalances, without a broker.

Nothing is started: the sample reports the events of threads itself, and invents the metrics. As a
program it serves the console until it is stopped, and continues to report events.
"""

from __future__ import annotations

import math
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator

from millstream import KafkaStreams, StreamsConfig
from millstream.clock import ManualClock
from millstream.errors import ProcessingError
from millstream.metrics.values import OWN_GROUP, Metric, Metrics
from millstream.record import TaskId, TopicPartition
from millstream.runtime.loop.thread_meters import CONSUMER_GROUP
from millstream.runtime.states.thread_states import ClientState, ThreadState
from millstream.runtime.task.task_meters import TOPIC_GROUP
from millstream.runtime.thread_control import ClientJoined, RestoreEvent, RestoreStep
from millstream.serdes import STRING
from millstream.spark.connection.messages import Epoch, Hello
from millstream.state.storage.rocksdb_statistics import STORE_GROUP
from millstream.state.store_metrics import CACHE_GROUP
from support.owned_tasks import owned
from support.running.topologies.shop import shop

THREADS = [f"shop-5f1c2c1e-StreamThread-{number}" for number in (1, 2, 3)]
#: The node, the kind of exception handler, and the number of dead letters of each thread.
_DEAD_LETTERS = [
    ("KSTREAM-JOIN-0000000006", "processing", 7.0),
    ("KSTREAM-SOURCE-0000000004", "deserialization", 3.0),
    ("KSTREAM-JOIN-0000000006", "processing", 2.0),
]
_RATES: dict[str, float] = {}
HOSTS = ["worker-a.example.com", "worker-a.example.com", "worker-b.example.com"]


class Sample:
    """The application and its events."""

    def __init__(self, clock: ManualClock, state_dir: str = "nowhere") -> None:
        config = StreamsConfig(
            application_id="shop",
            bootstrap_servers="127.0.0.1:1",
            processing_guarantee="exactly_once_v2",
            default_key_serde=STRING,
            default_value_serde=STRING,
            state_dir=state_dir,
        )
        self.streams = KafkaStreams(shop(), config)
        self.clock = clock
        self._supervisor = self.streams._supervisor
        self._states = self.streams._states
        self._event_log = self._supervisor.event_log
        self._event_log._clock = clock
        self._totals = dict.fromkeys(self._tasks(), 0.0)
        # Metrics that only a running application has.
        self.streams.metrics = self._metrics  # type: ignore[method-assign]

    def _place(self, thread: str, host: str, pid: int) -> None:
        workers = self._supervisor.workers
        workers.registered(Hello("sample", thread, 1, Epoch(1, 0), pid, host))
        workers.joined(thread, ClientJoined(str(uuid.uuid5(uuid.NAMESPACE_DNS, host)), "/state"))

    def play_history(self) -> None:
        """Start, restore, fail, recover, and rebalance."""
        self._change_state(ClientState.REBALANCING, "start requested")
        for thread, host, pid in zip(THREADS[:2], HOSTS, (4711, 4712), strict=False):
            self._place(thread, host, pid)
            self._thread(thread, ThreadState.STARTING, "started")
            self._thread(thread, ThreadState.PARTITIONS_ASSIGNED, "has got tasks")
        self._own(0, ["0_0", "0_1", "0_2", "2_0", "2_1"], ["0_3"])
        self._own(1, ["0_3", "0_4", "0_5", "2_2", "2_3"], ["0_0", "0_1"])
        self._restore_all()
        for thread in THREADS[:2]:
            self._thread(thread, ThreadState.RUNNING, "all its tasks are restored")
        self._run(140)
        self._fail()
        self._run(60)
        self._join_third()
        self._run(90)
        self._restore_some()
        self._run(9)

    def advance_second(self) -> None:
        """Let a second pass."""
        self._run(1)

    # --- events
    # ------------------------------------------------------------------------------------

    def _change_state(self, state: ClientState, why: str) -> None:
        self._states.try_transition(state, why)

    def _thread(self, thread: str, state: ThreadState, why: str) -> None:
        self.clock.advance(45)
        self._supervisor._set_thread_state(thread, state, why)

    def _own(self, thread: int, active: list[str], standby: list[str]) -> None:
        tasks = owned({**dict.fromkeys(active, "RUNNING"), **dict.fromkeys(standby, "STANDBY")})
        self._states.set_tasks(THREADS[thread], tasks)
        self._event_log.tasks_changed(THREADS[thread], tasks)

    def _restore_all(self) -> None:
        for partition in range(6):
            thread = THREADS[partition // 3]
            end = 180_000 + 7_919 * partition
            self._restored(thread, "start", "customers", partition, 0, end)
            self.clock.advance(600)
            self._restored(thread, "end", "customers", partition, end, end, end)
        for partition, number in ((3, 0), (0, 1), (1, 1)):
            self._restored(THREADS[number], "standby start", "customers", partition, 0, 0)
            at = 52_000 - 311 * partition
            self._restored(THREADS[number], "standby batch", "customers", partition, at, at + 1, at)

    def _restore_some(self) -> None:
        for partition, at in ((4, 61_000), (5, 148_231)):
            self._restored(THREADS[2], "start", "sold-by-hour", partition, 0, 181_034)
            self.clock.advance(2_100)
            self._restored(THREADS[2], "batch", "sold-by-hour", partition, at, 181_034, at)

    def _restored(
        self,
        thread: str,
        step: str,
        store: str,
        partition: int,
        offset: int,
        end: int,
        records: int = 0,
    ) -> None:
        part = 0 if store == "customers" else 2
        place = TopicPartition(f"shop-{store}-changelog", partition)
        self._event_log.restore_progressed(
            thread,
            RestoreEvent(
                RestoreStep(step), place, store, offset, end, records, TaskId(part, partition)
            ),
        )

    def _fail(self) -> None:
        thread = THREADS[1]
        error = ProcessingError(
            "The function of join raised KeyError: 'EUR'. It is called for each record; handle "
            "what it cannot do, or set processing_exception_handler to go on without the record.",
            task_id=TaskId(0, 4),
            topic="orders",
            partition=4,
            offset=1_204_311,
            node="KSTREAM-JOIN-0000000006",
            declared_at="shop.py:31",
        )
        try:
            _RATES["EUR"]
        except KeyError as cause:
            error.__cause__ = cause
        self._event_log.add_failure(thread, error, "REPLACE_THREAD")
        self._thread(thread, ThreadState.PENDING_SHUTDOWN, "an error")
        self._thread(thread, ThreadState.DEAD, "failed")
        self.clock.advance(250)
        self._thread(thread, ThreadState.CREATED, "replaced")
        self._event_log.add_step(thread, f"runs in process 4790 on {HOSTS[1]}")
        self._place(thread, HOSTS[1], 4790)
        self._thread(thread, ThreadState.STARTING, "started")
        self._thread(thread, ThreadState.PARTITIONS_ASSIGNED, "has got tasks")
        self._own(1, ["0_3", "0_4", "0_5", "2_2", "2_3"], ["0_0", "0_1"])
        self.clock.advance(800)
        self._thread(thread, ThreadState.RUNNING, "all its tasks are restored")

    def _join_third(self) -> None:
        self._place(THREADS[2], HOSTS[2], 977)
        self._thread(THREADS[2], ThreadState.STARTING, "added")
        self._thread(THREADS[2], ThreadState.PARTITIONS_ASSIGNED, "has got tasks")
        self._thread(THREADS[0], ThreadState.PARTITIONS_REVOKED, "0_2, 2_1 go to another thread")
        self._own(0, ["0_0", "0_1", "2_0"], ["0_3"])
        self.clock.advance(310)
        self._own(1, ["0_3", "0_5", "2_2"], ["0_0", "0_1"])
        self._own(2, ["0_2", "0_4", "2_1", "2_3"], [])
        self._thread(THREADS[0], ThreadState.RUNNING, "has its tasks")
        self._thread(THREADS[2], ThreadState.RUNNING, "has its tasks")

    # --- numbers ---------------------------------------------------------------------------------

    def _tasks(self) -> Iterator[str]:
        yield from (f"{part}_{partition}" for part in (0, 2) for partition in range(6))

    def _run(self, seconds: int) -> None:
        for _ in range(seconds):
            self.clock.advance(1_000)
            second = self.clock.now_ms() / 1_000
            for index, task in enumerate(self._totals):
                wave = 1 + 0.25 * math.sin(second / 23 + index) + 0.08 * math.sin(second * 1.7)
                self._totals[task] += (5_200 if task.startswith("0") else 1_900) * wave
            for thread in THREADS:
                known = self._states.threads().get(thread)
                if known is None or known[0] is not ThreadState.RUNNING:
                    continue
                tasks = {
                    task_id: int(self._totals[task_id])
                    for task_id, task in known[1].items()
                    if not task.standby
                }
                self._event_log.records_processed(thread, tasks)

    def _metrics(self) -> Metrics:
        first = sum(total for task, total in self._totals.items() if task.startswith("0"))
        second = sum(total for task, total in self._totals.items() if task.startswith("2"))
        threads = {
            "process-total": first + second,
            "commit-total": (first + second) / 4_000,
        }
        own = [Metric(name, {}, value, "stream-thread-metrics") for name, value in threads.items()]
        dropped = Metric("dropped-records-total", {"task-id": "0_1"}, 12.0, "stream-task-metrics")
        return Metrics(
            [*own, dropped, *_dead_letters(), *self._flows(first, second), *self._sizes()]
        )

    def _flows(self, first: float, second: float) -> Iterator[Metric]:
        for topic in self._supervisor.topology.describe().subtopologies:
            for node in topic.nodes:
                name = node.name
                for read in getattr(node, "topics", ()):
                    on_cluster = read if not read.endswith("repartition") else f"shop-{read}"
                    share = {"orders": 0.96, "customers": 0.04}.get(read, 1.0)
                    total = (first if topic.id == 0 else second) * share
                    yield _metric("records-consumed-total", total, name, on_cluster)
                if (written := getattr(node, "topic", None)) is not None:
                    share = {"sold-by-hour": 0.02, "customer-counts": 0.1}.get(written, 0.36)
                    on_cluster = written if "repartition" not in written else f"shop-{written}"
                    yield _metric("records-produced-total", first * share, name, on_cluster)
        yield Metric("records-lag", {"topic": "orders", "partition": "0"}, 318.0, CONSUMER_GROUP)
        repartition = next(iter(self._supervisor.topology.internal_topics))
        waiting = {"topic": f"shop-{repartition}", "partition": "3"}
        yield Metric("records-lag", waiting, 12_480.0, CONSUMER_GROUP)

    def _sizes(self) -> Iterator[Metric]:
        sizes = {
            "customers": (1_183_402, 96_000_000),
            "orders-by-customer": (812_204, 41_500_000),
            "sold-by-hour": (2_901_118, 214_000_000),
            "products": (4_120, 380_000),
        }
        for store, (entries, size) in sizes.items():
            label = {"rocksdb-state-id": store}
            yield Metric("estimate-num-keys", label, entries, STORE_GROUP)
            yield Metric("total-sst-files-size", label, size, STORE_GROUP)
            yield Metric("size-all-mem-tables", label, size / 40, STORE_GROUP)
            yield Metric("hit-ratio-avg", {"record-cache-id": store}, 0.83, CACHE_GROUP)


def _dead_letters() -> Iterator[Metric]:
    for thread, (node, handler, total) in zip(THREADS, _DEAD_LETTERS, strict=True):
        labels = {
            "thread-id": thread,
            "processor-node-id": node,
            "exception-handler": handler,
            "topic": "dead-letters",
        }
        yield Metric("dead-letters-total", labels, total, OWN_GROUP)


def _metric(name: str, value: float, node: str, topic: str) -> Metric:
    return Metric(name, {"processor-node-id": node, "topic": topic}, value, TOPIC_GROUP)


def sample(state_dir: str = "nowhere") -> Sample:
    """The application after all these events."""
    made = Sample(ManualClock(int(time.time() * 1_000) - 310_000), state_dir)
    made.play_history()
    return made


def main(arguments: list[str]) -> None:
    """Serve it on a port, with the token `sample-token`."""
    with tempfile.TemporaryDirectory() as folder:
        shown = sample(folder)
        address = shown.streams.serve(port=int(arguments[0]), token="sample-token")
        print(address.url, flush=True)  # noqa: T201
        while True:
            time.sleep(1)
            shown.advance_second()


if __name__ == "__main__":
    main(sys.argv[1:])
