"""Which threads are replaced, after which backoff, and which failures close the application."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from support.waiting import wait_for

from millstream import (
    BrokerUnavailableError,
    ConfigError,
    ShutdownRequestedError,
    SparkError,
    StreamsBuilder,
    StreamsConfig,
    StreamsError,
    StreamsUncaughtExceptionHandlerResponse,
)
from millstream.application import stream_threads as stream_threads_module
from millstream.application.supervisor import ThreadSupervisor
from millstream.clock import ManualClock
from millstream.metrics.metric_frames import FrameWriter
from millstream.metrics.values import Metrics
from millstream.record import TaskId, TopicPartition
from millstream.runtime.loop.thread_meters import InputLag, ThreadMeters
from millstream.runtime.states.client_states import ClientStateTracker
from millstream.runtime.states.thread_states import ClientState, TaskState, ThreadState
from millstream.runtime.task.task_meters import TaskMeters
from millstream.runtime.thread_control import (
    Close,
    Command,
    MemoryShare,
    Pause,
    RequestShutdown,
    ResizeMemory,
    RestoreEvent,
    RestoreStep,
    StateChanged,
    TasksChanged,
    ThreadFailed,
    ThreadMetrics,
)
from millstream.serdes import STRING
from millstream.spark.code import shipping
from millstream.spark.connection.messages import Epoch, Hello, ThreadExit
from millstream.spark.thread_events import ThreadEvent

REPLACE_THREAD = StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
SHUTDOWN_CLIENT = StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_CLIENT
SHUTDOWN_APPLICATION = StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_APPLICATION
MEMORY_OF_ALL = MemoryShare(10 * 1024 * 1024, 64 * 1024 * 1024)
A_THIRD = MemoryShare(*(number // 3 for number in MEMORY_OF_ALL))
SHUTDOWN_REQUESTED = ShutdownRequestedError("requested by a member")
DOWN = BrokerUnavailableError("no answer")


class Engine:
    """The part of the Spark engine that the supervisor uses."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int]] = []
        self.ending: list[tuple[str, int]] = []
        self.sent: list[tuple[str, Command]] = []
        self.close_requests: list[tuple[str, Close]] = []
        self.session = None
        self.is_event_thread = False
        self.threads: list[str] = []
        self.closed = threading.Event()
        #: Called at the start of a thread.
        self.on_start: Callable[[str], None] = lambda name: None

    def start_thread(
        self,
        name: str,
        index: int,
        main: bytes,
        *,
        pause_ms: int = 0,
        ignore_previous: bool = False,
        register_ms: int | None = None,
    ) -> None:
        self.on_start(name)
        self.started.append((name, pause_ms))

    def send(self, name: str, command: Command) -> None:
        self.sent.append((name, command))

    def request_close(self, name: str, command: Close) -> None:
        self.close_requests.append((name, command))

    def kill_after(self, name: str, within_ms: int) -> None:
        self.ending.append((name, within_ms))

    def close(self, timeout_ms: int, data: Any) -> bool:
        self.closed.set()
        return True


class Application:
    """A supervisor of two running threads."""

    def __init__(self, folder: str) -> None:
        builder = StreamsBuilder()
        builder.stream("in", key=STRING, value=STRING).to("out")
        config = StreamsConfig(
            application_id="app",
            bootstrap_servers="not-used:9092",
            state_dir=folder,
            client_id="app",
            num_stream_threads=2,
        )
        self.clock = ManualClock()
        self.states = ClientStateTracker("app", self.clock)
        self.supervisor = ThreadSupervisor(builder.build(), config, None, self.states, self.clock)
        self.handled: list[StreamsError] = []
        self.answer = REPLACE_THREAD
        self.supervisor.failure_policy.exception_handler = self._handle
        self.engine = Engine()
        engine: Any = self.engine
        self.stream_threads = self.supervisor._stream_threads
        self.supervisor._engine = self.stream_threads.engine = engine
        self.supervisor._take_directory()
        self.states.try_transition(ClientState.REBALANCING, "started")
        self.names = ["app-StreamThread-1", "app-StreamThread-2"]
        self.stream_threads.prepare()
        self.stream_threads.start()
        for index in (1, 2):
            self.registers(index)
        self.engine.started.clear()

    def _handle(self, error: StreamsError) -> StreamsUncaughtExceptionHandlerResponse:
        self.handled.append(error)
        return self.answer

    def emits(self, index: int, kind: Any, data: Any) -> None:
        self.supervisor._on_event(ThreadEvent(self.names[index - 1], kind, data))

    def registers(self, index: int) -> None:
        name = self.names[index - 1]
        self.emits(index, "registered", Hello("app", name, index, Epoch(1, 0), 1, "host"))

    def dies(self, index: int, error: StreamsError = DOWN) -> None:
        self.emits(index, "report", ThreadFailed(error))
        self.emits(index, "exited", ThreadExit("error", error))

    def closed_in_error(self) -> bool:
        wait_for(self.engine.closed.is_set, 30, "the application closes")
        wait_for(lambda: self.states.state is ClientState.ERROR, 30, "the state is ERROR")
        return True


@pytest.fixture
def app(tmp_path: Any) -> Application:
    return Application(str(tmp_path))


def test_a_thread_is_replaced_as_often_as_the_handler_decides(app: Application) -> None:
    """Detects a limit over all threads, which closed an application after an outage of an hour."""
    for _ in range(20):
        for index in (1, 2):
            app.dies(index)
            app.registers(index)
    assert len(app.handled) == 40
    for name in app.names:
        pauses = [pause_ms for started, pause_ms in app.engine.started if started == name]
        assert pauses[:8] == [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]
        assert set(pauses[8:]) == {30_000}
    assert app.states.state is ClientState.REBALANCING
    assert app.supervisor.error is None


@pytest.mark.parametrize("kind", ["restarting", "exited"])
def test_metrics_of_a_lost_thread_are_not_reported(app: Application, kind: str) -> None:
    """The tasks are on the other thread: their metrics would count twice, and the lost thread would
    seem to be running."""
    thread, clock = app.names[0], app.clock
    meters = ThreadMeters(thread, clock)
    task = meters.scope.adopt(TaskMeters(TaskId(0, 0), clock, labels=meters.scope.labels).scope)
    task.gauge("stream-state-metrics", "estimate-num-keys", lambda: 7)
    meters.set_lags([InputLag(TaskId(0, 0), TopicPartition("in", 0), 12)])
    meters.set_subscription_metrics([("tasks.processed", (), 3.0), ("tasks.pending", (), 4.0)])
    meters.set_state(ThreadState.RUNNING)
    meters.committed.record(5)
    app.emits(1, "report", ThreadMetrics(FrameWriter(meters.scope).full()))

    def named_metrics(name: str, **labels: str) -> Metrics:
        return app.supervisor.metrics.all().named(name, None, **labels)

    assert [one.value for one in named_metrics("state", thread_id=thread)] == ["RUNNING"]
    assert named_metrics("commit-rate")[0].value != 0

    app.emits(1, kind, ThreadExit("lost") if kind == "exited" else "its worker was killed")
    for gone in ("estimate-num-keys", "records-lag", "tasks.pending", "commit-latency-avg"):
        assert not named_metrics(gone), gone
    states = {"restarting": ("CREATED", 0), "exited": ("DEAD", 6)}[kind]
    assert [
        named_metrics(name, thread_id=thread)[0].value for name in ("state", "thread-state")
    ] == [*states]
    assert [one.value for one in named_metrics("commit-rate")] == [0]
    assert [one.value for one in named_metrics("commit-total")] == [1]
    assert [one.value for one in named_metrics("tasks.processed")] == [3]


@pytest.mark.parametrize("kind", ["restarting", "exited"])
def test_restorations_and_rates_of_a_lost_thread_end(app: Application, kind: str) -> None:
    """Detects restorations that never end, and rates and tasks without a thread, after a worker
    was lost."""
    event_log, place = app.supervisor.event_log, TopicPartition("app-counts-changelog", 0)
    for index in (1, 2):
        app.emits(index, "report", StateChanged(ThreadState.RUNNING, "has its tasks"))
    for index in (1, 2):
        app.emits(index, "report", TasksChanged({TaskId(0, index): TaskState.RUNNING}))
        event_log.records_processed(app.names[index - 1], {f"0_{index}": 7})
    begun = RestoreEvent(RestoreStep.START, place, "counts", 0, 100, 0, TaskId(0, 1))
    app.emits(1, "report", begun)
    app.emits(1, kind, ThreadExit("lost") if kind == "exited" else "its worker was killed")
    app.emits(2, "report", StateChanged(ThreadState.PARTITIONS_ASSIGNED, "more tasks"))

    named_metrics = event_log.snapshot()
    assert [each.state for each in named_metrics.restores] == ["suspended"]
    assert named_metrics.rates.keys() == {(app.names[1], "0_2")}
    assert named_metrics.rebalances[-1].after.keys() == {app.names[1]}


def test_a_lost_thread_had_its_tasks_before_the_rebalance(app: Application) -> None:
    """Detects tasks that another thread takes over, but whose previous thread is missing."""
    for index in (1, 2):
        app.emits(index, "report", StateChanged(ThreadState.RUNNING, "has its tasks"))
        app.emits(index, "report", TasksChanged({TaskId(0, index): TaskState.RUNNING}))
    app.clock.advance(60_000)
    app.emits(1, "restarting", "its worker was killed")
    last = app.supervisor.event_log.snapshot().rebalances[-1]
    assert (sorted(last.before), sorted(last.after)) == (app.names, app.names[1:])


def test_the_backoff_is_reset_after_a_while_without_failures(app: Application) -> None:
    for _ in range(5):
        app.dies(1)
        app.registers(1)
    app.clock.advance(4_000 + 60_000)
    app.dies(1)
    app.dies(2)
    assert [pause_ms for _, pause_ms in app.engine.started][-2:] == [250, 250]


def test_a_failed_thread_is_killed_if_it_does_not_close_in_time(app: Application) -> None:
    """Detects user code that blocks in `close()`: its thread was never replaced.

    A thread that was killed for this reason is replaced like any other.
    """
    app.emits(1, "report", ThreadFailed(DOWN))
    assert app.engine.ending == [(app.names[0], 30_000)]
    assert app.engine.started == []
    app.emits(1, "exited", ThreadExit("killed", reason="it did not close in time"))
    assert app.engine.started == [(app.names[0], 250)]
    assert len(app.handled) == 1


@pytest.mark.parametrize("kind", [SparkError, ConfigError])
def test_no_thread_is_replaced_after_a_failure_that_would_recur(
    app: Application, kind: type[StreamsError]
) -> None:
    app.emits(1, "failed", kind("cannot be run"))
    assert app.closed_in_error()
    assert app.engine.started == []


def test_a_handler_can_close_the_application_after_replacements(app: Application) -> None:
    app.dies(1)
    app.registers(1)
    app.answer = SHUTDOWN_CLIENT
    app.dies(1)
    assert app.closed_in_error()
    assert app.supervisor.error is DOWN
    assert len(app.engine.started) == 1


def shutdown_requests(app: Application) -> set[str]:
    return {name for name, command in app.engine.sent if isinstance(command, RequestShutdown)}


def test_all_instances_shut_down_once_the_group_has_notified_them(app: Application) -> None:
    """Detects an instance that closes before the other instances are notified (KIP-671)."""
    app.answer = SHUTDOWN_APPLICATION
    app.emits(1, "report", ThreadFailed(DOWN))
    assert app.names[1] in shutdown_requests(app)
    assert app.states.state is ClientState.REBALANCING
    assert not app.engine.closed.is_set()
    app.emits(2, "report", ThreadFailed(SHUTDOWN_REQUESTED))
    assert app.closed_in_error()
    assert app.supervisor.error is DOWN
    assert app.handled == [DOWN]


def test_the_last_thread_is_restarted_to_notify_the_other_instances(app: Application) -> None:
    """It gets the command as soon as it registers, before it can process anything."""
    app.answer = SHUTDOWN_APPLICATION
    app.dies(1)
    app.dies(2)
    assert {name for name, _ in app.engine.started} == set(app.names)
    app.engine.sent.clear()
    app.stream_threads.send_current_commands(app.names[1])
    assert shutdown_requests(app) == {app.names[1]}
    assert app.handled == [DOWN]


def test_an_instance_closes_by_itself_if_the_group_does_not_answer(app: Application) -> None:
    app.answer = SHUTDOWN_APPLICATION
    app.dies(1)
    app.clock.advance(300_000)
    app.supervisor.failure_policy.tick()
    assert not app.engine.closed.is_set()
    app.clock.advance(30_001)
    app.supervisor.failure_policy.tick()
    assert app.closed_in_error()
    assert app.supervisor.error is DOWN


def test_a_shutdown_requested_by_another_instance_calls_no_handler(app: Application) -> None:
    """With REPLACE_THREAD one instance would continue alone."""
    app.emits(1, "report", ThreadFailed(SHUTDOWN_REQUESTED))
    app.emits(2, "report", ThreadFailed(SHUTDOWN_REQUESTED))
    assert app.closed_in_error()
    assert app.handled == []
    assert app.supervisor.error is SHUTDOWN_REQUESTED


def test_an_invalid_answer_of_the_handler_closes_the_instance(app: Application) -> None:
    answer: Any = None
    app.answer = answer
    app.dies(1)
    assert app.closed_in_error()


@pytest.fixture
def with_free_slots(app: Application, monkeypatch: pytest.MonkeyPatch) -> Application:
    """An application on Spark with slots for all threads."""
    monkeypatch.setattr(
        "millstream.application.stream_threads.require_slots", lambda session, needed: None
    )
    app.names.append("app-StreamThread-3")
    return app


def test_an_index_is_free_after_the_last_event_of_its_thread(with_free_slots: Application) -> None:
    """Detects two threads with one name, and an end of the first one that is attributed to the
    second one."""
    stream_threads, engine = with_free_slots.stream_threads, with_free_slots.engine
    assert stream_threads.begin_removal() == with_free_slots.names[0]
    assert engine.close_requests == [(with_free_slots.names[0], Close(for_good=True))]
    assert stream_threads.add() == with_free_slots.names[2]
    assert stream_threads.live == 2
    assert stream_threads.leaving == frozenset(with_free_slots.names[:1])
    assert not stream_threads.await_removal(with_free_slots.names[0], 0)
    with_free_slots.emits(1, "exited", ThreadExit("closed"))
    assert stream_threads.await_removal(with_free_slots.names[0], 0)
    assert stream_threads.add() == with_free_slots.names[0]
    assert with_free_slots.handled == []


def test_threads_share_the_cache_memory(with_free_slots: Application) -> None:
    stream_threads, engine = with_free_slots.stream_threads, with_free_slots.engine
    stream_threads.add()
    assert (with_free_slots.names[0], ResizeMemory(A_THIRD)) in engine.sent
    engine.sent.clear()
    stream_threads.begin_removal()
    stream_threads.begin_removal()
    assert engine.sent[-1][1] == ResizeMemory(MEMORY_OF_ALL)


def test_a_registering_thread_receives_the_current_commands(with_free_slots: Application) -> None:
    """Including a thread that is restarted."""
    with_free_slots.stream_threads.add()
    with_free_slots.supervisor.pause(True)
    with_free_slots.engine.sent.clear()
    with_free_slots.stream_threads.send_current_commands(with_free_slots.names[2])
    assert with_free_slots.engine.sent == [
        (with_free_slots.names[2], Pause()),
        (with_free_slots.names[2], ResizeMemory(A_THIRD)),
    ]


def test_a_thread_that_cannot_be_added_closes_nothing_else(with_free_slots: Application) -> None:
    """Detects an application that closes because there was no slot for one more thread."""
    with_free_slots.stream_threads.add()
    with_free_slots.emits(3, "failed", SparkError("no slot"))
    assert with_free_slots.handled == []
    assert with_free_slots.states.state is ClientState.REBALANCING
    assert with_free_slots.stream_threads.live == 2
    assert with_free_slots.stream_threads.add() == with_free_slots.names[2]


def test_a_thread_that_fails_during_its_removal_is_not_replaced(
    with_free_slots: Application,
) -> None:
    with_free_slots.stream_threads.begin_removal()
    with_free_slots.emits(1, "exited", ThreadExit("error", DOWN))
    assert with_free_slots.handled == []
    assert with_free_slots.engine.started == []
    assert with_free_slots.stream_threads.live == 1


def remove_while_pickled(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another Python thread remove the first thread while its successor is being pickled."""
    ship = shipping.ship

    def slowly(*args: Any) -> bytes:
        remover = threading.Thread(target=app.stream_threads.begin_removal, args=(app.names[0],))
        remover.start()
        remover.join(30)
        return ship(*args)

    monkeypatch.setattr(stream_threads_module, "ship", slowly)


def test_a_thread_can_be_removed_while_it_is_replaced(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Detects a removal that never ends: the engine still refers to the previous thread, so the new
    one is never requested to close."""
    remove_while_pickled(app, monkeypatch)
    app.dies(1)
    assert app.stream_threads.await_removal(app.names[0], 0)
    assert app.engine.started == []
    assert (app.stream_threads.live, app.stream_threads.leaving) == (1, frozenset())
    assert app.names[0] not in app.states.threads()


def test_a_thread_can_be_removed_while_it_is_added(
    with_free_slots: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_thread_state = with_free_slots.states.set_thread_state

    def removes(name: str, state: ThreadState, why: str) -> None:
        set_thread_state(name, state, why)
        if state is ThreadState.CREATED:
            with_free_slots.stream_threads.begin_removal(name)

    with monkeypatch.context() as patch:
        patch.setattr(with_free_slots.states, "set_thread_state", removes)
        assert with_free_slots.stream_threads.add() == with_free_slots.names[2]
    assert with_free_slots.stream_threads.await_removal(with_free_slots.names[2], 0)
    assert with_free_slots.engine.started == []
    assert with_free_slots.stream_threads.add() == with_free_slots.names[2]


def test_a_removal_ends_with_the_application(app: Application) -> None:
    """Detects a caller of remove_stream_thread() that waits for the report of a thread that was
    killed, or whose last event came after the close."""
    name = app.stream_threads.begin_removal()
    assert name is not None
    ended: list[bool] = []
    waiting = threading.Thread(
        target=lambda: ended.append(app.stream_threads.await_removal(name, None)), daemon=True
    )
    waiting.start()
    app.supervisor.close(1_000, leave_group=True)
    waiting.join(30)
    assert ended == [True]


@pytest.mark.parametrize("part", ["dataframes", "engine"])
def test_a_failed_close_releases_everything_else(
    app: Application, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Detects threads that are not closed, and a state directory that stays locked, because a step
    of the close raised an error."""

    def fail(*_: object) -> bool:
        raise RuntimeError("Spark does not answer")

    target = app.supervisor.dataframes if part == "dataframes" else app.engine
    monkeypatch.setattr(target, "close", fail)
    with pytest.raises(RuntimeError, match="does not answer"):
        app.supervisor.close(1_000, leave_group=True)
    assert app.engine.closed.is_set() == (part == "dataframes")
    app.supervisor._take_directory()


def test_all_threads_are_announced_before_the_first_can_report(app: Application) -> None:
    """Detects a deadlock: a state listener that changes threads waits for the end of the start,
    which waited for the listener to be notified of the next thread."""
    thread_counts: list[int] = []
    app.engine.on_start = lambda name: thread_counts.append(len(app.states.threads()))
    for name in app.names:
        app.states.set_thread_state(name, ThreadState.DEAD, "not started yet")
    app.stream_threads.prepare()
    app.stream_threads.start()
    assert thread_counts == [2, 2]
