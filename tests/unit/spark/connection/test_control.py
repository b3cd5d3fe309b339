"""The control connection: admission of threads, and no lost or duplicated messages."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from support.broker.sample_messages import (
    SampleCommand,
    SampleReport,
    SampleRequest,
    sample_command,
)
from support.waiting import HANG_S, NEVER_S, hang_guard, stays, wait_for

from millstream.errors import (
    IllegalStateError,
    NotPicklableError,
    ProcessingError,
    SparkError,
    StreamsError,
    ThreadUnavailableError,
)
from millstream.runtime.thread_control import Close, ReceivedCommand, Report
from millstream.spark.connection import control_protocol
from millstream.spark.connection.control_client import ControlChannel
from millstream.spark.connection.control_server import ControlServer
from millstream.spark.connection.messages import (
    Epoch,
    Hello,
    ThreadExit,
    UndeliverableObject,
    decode_value,
    encode_value,
)
from millstream.spark.connection.reliable_channel import ControlLink, ReliableChannel

KEY = b"k" * 32


@dataclass(frozen=True)
class Latest(SampleReport):
    """A report of which only the latest is delivered."""

    kind: str = "latest"


class Recorder:
    """Records the server's callbacks."""

    def __init__(self) -> None:
        self.hellos: list[Hello] = []
        self.reports: list[SampleReport] = []
        #: Whether a report has arrived, even if it is still blocked.
        self.has_report = False
        self._free = threading.Event()
        self._free.set()

    def on_registered(self, hello: Hello) -> None:
        self.hellos.append(hello)

    def on_report(self, hello: Hello, report: Report) -> None:
        assert isinstance(report, SampleReport)
        self.has_report = True
        assert self._free.wait(10)
        self.reports.append(report)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Block reports during the block."""
        self._free.clear()
        try:
            yield
        finally:
            self._free.set()


def hello(submission: int = 1, spark_attempt: int = 0, app: str = "shop", name: str = "t") -> Hello:
    return Hello(app, name, 1, Epoch(submission, spark_attempt), os.getpid(), "here")


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def server(recorder: Recorder) -> Iterator[ControlServer]:
    server = ControlServer("shop", KEY, recorder)
    server.start()
    server.expect_thread("t", 1)
    yield server
    server.close()


class Network:
    """A proxy between worker and driver that can cut connections abruptly."""

    def __init__(self, driver: tuple[str, int]) -> None:
        self._driver = driver
        self._sock = socket.create_server(("127.0.0.1", 0))
        self._pairs: list[socket.socket] = []
        self._up = True
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._sock.getsockname()[1]

    def down(self) -> None:
        self._up = False
        for sock in self._pairs:
            # The other end may have been cut already.
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def up(self) -> None:
        self._up = True

    def close(self) -> None:
        self.down()
        self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _accept(self) -> None:
        while True:
            try:
                worker, _ = self._sock.accept()
            except OSError:
                return
            if not self._up:
                worker.close()
                continue
            driver = socket.create_connection(self._driver)
            self._pairs += [worker, driver]
            for ends in ((worker, driver), (driver, worker)):
                threading.Thread(target=self._carry, args=ends, daemon=True).start()

    @staticmethod
    def _carry(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                target.sendall(data)
            target.shutdown(socket.SHUT_RDWR)
        except OSError:
            return


@pytest.fixture
def network(server: ControlServer) -> Iterator[Network]:
    network = Network(server.address)
    yield network
    network.close()


@pytest.fixture
def connect(server: ControlServer) -> Iterator[Callable[..., ControlChannel]]:
    channels: list[ControlChannel] = []

    def connect(
        identity: Hello | None = None,
        *,
        key: bytes = KEY,
        via: Network | None = None,
        **options: Any,
    ) -> ControlChannel:
        address = via.address if via is not None else server.address
        channel = ControlChannel(address, key, identity or hello(), **options)
        channels.append(channel)
        channel.open()
        return channel

    yield connect
    for channel in channels:
        channel.close(flush_ms=0)


Connect = Callable[..., ControlChannel]


def test_reports_arrive_in_order_and_are_delivered_at_the_close(
    server: ControlServer, recorder: Recorder, connect: Connect
) -> None:
    """Goal: reports made before `close` are delivered when it returns."""
    channel = connect()
    for number in range(1000):
        channel.report(SampleReport("number", number))
    channel.close()
    assert [report.data for report in recorder.reports] == list(range(1000))
    assert recorder.hellos == [hello()]


def test_closing_leaves_no_threads(connect: Connect) -> None:
    """Goal: PySpark can reuse the worker's process."""
    before = set(threading.enumerate())
    channel = connect()
    channel.close()
    left = {t.name for t in set(threading.enumerate()) - before if t.name.startswith("t-control")}
    assert left - {"t-control-sender"} == set()
    wait_for(lambda: not any(t.name == "t-control-sender" for t in threading.enumerate()))


def test_commands_and_replies(server: ControlServer, connect: Connect) -> None:
    """Goal: commands arrive in order; a reply, or an exception as a reply, is returned."""
    channel = connect()
    assert channel.commands() == []
    assert not channel.wait(1)
    server.send("t", SampleCommand("pause"))
    server.send("t", SampleCommand("seek", {"offset": 5}))
    assert channel.wait(5000)
    found = channel.commands()
    while len(found) < 2:
        assert channel.wait(5000)
        found += channel.commands()
    assert [(sample_command(command).kind, sample_command(command).data) for command in found] == [
        ("pause", None),
        ("seek", {"offset": 5}),
    ]

    def answer() -> None:
        while channel.wait(2000):
            for command in channel.commands():
                data = sample_command(command).data
                channel.reply(command, IllegalStateError("not now") if data == "bad" else data * 2)

    answering = threading.Thread(target=answer)
    answering.start()
    assert server.request("t", SampleRequest("double", 21), 5000) == 42
    with pytest.raises(IllegalStateError, match="not now"):
        server.request("t", SampleRequest("double", "bad"), 5000)
    answering.join()


def test_a_command_that_cannot_be_sent_is_rejected(server: ControlServer, connect: Connect) -> None:
    """Goal: the sender gets the error, not the worker."""
    channel = connect()
    with pytest.raises(NotPicklableError, match="item 'lock'"):
        server.send("t", SampleCommand("query", {"lock": threading.Lock()}))
    with pytest.raises(SparkError, match="the limit is"):
        server.send("t", SampleCommand("query", bytes(64 * 1024 * 1024)))
    assert channel.commands() == []


def test_a_request_without_reply_times_out(server: ControlServer, connect: Connect) -> None:
    """Goal: nothing blocks forever: neither a busy thread nor a closing one nor an unknown one."""
    channel = connect()
    with pytest.raises(ThreadUnavailableError, match="within 50 ms"):
        server.request("t", SampleRequest("query", None), 50)
    with pytest.raises(ThreadUnavailableError, match="not registered"):
        server.request("nobody", SampleRequest("query", None), 50)
    wait_for(channel.commands, 20, "the first request arrives")

    def end_thread_() -> None:
        wait_for(channel.commands, 20, "the second request arrives")
        server.end_thread("t", "its job is over")

    ending = threading.Thread(target=end_thread_)
    ending.start()
    with pytest.raises(ThreadUnavailableError, match="its job is over"):
        server.request("t", SampleRequest("query", None), 60_000)
    ending.join()


def test_a_closing_thread_rejects_requests_immediately(
    server: ControlServer, connect: Connect
) -> None:
    """Goal: no caller waits for a thread that no longer handles requests, while commands still
    arrive."""
    channel = connect()
    waiting = server.post("t", SampleRequest("query", None))
    server.send("t", SampleCommand("pause"))
    assert channel.wait(5_000)
    wait_for(lambda: channel._commands.qsize() >= 1)
    channel.reject_requests(ThreadUnavailableError("It closes."))
    with pytest.raises(ThreadUnavailableError, match="It closes"):
        waiting.result(5)
    with pytest.raises(ThreadUnavailableError, match="It closes"):
        server.request("t", SampleRequest("query", None), 5_000)
    assert [sample_command(command).kind for command in channel.commands()] == ["pause"]


def test_replies_do_not_displace_reports(
    server: ControlServer, recorder: Recorder, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a slow driver gets every report, and callers are asked to retry."""
    monkeypatch.setattr("millstream.spark.connection.control_client.MAX_REPLY_BYTES", 1_000_000)
    channel = connect()
    replies = [server.post("t", SampleRequest("query", number)) for number in range(20)]
    command: list[ReceivedCommand] = []
    while len(command) < 20:
        assert channel.wait(5_000)
        command += channel.commands()
    with recorder.held():
        channel.report(SampleReport("number", 0))
        for each in command:
            channel.reply(each, bytes(200_000))
        channel.report(SampleReport("number", 1))
        assert channel._reliable_channel.pending_bytes < 1_100_000
    failed = [reply for reply in replies if isinstance(reply.exception(5), ThreadUnavailableError)]
    assert 10 < len(failed) < 20
    wait_for(lambda: [each.data for each in recorder.reports] == [0, 1])


def test_a_late_reply_is_dropped(server: ControlServer, connect: Connect) -> None:
    """Goal: a late reply does no harm."""
    channel = connect()
    late = server.post("t", SampleRequest("query", 1))
    assert late.cancel()
    good = server.post("t", SampleRequest("query", 2))
    answered = 0
    while answered < 2:
        assert channel.wait(5_000)
        for command in channel.commands():
            answered += 1
            channel.reply(command, sample_command(command).data)
    assert good.result(5) == 2


@pytest.mark.extended
@pytest.mark.parametrize("attended", [False, True])
def test_a_broken_connection_loses_and_duplicates_nothing(
    server: ControlServer, recorder: Recorder, connect: Connect, attended: bool
) -> None:
    """Goal: a short network failure is invisible. Method: cut the network repeatedly under load."""
    channel = connect()
    commands: list[int] = []
    stop = threading.Event()

    def cut() -> None:
        while not stop.wait(0.03):
            server.drop_connection("t")

    cutting = threading.Thread(target=cut)
    cutting.start()
    for number in range(600):
        channel.report(SampleReport("number", number))
        server.send("t", SampleCommand("number", number))
        if attended:
            channel.process_io()
        commands += [sample_command(command).data for command in channel.commands()]
        time.sleep(0.001)
    stop.set()
    cutting.join()
    wait_for(lambda: len(recorder.reports) >= 600)
    while len(commands) < 600 and channel.wait(5000):
        commands += [sample_command(command).data for command in channel.commands()]
    assert [report.data for report in recorder.reports] == list(range(600))
    assert commands == list(range(600))
    assert recorder.hellos == [hello()], "a reconnect is not a registration"
    assert not channel.lost


def test_a_message_is_processed_before_the_next_connection(
    server: ControlServer, recorder: Recorder, connect: Connect
) -> None:
    """Detects a duplicate report: the driver was still processing the report when the connection
    broke, and stated on the next connection that it had not received the report."""
    channel = connect()
    with recorder.held():
        channel.report(SampleReport("number", 1))
        wait_for(lambda: recorder.has_report, 20, "the driver takes the report")
        server.drop_connection("t")
        wait_for(lambda: not channel.connected, 20, "the connection is lost")
        assert stays(lambda: not channel.connected, 0.5)
    channel.report(SampleReport("number", 2))
    wait_for(lambda: len(recorder.reports) >= 2)
    channel.close()
    assert [report.data for report in recorder.reports] == [1, 2]


@pytest.mark.extended
def test_a_loop_that_processes_io_receives_and_sends_alone(
    server: ControlServer, connect: Connect
) -> None:
    """Goal: the processing loop does not alternate with the connection's threads."""
    channel = connect()
    event_threads: list[str] = []
    channel.on_event = lambda: event_threads.append(threading.current_thread().name)
    own = threading.current_thread().name

    def answer_for(seconds: float, caller: threading.Thread) -> None:
        until = time.monotonic() + seconds
        while caller.is_alive() and time.monotonic() < until:
            channel.process_io()
            for command in channel.commands():
                channel.reply(command, sample_command(command).data)
            channel.process_io()
            time.sleep(0.002)

    answers: list[int] = []

    def send_requests() -> None:
        answers.extend(
            server.request("t", SampleRequest("number", number), 10_000) for number in range(300)
        )

    caller = threading.Thread(target=send_requests)
    caller.start()
    answer_for(30, caller)
    caller.join()
    assert answers == list(range(300))
    # The first ones arrive before the connection notices that the loop processes its I/O.
    assert event_threads.count(own) > 250


@pytest.fixture
def without_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats and new connections, which carry waiting messages, do not occur in time."""
    monkeypatch.setitem(vars(ControlLink)["__init__"].__kwdefaults__, "heartbeat_s", NEVER_S)
    for module in ("control_client", "control_server"):
        monkeypatch.setattr(f"millstream.spark.connection.{module}.IDLE_TIMEOUT_S", NEVER_S)


@pytest.mark.usefixtures("without_heartbeats")
def test_a_connection_continues_on_its_own_threads_without_the_loop(
    server: ControlServer, recorder: Recorder, connect: Connect
) -> None:
    """Goal: messages from and to a thread that no longer processes I/O are neither kept nor
    delayed."""
    channel = connect()
    server.send("t", SampleCommand("first"))
    wait_for(lambda: bool(channel.commands()), 10, "the first command")
    for number in range(20):
        # Its own reader takes one more message before it hands over to the loop.
        server.send("t", SampleCommand("number", number))
        channel.process_io()
        time.sleep(0.002)
    channel.report(SampleReport("last"))
    server.send("t", SampleCommand("last"))
    wait_for(lambda: recorder.reports == [SampleReport("last")], HANG_S, "the report")
    kinds: list[str] = []

    def has_last() -> bool:
        kinds.extend(sample_command(command).kind for command in channel.commands())
        return "last" in kinds

    wait_for(has_last, HANG_S, "the last command")


def test_delayed_messages_are_sent_later_in_order() -> None:
    """Goal: the loop never waits for a driver that does not read."""
    here, there = socket.socketpair()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    options: dict[str, Any] = {"idle_timeout_s": HANG_S}
    sender = control_protocol.ControlConnection(here, KEY, sends=b"a", receives=b"b", **options)
    receiver = control_protocol.ControlConnection(there, KEY, sends=b"b", receives=b"a", **options)
    bodies = [b"1" * 300_000, b"2", b"3"]
    sender.send_nowait(*bodies[:2])
    assert sender.has_partial_send
    found: list[bytes] = []
    receiving = threading.Thread(target=lambda: found.extend(receiver.receive() for _ in bodies))
    receiving.start()
    sender.send(bodies[2])
    receiving.join(HANG_S)
    assert found == bodies
    assert not sender.has_partial_send
    assert receiver.receive_nowait(5) == []
    sender.send_nowait(b"4", b"5", b"6")
    assert receiver.receive_nowait(2) == [b"4", b"5"]
    assert receiver.receive_nowait(2) == [b"6"]
    sender.close()
    with pytest.raises(ConnectionError, match="closed"):
        receiver.receive_nowait(1)


def test_without_a_driver_the_channel_is_lost_after_the_grace_period(
    network: Network, connect: Connect
) -> None:
    """Goal: an orphan stops, but not after a failure that is shorter than its grace period."""
    channel = connect(grace_ms=1_000, via=network)
    network.down()
    wait_for(lambda: channel.lost, HANG_S, "the channel is lost")
    assert channel.lost_reason is not None
    network.up()
    patient = connect(grace_ms=int(NEVER_S * 1_000), via=network)
    network.down()
    wait_for(lambda: not patient.connected, HANG_S, "the connection is lost")
    assert stays(lambda: not patient.lost, 1.5), "longer than the other grace period"
    network.up()
    wait_for(lambda: patient.connected, HANG_S, "the channel is connected again")


def test_an_unreachable_driver(server: ControlServer) -> None:
    """Goal: a worker that cannot reach the driver gives up with an error that contains the
    address."""
    address = server.address
    server.close()
    channel = ControlChannel(address, KEY, hello(), grace_ms=200)
    assert not channel.open()
    assert str(address[1]) in str(channel.lost_reason)
    channel.close()


def test_a_later_attempt_replaces_an_earlier_one(
    server: ControlServer, recorder: Recorder, connect: Connect
) -> None:
    """Goal: of two attempts of a thread only the later one continues, in any order of arrival."""
    first = connect(hello(1, 7))
    second = connect(hello(1, 8))
    wait_for(lambda: first.lost)
    assert "replaced" in str(first.lost_reason)
    assert not second.lost
    old = connect(hello(1, 7))
    assert old.lost
    server.expect_thread("t", 5)
    assert connect(hello(4, 99)).lost
    server.send("t", SampleCommand("hello"))
    assert second.wait(5000), "expecting the next attempt does not affect the present one"
    third = connect(hello(5, 0))
    assert not third.lost
    assert [each.epoch for each in recorder.hellos] == [(1, 7), (1, 8), (5, 0)]


@pytest.mark.parametrize(
    ("identity", "why"),
    [(hello(app="other"), "driver of 'shop'"), (hello(name="u"), "no stream thread named")],
)
def test_unknown_threads_are_rejected_immediately(
    connect: Connect, identity: Hello, why: str
) -> None:
    """Goal: a thread that will never be admitted gets no grace period."""
    channel = connect(identity)
    assert channel.lost
    assert why in str(channel.lost_reason)


def test_a_closing_thread_admits_reconnects_but_no_new_attempt(
    server: ControlServer, connect: Connect
) -> None:
    """Goal: a closing thread gets its command even if the connection has just broken."""
    channel = connect()
    server.stop_admitting("t", "closing")
    server.drop_connection("t")
    server.send("t", SampleCommand("close"))
    assert channel.wait(5000)
    assert connect(hello(1, 1)).lost


def test_nothing_is_read_without_the_key(
    server: ControlServer, recorder: Recorder, connect: Connect
) -> None:
    """Goal: a pickle of an unauthenticated peer is never loaded.

    Method: a wrong key, then random bytes.
    """
    assert connect(key=b"x" * 32, grace_ms=200).lost
    with socket.create_connection(server.address) as sock:
        sock.sendall(b"\0" * 200)
        sock.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(1024):
                pass
    assert recorder.hellos == []
    assert not connect().lost


def test_a_forged_frame_ends_the_connection() -> None:
    """Goal: every frame is authenticated, including its position. Method: send one twice."""
    here, there = socket.socketpair()
    options: dict[str, Any] = {"idle_timeout_s": 5}
    sender = control_protocol.ControlConnection(here, KEY, sends=b"a", receives=b"b", **options)
    receiver = control_protocol.ControlConnection(there, KEY, sends=b"b", receives=b"a", **options)
    sender.send(b"first")
    assert receiver.receive() == b"first"
    sender._sent_frames = 0
    sender.send(b"first")
    with pytest.raises(ConnectionError, match="not authentic"):
        receiver.receive()
    sender.close()


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_frames_are_reassembled(piece: int) -> None:
    """Several in one piece, and one in many pieces."""
    here, between_here = socket.socketpair()
    between_there, there = socket.socketpair()
    options: dict[str, Any] = {"idle_timeout_s": 5}
    sender = control_protocol.ControlConnection(here, KEY, sends=b"a", receives=b"b", **options)
    receiver = control_protocol.ControlConnection(there, KEY, sends=b"b", receives=b"a", **options)
    bodies = [b"", b"first", b"x" * 3_000, b"last"]
    sender.send(*bodies[:3])
    sender.send(bodies[3])
    sender.close()
    kinds = b"".join(iter(lambda: between_here.recv(4_096), b""))

    def pass_on() -> None:
        for start in range(0, len(kinds), piece):
            between_there.sendall(kinds[start : start + piece])
        between_there.close()

    passing = threading.Thread(target=pass_on)
    passing.start()
    assert [receiver.receive() for _ in bodies] == bodies
    with pytest.raises(ConnectionError, match="closed"):
        receiver.receive()
    passing.join()
    between_here.close()


def test_silence_counts_as_a_broken_connection() -> None:
    """Goal: a peer whose machine has vanished is detected."""
    here, there = socket.socketpair()
    receiver = control_protocol.ControlConnection(
        here, KEY, sends=b"a", receives=b"b", idle_timeout_s=0.1
    )
    with pytest.raises(ConnectionError):
        receiver.receive()
    there.close()


def test_reporting_does_not_block_without_a_receiver(
    network: Network, recorder: Recorder, connect: Connect
) -> None:
    """Goal: the processing loop continues; the latest reports survive, and metrics are
    conflated."""
    channel = connect(grace_ms=int(NEVER_S * 1_000), max_reports=10, via=network)
    network.down()
    wait_for(lambda: not channel.connected)
    # The wait for room takes at most a tenth of a second, and some of these messages wait.
    with hang_guard("reporting"):
        for number in range(15):
            channel.report(SampleReport("state", number))
            channel.report(Latest(data=number), latest_only=True)
    network.up()
    wait_for(lambda: SampleReport("state", 14) in recorder.reports)
    states = [report.data for report in recorder.reports if not isinstance(report, Latest)]
    metrics = [report.data for report in recorder.reports if isinstance(report, Latest)]
    assert len(states) >= 9
    assert states == list(range(15 - len(states), 15))
    assert len(metrics) <= 2


def test_a_closing_driver_notifies_its_threads(server: ControlServer, connect: Connect) -> None:
    """Goal: a closing driver does not leave its threads to their grace period."""
    channel = connect()
    server.close()
    wait_for(lambda: channel.lost)
    assert "the application is closing" in str(channel.lost_reason)


def test_a_channel_rejects_or_drops_messages_at_its_limits() -> None:
    """Goal: both limits work, by number and by bytes."""
    refusing = ReliableChannel(max_messages=2, max_bytes=100, drop_oldest=False)
    assert refusing.post(b"1")
    assert refusing.post(b"2")
    assert not refusing.post(b"3")
    dropping = ReliableChannel(max_messages=10, max_bytes=100, drop_oldest=True)
    for _ in range(4):
        assert dropping.post(b"x" * 40)
    assert dropping.dropped == 2
    assert not dropping.flush(0.01)


def test_acknowledged_messages_are_not_sent_again_after_a_reconnect() -> None:
    """Detects a memory leak: a message is kept until it is acknowledged."""
    reliable_channel = ReliableChannel(drop_oldest=False)
    for payload in (b"one", b"two", b"three"):
        reliable_channel.post(payload)
    reliable_channel.take()
    reliable_channel.resume(last_received=2)
    assert reliable_channel.pending_bytes == len(b"three")
    assert reliable_channel.take() == [(3, b"three")]


def test_an_acknowledgement_waits_for_a_message_but_not_for_long() -> None:
    """Goal: a message is not kept for long if there is nothing to send in return, and a message
    that is sent immediately carries the acknowledgment."""
    reliable_channel = ReliableChannel(drop_oldest=False)
    for number in range(1, 10):
        reliable_channel.mark_received(number)
    with hang_guard("the wait"):
        reliable_channel.wait(NEVER_S, lambda: False)
    assert reliable_channel.take() == []
    reliable_channel.mark_received(10)
    reliable_channel.post(b"reply")
    with hang_guard("the wait for a message"):
        reliable_channel.wait(NEVER_S, lambda: False)
    assert reliable_channel.take() == [(1, b"reply")]
    is_cancelled = threading.Event()
    waiting = threading.Thread(target=reliable_channel.wait, args=(NEVER_S, is_cancelled.is_set))
    waiting.start()
    assert stays(waiting.is_alive, 0.2), "no acknowledgment is pending anymore"
    is_cancelled.set()
    reliable_channel.wake()
    waiting.join(HANG_S)
    assert not waiting.is_alive()


def test_batches_of_messages_are_limited_by_bytes() -> None:
    """Goal: large messages are not copied again into one buffer."""
    reliable_channel = ReliableChannel(drop_oldest=False)
    for size in (200_000, 200_000, 200_000, 1, 1):
        reliable_channel.post(b"x" * size)
    taken = [[number for number, _ in reliable_channel.take()] for _ in range(3)]
    assert taken == [[1, 2], [3, 4, 5], []]


class PickyError(Exception):
    """Cannot be unpickled: its constructor takes other arguments than pickle passes."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_errors_travel_with_their_causes_and_traceback() -> None:
    """Goal: the user sees the worker's error in the driver, for any exception."""
    inner = raised(PickyError(5, "refused"), raised(KeyError("k")))
    outer = raised(ProcessingError("mapper failed", topic="in", offset=42), inner)
    arrived = decode_value(encode_value(ThreadExit("error", outer, ("a", "b"))))
    assert (arrived.kind, arrived.history) == ("error", ("a", "b"))
    error = arrived.error
    assert isinstance(error, ProcessingError)
    assert (error.topic, error.offset) == ("in", 42)
    assert type(error.__cause__) is StreamsError
    assert "PickyError: refused" in str(error.__cause__)
    assert isinstance(error.__cause__.__cause__, KeyError)
    assert "test_control.py" in error.__notes__[0]
    assert "PickyError" in error.__notes__[0]


def test_unpicklable_objects_arrive_as_a_description() -> None:
    """Goal: a report is never lost because of its content."""
    arrived = decode_value(encode_value({"lock": threading.Lock()}))
    assert isinstance(arrived, UndeliverableObject)
    assert arrived.type_name == "dict"
    assert "lock" in arrived.text
    assert "pickle" in arrived.why


def test_a_reply_that_cannot_be_sent_is_an_error(server: ControlServer, connect: Connect) -> None:
    """Goal: a query with an unpicklable answer fails immediately instead of timing out."""
    channel = connect()

    def answer() -> None:
        assert channel.wait(5000)
        for command in channel.commands():
            channel.reply(command, threading.Lock())

    answering = threading.Thread(target=answer)
    answering.start()
    with pytest.raises(SparkError, match="could not be sent"):
        server.request("t", SampleRequest("query", None), 10_000)
    answering.join()


def test_a_signal_looks_like_a_close_command(connect: Connect) -> None:
    """Goal: a SIGTERM from the machine is handled like the driver's close command."""
    channel = connect()
    channel.stop_by_signal("SIGHUP", 5_000)
    assert channel.commands() == [ReceivedCommand(Close(commit_timeout_ms=5_000))]
    assert channel.stop_signal == "SIGHUP"


@pytest.mark.parametrize("size", [0, 1, 20_000_000])
def test_a_thread_receives_its_code_once(
    server: ControlServer, connect: Callable[..., ControlChannel], size: int
) -> None:
    """Regardless of the size of the code, and not again on a new connection."""
    code = b"x" * size
    server.expect_thread("t", 1, code)
    channel = connect()
    assert channel.take_code() == code
    server.drop_connection("t")
    wait_for(
        lambda: channel.connected and server.connected("t"), 10, "the thread is connected again"
    )
    assert channel.take_code() == b""


def test_a_failed_connection_thread_stops_the_stream_thread(
    server: ControlServer, connect: Connect
) -> None:
    """Detects a thread that runs forever because it never gets the command to close."""
    channel = connect()

    def fail() -> None:
        channel.on_event = lambda: None
        raise ValueError("unexpected")

    channel.on_event = fail
    server.send("t", SampleCommand("hello"))
    wait_for(lambda: channel.lost, 10, "the thread is stopped")
    assert "unexpected" in str(channel.lost_reason)
