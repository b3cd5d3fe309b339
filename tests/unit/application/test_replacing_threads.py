"""Which threads are replaced, after which pauses, and what ends the application."""

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
from millstream.application import crew as crew_module
from millstream.application.supervisor import ThreadSupervisor
from millstream.clock import ManualClock
from millstream.metrics.frames import FrameWriter
from millstream.metrics.values import Metrics
from millstream.record import TaskId, TopicPartition
from millstream.runtime.client_states import ClientStates
from millstream.runtime.control import (
    AskForShutdown,
    Close,
    Command,
    MemoryShare,
    Pause,
    ResizeMemory,
    RestoreEvent,
    RestoreStep,
    StateChanged,
    TasksChanged,
    ThreadFailed,
    ThreadMetrics,
)
from millstream.runtime.loop.thread_meters import ThreadMeters
from millstream.runtime.states import ClientState, TaskState, ThreadState
from millstream.runtime.task.task_meters import TaskMeters
from millstream.serdes import STRING
from millstream.spark.code import shipping
from millstream.spark.connection.messages import Epoch, Hello, ThreadExit
from millstream.spark.events import ThreadEvent

REPLACE_THREAD = StreamsUncaughtExceptionHandlerResponse.REPLACE_THREAD
SHUTDOWN_CLIENT = StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_CLIENT
SHUTDOWN_APPLICATION = StreamsUncaughtExceptionHandlerResponse.SHUTDOWN_APPLICATION
MEMORY_OF_ALL = MemoryShare(10 * 1024 * 1024, 64 * 1024 * 1024)
A_THIRD = MemoryShare(*(number // 3 for number in MEMORY_OF_ALL))
TOLD = ShutdownRequestedError("a member asked")
DOWN = BrokerUnavailableError("no answer")


class Engine:
    """Spark, as far as the supervisor asks something of it."""

    def __init__(self) -> None:
        self.started: list[tuple[str, int]] = []
        self.ending: list[tuple[str, int]] = []
        self.sent: list[tuple[str, Command]] = []
        self.asked_to_close: list[tuple[str, Close]] = []
        self.session = None
        self.is_telling = False
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
        anew: bool = False,
        register_ms: int | None = None,
    ) -> None:
        self.on_start(name)
        self.started.append((name, pause_ms))

    def send(self, name: str, command: Command) -> None:
        self.sent.append((name, command))

    def ask_to_close(self, name: str, command: Close) -> None:
        self.asked_to_close.append((name, command))

    def expect_end(self, name: str, within_ms: int) -> None:
        self.ending.append((name, within_ms))

    def close(self, timeout_ms: int, data: Any) -> bool:
        self.closed.set()
        return True


class Application:
    """A supervisor of two threads that run."""

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
        self.states = ClientStates("app", self.clock)
        self.supervisor = ThreadSupervisor(builder.build(), config, None, self.states, self.clock)
        self.asked: list[StreamsError] = []
        self.answer = REPLACE_THREAD
        self.supervisor.judge.exception_handler = self._handle
        self.engine = Engine()
        engine: Any = self.engine
        self.crew = self.supervisor._crew
        self.supervisor._engine = self.crew.engine = engine
        self.supervisor._take_directory()
        self.states.become(ClientState.REBALANCING, "started")
        self.names = ["app-StreamThread-1", "app-StreamThread-2"]
        self.crew.pack()
        self.crew.start()
        for index in (1, 2):
            self.registers(index)
        self.engine.started.clear()

    def _handle(self, error: StreamsError) -> StreamsUncaughtExceptionHandlerResponse:
        self.asked.append(error)
        return self.answer

    def tells(self, index: int, kind: Any, data: Any) -> None:
        self.supervisor._on_event(ThreadEvent(self.names[index - 1], kind, data))

    def registers(self, index: int) -> None:
        name = self.names[index - 1]
        self.tells(index, "registered", Hello("app", name, index, Epoch(1, 0), 1, "host"))

    def dies(self, index: int, error: StreamsError = DOWN) -> None:
        self.tells(index, "report", ThreadFailed(error))
        self.tells(index, "exited", ThreadExit("error", error))

    def closed_in_error(self) -> bool:
        wait_for(self.engine.closed.is_set, 30, "the application closes")
        wait_for(lambda: self.states.state is ClientState.ERROR, 30, "it is in ERROR")
        return True


@pytest.fixture
def app(tmp_path: Any) -> Application:
    return Application(str(tmp_path))


def test_a_thread_is_replaced_as_long_as_the_handler_says_so(app: Application) -> None:
    """Hunts for a bound over all threads: an outage of an hour ended the application."""
    for _ in range(20):
        for index in (1, 2):
            app.dies(index)
            app.registers(index)
    assert len(app.asked) == 40
    for name in app.names:
        pauses = [pause_ms for started, pause_ms in app.engine.started if started == name]
        assert pauses[:8] == [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 30_000]
        assert set(pauses[8:]) == {30_000}
    assert app.states.state is ClientState.REBALANCING
    assert app.supervisor.error is None


@pytest.mark.parametrize("kind", ["restarting", "exited"])
def test_how_a_thread_was_is_not_told_when_it_is_gone(app: Application, kind: str) -> None:
    """Its tasks are on the other thread: what they are would count twice, and it seemed to run."""
    thread, clock = app.names[0], app.clock
    meters = ThreadMeters(thread, clock)
    task = meters.scope.adopt(TaskMeters(TaskId(0, 0), clock, labels=meters.scope.labels).scope)
    task.gauge("stream-state-metrics", "estimate-num-keys", lambda: 7)
    meters.lags_are([(TaskId(0, 0), TopicPartition("in", 0), 12)])
    meters.subscription_is([("tasks.processed", (), 3.0), ("tasks.pending", (), 4.0)])
    meters.state_is(ThreadState.RUNNING)
    meters.committed.record(5)
    app.tells(1, "report", ThreadMetrics(FrameWriter(meters.scope).whole()))

    def told(name: str, **labels: str) -> Metrics:
        return app.supervisor.metrics.all().named(name, None, **labels)

    assert [one.value for one in told("state", thread_id=thread)] == ["RUNNING"]
    assert told("commit-rate")[0].value != 0

    app.tells(1, kind, ThreadExit("lost") if kind == "exited" else "its worker was killed")
    for gone in ("estimate-num-keys", "records-lag", "tasks.pending", "commit-latency-avg"):
        assert not told(gone), gone
    states = {"restarting": ("CREATED", 0), "exited": ("DEAD", 6)}[kind]
    assert [told(name, thread_id=thread)[0].value for name in ("state", "thread-state")] == [
        *states
    ]
    assert [one.value for one in told("commit-rate")] == [0]
    assert [one.value for one in told("commit-total")] == [1]
    assert [one.value for one in told("tasks.processed")] == [3]


@pytest.mark.parametrize("kind", ["restarting", "exited"])
def test_what_a_thread_did_goes_no_further_when_it_is_gone(app: Application, kind: str) -> None:
    """Hunts a restoration that seems to go on for ever, and a rate and tasks of nobody, where the
    thread's worker was lost and its tasks are another thread's by now."""
    story, place = app.supervisor.story, TopicPartition("app-counts-changelog", 0)
    for index in (1, 2):
        app.tells(index, "report", StateChanged(ThreadState.RUNNING, "has its tasks"))
    for index in (1, 2):
        app.tells(index, "report", TasksChanged({TaskId(0, index): TaskState.RUNNING}))
        story.counted(app.names[index - 1], {f"0_{index}": 7})
    begun = RestoreEvent(RestoreStep.START, place, "counts", 0, 100, 0, TaskId(0, 1))
    app.tells(1, "report", begun)
    app.tells(1, kind, ThreadExit("lost") if kind == "exited" else "its worker was killed")
    app.tells(2, "report", StateChanged(ThreadState.PARTITIONS_ASSIGNED, "more tasks"))

    told = story.told()
    assert [each.state for each in told.restores] == ["suspended"]
    assert told.rates.keys() == {(app.names[1], "0_2")}
    assert told.rebalances[-1].after.keys() == {app.names[1]}


def test_a_lost_thread_had_its_tasks_before_the_rebalance(app: Application) -> None:
    """Hunts tasks that another thread takes over from nobody."""
    for index in (1, 2):
        app.tells(index, "report", StateChanged(ThreadState.RUNNING, "has its tasks"))
        app.tells(index, "report", TasksChanged({TaskId(0, index): TaskState.RUNNING}))
    app.clock.advance(60_000)
    app.tells(1, "restarting", "its worker was killed")
    last = app.supervisor.story.told().rebalances[-1]
    assert (sorted(last.before), sorted(last.after)) == (app.names, app.names[1:])


def test_a_thread_that_ran_well_for_a_while_is_replaced_soon(app: Application) -> None:
    for _ in range(5):
        app.dies(1)
        app.registers(1)
    app.clock.advance(4_000 + 60_000)
    app.dies(1)
    app.dies(2)
    assert [pause_ms for _, pause_ms in app.engine.started][-2:] == [250, 250]


def test_a_thread_has_a_time_for_closing_before_it_is_replaced(app: Application) -> None:
    """Hunts for user code that blocks in `close()`: its thread was never replaced.

    The one that was killed for it is replaced like any other.
    """
    app.tells(1, "report", ThreadFailed(DOWN))
    assert app.engine.ending == [(app.names[0], 30_000)]
    assert app.engine.started == []
    app.tells(1, "exited", ThreadExit("killed", reason="it did not close in time"))
    assert app.engine.started == [(app.names[0], 250)]
    assert len(app.asked) == 1


@pytest.mark.parametrize("kind", [SparkError, ConfigError])
def test_what_another_thread_would_meet_as_well_is_not_replaced(
    app: Application, kind: type[StreamsError]
) -> None:
    app.tells(1, "failed", kind("cannot be run"))
    assert app.closed_in_error()
    assert app.engine.started == []


def test_a_handler_that_changes_its_mind_ends_the_application(app: Application) -> None:
    app.dies(1)
    app.registers(1)
    app.answer = SHUTDOWN_CLIENT
    app.dies(1)
    assert app.closed_in_error()
    assert app.supervisor.error is DOWN
    assert len(app.engine.started) == 1


def asked_to_shut_down_all(app: Application) -> set[str]:
    return {name for name, command in app.engine.sent if isinstance(command, AskForShutdown)}


def test_all_instances_shut_down_when_the_group_has_told_them(app: Application) -> None:
    """Hunts for an instance that closes before anybody has told the others (KIP-671)."""
    app.answer = SHUTDOWN_APPLICATION
    app.tells(1, "report", ThreadFailed(DOWN))
    assert app.names[1] in asked_to_shut_down_all(app)
    assert app.states.state is ClientState.REBALANCING
    assert not app.engine.closed.is_set()
    app.tells(2, "report", ThreadFailed(TOLD))
    assert app.closed_in_error()
    assert app.supervisor.error is DOWN
    assert app.asked == [DOWN]


def test_the_last_thread_that_dies_comes_back_to_tell_the_others(app: Application) -> None:
    """It is told as soon as it registers, before it can process anything."""
    app.answer = SHUTDOWN_APPLICATION
    app.dies(1)
    app.dies(2)
    assert {name for name, _ in app.engine.started} == set(app.names)
    app.engine.sent.clear()
    app.crew.greet(app.names[1])
    assert asked_to_shut_down_all(app) == {app.names[1]}
    assert app.asked == [DOWN]


def test_an_instance_that_the_group_does_not_answer_closes_by_itself(app: Application) -> None:
    app.answer = SHUTDOWN_APPLICATION
    app.dies(1)
    app.clock.advance(300_000)
    app.supervisor.judge.look()
    assert not app.engine.closed.is_set()
    app.clock.advance(30_001)
    app.supervisor.judge.look()
    assert app.closed_in_error()
    assert app.supervisor.error is DOWN


def test_what_another_instance_has_decided_no_handler_is_asked_about(app: Application) -> None:
    """With REPLACE_THREAD one instance would go on alone."""
    app.tells(1, "report", ThreadFailed(TOLD))
    app.tells(2, "report", ThreadFailed(TOLD))
    assert app.closed_in_error()
    assert app.asked == []
    assert app.supervisor.error is TOLD


def test_an_answer_that_is_none_closes_the_instance(app: Application) -> None:
    answer: Any = None
    app.answer = answer
    app.dies(1)
    assert app.closed_in_error()


@pytest.fixture
def roomy(app: Application, monkeypatch: pytest.MonkeyPatch) -> Application:
    """One on a Spark with slots for everybody."""
    monkeypatch.setattr("millstream.application.crew.require_slots", lambda session, needed: None)
    app.names.append("app-StreamThread-3")
    return app


def test_an_index_is_free_when_all_that_its_thread_told_is_heard(roomy: Application) -> None:
    """Hunts for two threads of one name, and for the end of the first one that is taken for the
    second one's."""
    crew, engine = roomy.crew, roomy.engine
    assert crew.begin_to_remove() == roomy.names[0]
    assert engine.asked_to_close == [(roomy.names[0], Close(for_good=True))]
    assert crew.begin_to_add() == roomy.names[2]
    assert (crew.live, crew.is_leaving(roomy.names[0])) == (2, True)
    assert not crew.await_removed(roomy.names[0], 0)
    roomy.tells(1, "exited", ThreadExit("closed"))
    assert crew.await_removed(roomy.names[0], 0)
    assert crew.begin_to_add() == roomy.names[0]
    assert roomy.asked == []


def test_threads_share_what_caches_may_use(roomy: Application) -> None:
    crew, engine = roomy.crew, roomy.engine
    crew.begin_to_add()
    assert (roomy.names[0], ResizeMemory(A_THIRD)) in engine.sent
    engine.sent.clear()
    crew.begin_to_remove()
    crew.begin_to_remove()
    assert engine.sent[-1][1] == ResizeMemory(MEMORY_OF_ALL)


def test_what_all_know_is_told_to_each_that_registers(roomy: Application) -> None:
    """A thread that is started again, too."""
    roomy.crew.begin_to_add()
    roomy.supervisor.pause(True)
    roomy.engine.sent.clear()
    roomy.crew.greet(roomy.names[2])
    assert roomy.engine.sent == [(roomy.names[2], Pause()), (roomy.names[2], ResizeMemory(A_THIRD))]


def test_what_cannot_be_added_ends_nothing_else(roomy: Application) -> None:
    """Hunts for an application that closes since there was no slot for one more thread."""
    roomy.crew.begin_to_add()
    roomy.tells(3, "failed", SparkError("no slot"))
    assert roomy.asked == []
    assert roomy.states.state is ClientState.REBALANCING
    assert roomy.crew.live == 2
    assert roomy.crew.begin_to_add() == roomy.names[2]


def test_a_removed_thread_that_fails_on_its_way_is_not_replaced(roomy: Application) -> None:
    roomy.crew.begin_to_remove()
    roomy.tells(1, "exited", ThreadExit("error", DOWN))
    assert roomy.asked == []
    assert roomy.engine.started == []
    assert roomy.crew.live == 1


def removed_while_packed(app: Application, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let another Python thread remove the first thread while its successor is being pickled."""
    ship = shipping.ship

    def slowly(*args: Any) -> bytes:
        remover = threading.Thread(target=app.crew.begin_to_remove, args=(app.names[0],))
        remover.start()
        remover.join(30)
        return ship(*args)

    monkeypatch.setattr(crew_module, "ship", slowly)


def test_a_thread_that_is_removed_while_it_is_replaced_is_gone(
    app: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hunts a thread that is never asked to close, since the engine knew only the one before it,
    and a removal that never ends."""
    removed_while_packed(app, monkeypatch)
    app.dies(1)
    assert app.crew.await_removed(app.names[0], 0)
    assert app.engine.started == []
    assert (app.crew.live, app.crew.leaving) == (1, frozenset())
    assert app.names[0] not in app.states.threads()


def test_a_thread_that_is_removed_while_it_is_added_is_gone(
    roomy: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    thread_is = roomy.states.thread_is

    def removes(name: str, state: ThreadState, why: str) -> None:
        thread_is(name, state, why)
        if state is ThreadState.CREATED:
            roomy.crew.begin_to_remove(name)

    with monkeypatch.context() as patch:
        patch.setattr(roomy.states, "thread_is", removes)
        assert roomy.crew.begin_to_add() == roomy.names[2]
    assert roomy.crew.await_removed(roomy.names[2], 0)
    assert roomy.engine.started == []
    assert roomy.crew.begin_to_add() == roomy.names[2]


def test_a_removal_ends_with_the_application(app: Application) -> None:
    """Hunts a caller of remove_stream_thread() that waits for the report of a thread which was
    killed, or whose last event came after the close."""
    name = app.crew.begin_to_remove()
    assert name is not None
    ended: list[bool] = []
    waiting = threading.Thread(
        target=lambda: ended.append(app.crew.await_removed(name, None)), daemon=True
    )
    waiting.start()
    app.supervisor.close(1_000, leave_group=True)
    waiting.join(30)
    assert ended == [True]


@pytest.mark.parametrize("part", ["dataframes", "engine"])
def test_a_close_that_fails_gives_the_rest_back(
    app: Application, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Hunts threads that are not closed, and a state directory that stays locked, since a step of
    the close raised an error."""

    def fail(*_: object) -> bool:
        raise RuntimeError("Spark does not answer")

    target = app.supervisor.dataframes if part == "dataframes" else app.engine
    monkeypatch.setattr(target, "close", fail)
    with pytest.raises(RuntimeError, match="does not answer"):
        app.supervisor.close(1_000, leave_group=True)
    assert app.engine.closed.is_set() == (part == "dataframes")
    app.supervisor._take_directory()


def test_all_threads_are_announced_before_the_first_can_report(app: Application) -> None:
    """Hunts a deadlock: a state listener that changes threads waits for the end of the start, which
    waited for the listener to be told of the next thread."""
    known: list[int] = []
    app.engine.on_start = lambda name: known.append(len(app.states.threads()))
    for name in app.names:
        app.states.thread_is(name, ThreadState.DEAD, "not started yet")
    app.crew.pack()
    app.crew.start()
    assert known == [2, 2]
