"""The control connection: who is admitted, and that nothing is lost or doubled on it."""

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
from support.broker.said import Ask, Say, Tell, said
from support.waiting import stays, wait_for

from millstream.errors import (
    IllegalStateError,
    NotPicklableError,
    ProcessingError,
    SparkError,
    StreamsError,
    ThreadUnavailableError,
)
from millstream.runtime.control import Asked, Close, Report
from millstream.spark.connection import wire
from millstream.spark.connection.control import ControlChannel
from millstream.spark.connection.control_server import ControlServer
from millstream.spark.connection.conversation import Conversation
from millstream.spark.connection.messages import (
    Epoch,
    Hello,
    ThreadExit,
    Undeliverable,
    decode_value,
    encode_value,
)

KEY = b"k" * 32


@dataclass(frozen=True)
class Latest(Tell):
    """Of which only the last one counts."""

    kind: str = "latest"


class Recorder:
    """Keeps what the server tells."""

    def __init__(self) -> None:
        self.hellos: list[Hello] = []
        self.reports: list[Tell] = []
        #: Whether a report has come, though it may not be taken yet.
        self.is_asked = False
        self._free = threading.Event()
        self._free.set()

    def on_registered(self, hello: Hello) -> None:
        self.hellos.append(hello)

    def on_report(self, hello: Hello, report: Report) -> None:
        assert isinstance(report, Tell)
        self.is_asked = True
        assert self._free.wait(10)
        self.reports.append(report)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Takes nothing meanwhile."""
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
    server.expect("t", 1)
    yield server
    server.close()


class Network:
    """Stands between worker and driver, and can be down: connections break without a goodbye."""

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
            # An end whose other end was cut already is not connected any more.
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
        who: Hello | None = None, *, key: bytes = KEY, via: Network | None = None, **options: Any
    ) -> ControlChannel:
        address = via.address if via is not None else server.address
        channel = ControlChannel(address, key, who or hello(), **options)
        channels.append(channel)
        channel.open()
        return channel

    yield connect
    for channel in channels:
        channel.close(flush_ms=0)


Connect = Callable[..., ControlChannel]


def test_reports_arrive_in_order_and_closing_delivers_them(
    server: ControlServer, recorder: Recorder, connect: Connect
) -> None:
    """Goal: what was reported before `close` has been handed over when it returns."""
    channel = connect()
    for number in range(1000):
        channel.report(Tell("number", number))
    channel.close()
    assert [report.data for report in recorder.reports] == list(range(1000))
    assert recorder.hellos == [hello()]


def test_closing_leaves_no_thread_behind(connect: Connect) -> None:
    """Goal: PySpark may use the worker's process again."""
    before = set(threading.enumerate())
    channel = connect()
    channel.close()
    left = {t.name for t in set(threading.enumerate()) - before if t.name.startswith("t-control")}
    assert left - {"t-control-sender"} == set()
    wait_for(lambda: not any(t.name == "t-control-sender" for t in threading.enumerate()))


def test_commands_and_replies(server: ControlServer, connect: Connect) -> None:
    """Goal: commands come down in order; a reply, or an exception as reply, goes up."""
    channel = connect()
    assert channel.commands() == []
    assert not channel.wait(1)
    server.send("t", Say("pause"))
    server.send("t", Say("seek", {"offset": 5}))
    assert channel.wait(5000)
    found = channel.commands()
    while len(found) < 2:
        assert channel.wait(5000)
        found += channel.commands()
    assert [(said(asked).kind, said(asked).data) for asked in found] == [
        ("pause", None),
        ("seek", {"offset": 5}),
    ]

    def answer() -> None:
        while channel.wait(2000):
            for asked in channel.commands():
                data = said(asked).data
                channel.reply(asked, IllegalStateError("not now") if data == "bad" else data * 2)

    answering = threading.Thread(target=answer)
    answering.start()
    assert server.request("t", Ask("double", 21), 5000) == 42
    with pytest.raises(IllegalStateError, match="not now"):
        server.request("t", Ask("double", "bad"), 5000)
    answering.join()


def test_a_command_that_cannot_be_sent_is_refused(server: ControlServer, connect: Connect) -> None:
    """Goal: whoever asks learns it, rather than the worker."""
    channel = connect()
    with pytest.raises(NotPicklableError, match="item 'lock'"):
        server.send("t", Say("query", {"lock": threading.Lock()}))
    with pytest.raises(SparkError, match="the limit is"):
        server.send("t", Say("query", bytes(64 * 1024 * 1024)))
    assert channel.commands() == []


def test_a_request_without_reply_ends(server: ControlServer, connect: Connect) -> None:
    """Goal: nothing blocks for ever: neither a busy thread nor one that ends nor an unknown one."""
    channel = connect()
    with pytest.raises(ThreadUnavailableError, match="within 50 ms"):
        server.request("t", Ask("query", None), 50)
    with pytest.raises(ThreadUnavailableError, match="not registered"):
        server.request("nobody", Ask("query", None), 50)
    wait_for(channel.commands, 20, "the first question is there")

    def forget() -> None:
        wait_for(channel.commands, 20, "the second question is there")
        server.forget("t", "its job is over")

    forgetting = threading.Thread(target=forget)
    forgetting.start()
    with pytest.raises(ThreadUnavailableError, match="its job is over"):
        server.request("t", Ask("query", None), 60_000)
    forgetting.join()


def test_a_thread_that_closes_refuses_questions_at_once(
    server: ControlServer, connect: Connect
) -> None:
    """Goal: nobody waits for one that looks at no commands any more, which still come."""
    channel = connect()
    waiting = server.post("t", Ask("query", None))
    server.send("t", Say("pause"))
    assert channel.wait(5_000)
    wait_for(lambda: channel._commands.qsize() >= 1)
    channel.refuse_questions(ThreadUnavailableError("It closes."))
    with pytest.raises(ThreadUnavailableError, match="It closes"):
        waiting.result(5)
    with pytest.raises(ThreadUnavailableError, match="It closes"):
        server.request("t", Ask("query", None), 5_000)
    assert [said(asked).kind for asked in channel.commands()] == ["pause"]


def test_answers_do_not_push_out_reports(
    server: ControlServer, recorder: Recorder, connect: Connect, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goal: a driver that is slow gets every report, and askers are told to ask again."""
    monkeypatch.setattr("millstream.spark.connection.control.MAX_REPLY_BYTES", 1_000_000)
    channel = connect()
    replies = [server.post("t", Ask("query", number)) for number in range(20)]
    asked: list[Asked] = []
    while len(asked) < 20:
        assert channel.wait(5_000)
        asked += channel.commands()
    with recorder.held():
        channel.report(Tell("number", 0))
        for each in asked:
            channel.reply(each, bytes(200_000))
        channel.report(Tell("number", 1))
        assert channel._conversation.waiting_bytes < 1_100_000
    failed = [reply for reply in replies if isinstance(reply.exception(5), ThreadUnavailableError)]
    assert 10 < len(failed) < 20
    wait_for(lambda: [each.data for each in recorder.reports] == [0, 1])


def test_nobody_hears_of_an_answer_that_was_given_up(
    server: ControlServer, connect: Connect
) -> None:
    """Goal: an answer that comes too late does no harm."""
    channel = connect()
    late = server.post("t", Ask("query", 1))
    assert late.cancel()
    good = server.post("t", Ask("query", 2))
    answered = 0
    while answered < 2:
        assert channel.wait(5_000)
        for asked in channel.commands():
            answered += 1
            channel.reply(asked, said(asked).data)
    assert good.result(5) == 2


@pytest.mark.parametrize("attended", [False, True])
def test_a_broken_connection_loses_and_doubles_nothing(
    server: ControlServer, recorder: Recorder, connect: Connect, attended: bool
) -> None:
    """Goal: a blip of the network is not seen. Method: cut it again and again under load."""
    channel = connect()
    commands: list[int] = []
    stop = threading.Event()

    def cut() -> None:
        while not stop.wait(0.03):
            server.drop_connection("t")

    cutting = threading.Thread(target=cut)
    cutting.start()
    for number in range(600):
        channel.report(Tell("number", number))
        server.send("t", Say("number", number))
        if attended:
            channel.attend()
        commands += [said(asked).data for asked in channel.commands()]
        time.sleep(0.001)
    stop.set()
    cutting.join()
    wait_for(lambda: len(recorder.reports) >= 600)
    while len(commands) < 600 and channel.wait(5000):
        commands += [said(asked).data for asked in channel.commands()]
    assert [report.data for report in recorder.reports] == list(range(600))
    assert commands == list(range(600))
    assert recorder.hellos == [hello()], "a reconnect is not a registration"
    assert not channel.lost


def test_a_message_in_hand_is_dealt_with_before_the_next_link(
    server: ControlServer, recorder: Recorder, connect: Connect
) -> None:
    """Hunts a report that comes twice: the driver was still busy with it when its connection broke,
    and said on the next one that it had not received it."""
    channel = connect()
    with recorder.held():
        channel.report(Tell("number", 1))
        wait_for(lambda: recorder.is_asked, 20, "the driver takes the report")
        server.drop_connection("t")
        wait_for(lambda: not channel.connected, 20, "the connection is lost")
        assert stays(lambda: not channel.connected, 0.5)
    channel.report(Tell("number", 2))
    wait_for(lambda: len(recorder.reports) >= 2)
    channel.close()
    assert [report.data for report in recorder.reports] == [1, 2]


def test_who_attends_receives_and_sends_alone(server: ControlServer, connect: Connect) -> None:
    """Goal: the processing loop does not take turns with the threads of its connection."""
    channel = connect()
    heard: list[str] = []
    channel.on_news = lambda: heard.append(threading.current_thread().name)
    own = threading.current_thread().name

    def answer_for(seconds: float, asking: threading.Thread) -> None:
        until = time.monotonic() + seconds
        while asking.is_alive() and time.monotonic() < until:
            channel.attend()
            for asked in channel.commands():
                channel.reply(asked, said(asked).data)
            channel.attend()
            time.sleep(0.002)

    answers: list[int] = []

    def ask() -> None:
        answers.extend(server.request("t", Ask("number", number), 10_000) for number in range(300))

    asking = threading.Thread(target=ask)
    asking.start()
    answer_for(30, asking)
    asking.join()
    assert answers == list(range(300))
    # The first ones come before anybody knows that somebody attends.
    assert heard.count(own) > 250


def test_a_connection_that_is_left_alone_again_goes_on_by_itself(
    server: ControlServer, recorder: Recorder, connect: Connect
) -> None:
    """Goal: what is told by or to a thread that has stopped to attend is neither kept nor late."""
    channel = connect()
    server.send("t", Say("first"))
    wait_for(lambda: bool(channel.commands()), 10, "the first command")
    for number in range(20):
        # Its own reader has one more message before it leaves the connection alone.
        server.send("t", Say("number", number))
        channel.attend()
        time.sleep(0.002)
    channel.report(Tell("last"))
    server.send("t", Say("last"))
    began = time.monotonic()
    wait_for(lambda: recorder.reports == [Tell("last")], 10, "the report")
    told: list[str] = []

    def has_last() -> bool:
        told.extend(said(asked).kind for asked in channel.commands())
        return "last" in told

    wait_for(has_last, 10, "the last command")
    # Signs of life, which would take both along, come every 3 s.
    assert time.monotonic() - began < 2


def test_what_cannot_be_sent_at_once_is_sent_later_in_its_order() -> None:
    """Goal: nobody who attends waits for a driver that takes nothing."""
    here, there = socket.socketpair()
    here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4_096)
    options: dict[str, Any] = {"silence_limit_s": 10}
    sender = wire.Connection(here, KEY, sends=b"a", receives=b"b", **options)
    receiver = wire.Connection(there, KEY, sends=b"b", receives=b"a", **options)
    bodies = [b"1" * 300_000, b"2", b"3"]
    began = time.monotonic()
    sender.send_now(*bodies[:2])
    assert time.monotonic() - began < 5
    assert sender.has_rest
    found: list[bytes] = []
    receiving = threading.Thread(target=lambda: found.extend(receiver.receive() for _ in bodies))
    receiving.start()
    sender.send(bodies[2])
    receiving.join(10)
    assert found == bodies
    assert not sender.has_rest
    assert receiver.receive_now(5) == []
    sender.send_now(b"4", b"5", b"6")
    assert receiver.receive_now(2) == [b"4", b"5"]
    assert receiver.receive_now(2) == [b"6"]
    sender.close()
    with pytest.raises(ConnectionError, match="closed"):
        receiver.receive_now(1)


def test_without_a_driver_the_channel_is_lost_after_the_grace_period(
    network: Network, connect: Connect
) -> None:
    """Goal: an orphan stops, but not at the first blip."""
    channel = connect(grace_ms=1_000, via=network)
    network.down()
    began = time.monotonic()
    wait_for(lambda: not channel.connected)
    assert not channel.lost
    wait_for(lambda: channel.lost)
    assert 0.9 < time.monotonic() - began < 8
    assert channel.lost_reason is not None


def test_nobody_listens(server: ControlServer) -> None:
    """Goal: a worker that cannot reach the driver gives up, saying where it looked."""
    address = server.address
    server.close()
    channel = ControlChannel(address, KEY, hello(), grace_ms=200)
    assert not channel.open()
    assert str(address[1]) in str(channel.lost_reason)
    channel.close()


def test_a_later_attempt_replaces_an_earlier_one(
    server: ControlServer, recorder: Recorder, connect: Connect
) -> None:
    """Goal: of two attempts of a thread only the later one goes on, whoever comes first."""
    first = connect(hello(1, 7))
    second = connect(hello(1, 8))
    wait_for(lambda: first.lost)
    assert "replaced" in str(first.lost_reason)
    assert not second.lost
    old = connect(hello(1, 7))
    assert old.lost
    server.expect("t", 5)
    assert connect(hello(4, 99)).lost
    server.send("t", Say("hello"))
    assert second.wait(5000), "what is expected next does not disturb the present attempt"
    third = connect(hello(5, 0))
    assert not third.lost
    assert [each.epoch for each in recorder.hellos] == [(1, 7), (1, 8), (5, 0)]


@pytest.mark.parametrize(
    ("who", "why"),
    [(hello(app="other"), "driver of 'shop'"), (hello(name="u"), "no stream thread of the name")],
)
def test_strangers_are_turned_away_at_once(connect: Connect, who: Hello, why: str) -> None:
    """Goal: no grace period for one that will never be wanted."""
    channel = connect(who)
    assert channel.lost
    assert why in str(channel.lost_reason)


def test_a_closing_thread_admits_reconnects_but_no_new_attempt(
    server: ControlServer, connect: Connect
) -> None:
    """Goal: a thread that is to close gets its command even if the connection just broke."""
    channel = connect()
    server.admit_no_more("t", "closing")
    server.drop_connection("t")
    server.send("t", Say("close"))
    assert channel.wait(5000)
    assert connect(hello(1, 1)).lost


def test_without_the_key_nothing_is_read(
    server: ControlServer, recorder: Recorder, connect: Connect
) -> None:
    """Goal: a pickle from a stranger is never opened. Method: a wrong key, then plain rubbish."""
    assert connect(key=b"x" * 32, grace_ms=200).lost
    with socket.create_connection(server.address) as sock:
        sock.sendall(b"\0" * 200)
        sock.settimeout(10)
        with contextlib.suppress(ConnectionResetError):
            while sock.recv(1024):
                pass
    assert recorder.hellos == []
    assert not connect().lost


def test_a_frame_that_was_tampered_with_ends_the_connection() -> None:
    """Goal: authenticity holds for every frame, its order included. Method: send one twice."""
    here, there = socket.socketpair()
    options: dict[str, Any] = {"silence_limit_s": 5}
    sender = wire.Connection(here, KEY, sends=b"a", receives=b"b", **options)
    receiver = wire.Connection(there, KEY, sends=b"b", receives=b"a", **options)
    sender.send(b"first")
    assert receiver.receive() == b"first"
    sender._sent_frames = 0
    sender.send(b"first")
    with pytest.raises(ConnectionError, match="not authentic"):
        receiver.receive()
    sender.close()


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_frames_arrive_one_by_one_however_they_travel(piece: int) -> None:
    """Several in one piece, and one in many."""
    here, between_here = socket.socketpair()
    between_there, there = socket.socketpair()
    options: dict[str, Any] = {"silence_limit_s": 5}
    sender = wire.Connection(here, KEY, sends=b"a", receives=b"b", **options)
    receiver = wire.Connection(there, KEY, sends=b"b", receives=b"a", **options)
    bodies = [b"", b"first", b"x" * 3_000, b"last"]
    sender.send(*bodies[:3])
    sender.send(bodies[3])
    sender.close()
    told = b"".join(iter(lambda: between_here.recv(4_096), b""))

    def pass_on() -> None:
        for start in range(0, len(told), piece):
            between_there.sendall(told[start : start + piece])
        between_there.close()

    passing = threading.Thread(target=pass_on)
    passing.start()
    assert [receiver.receive() for _ in bodies] == bodies
    with pytest.raises(ConnectionError, match="closed"):
        receiver.receive()
    passing.join()
    between_here.close()


def test_silence_counts_as_a_broken_connection() -> None:
    """Goal: a peer whose machine vanished without a word is noticed."""
    here, there = socket.socketpair()
    receiver = wire.Connection(here, KEY, sends=b"a", receives=b"b", silence_limit_s=0.1)
    with pytest.raises(ConnectionError):
        receiver.receive()
    there.close()


def test_reporting_does_not_block_when_nobody_takes_it(
    network: Network, recorder: Recorder, connect: Connect
) -> None:
    """Goal: the processing loop goes on; the latest reports survive, and metrics are conflated."""
    channel = connect(grace_ms=60_000, max_reports=10, via=network)
    network.down()
    wait_for(lambda: not channel.connected)
    began = time.monotonic()
    for number in range(15):
        channel.report(Tell("state", number))
        channel.report(Latest(data=number), latest_only=True)
    # Room is waited for a tenth of a second at most; some messages have to wait here.
    assert time.monotonic() - began < 5
    network.up()
    wait_for(lambda: Tell("state", 14) in recorder.reports)
    states = [report.data for report in recorder.reports if not isinstance(report, Latest)]
    metrics = [report.data for report in recorder.reports if isinstance(report, Latest)]
    assert len(states) >= 9
    assert states == list(range(15 - len(states), 15))
    assert len(metrics) <= 2


def test_the_driver_going_for_good_says_so(server: ControlServer, connect: Connect) -> None:
    """Goal: a driver that closes does not leave its threads to their grace period."""
    channel = connect()
    server.close()
    wait_for(lambda: channel.lost)
    assert "the application closes" in str(channel.lost_reason)


def test_a_conversation_refuses_or_drops_at_its_limit() -> None:
    """Goal: both ways of being full, by number and by bytes."""
    refusing = Conversation(max_messages=2, max_bytes=100, drop_oldest=False)
    assert refusing.post(b"1")
    assert refusing.post(b"2")
    assert not refusing.post(b"3")
    dropping = Conversation(max_messages=10, max_bytes=100, drop_oldest=True)
    for _ in range(4):
        assert dropping.post(b"x" * 40)
    assert dropping.dropped == 2
    assert not dropping.flush(0.01)


def test_what_has_arrived_is_not_sent_again_after_a_reconnect() -> None:
    """Hunts memory that is never given back: a message is kept until it is acknowledged."""
    conversation = Conversation(drop_oldest=False)
    for payload in (b"one", b"two", b"three"):
        conversation.post(payload)
    conversation.take()
    conversation.resume(received_there=2)
    assert conversation.waiting_bytes == len(b"three")
    assert conversation.take() == [(3, b"three")]


def test_an_acknowledgement_waits_for_a_message_but_not_for_long() -> None:
    """Goal: what is told is not kept for long where nothing is to be said in return, and a message
    that goes out at once takes it along."""
    conversation = Conversation(drop_oldest=False)
    for number in range(1, 10):
        conversation.note_received(number)
    began = time.monotonic()
    conversation.wait(30, lambda: False)
    assert time.monotonic() - began < 10
    assert conversation.take() == []
    conversation.note_received(10)
    conversation.post(b"reply")
    conversation.wait(30, lambda: False)
    assert conversation.take() == [(1, b"reply")]
    # Nothing is due any more.
    began = time.monotonic()
    conversation.wait(0.2, lambda: False)
    assert time.monotonic() - began >= 0.2


def test_only_so_many_bytes_go_out_together() -> None:
    """Goal: large messages are not copied once more, all in one."""
    conversation = Conversation(drop_oldest=False)
    for size in (200_000, 200_000, 200_000, 1, 1):
        conversation.post(b"x" * size)
    taken = [[number for number, _ in conversation.take()] for _ in range(3)]
    assert taken == [[1, 2], [3, 4, 5], []]


class PickyError(Exception):
    """Cannot be unpickled: its constructor wants what pickle does not give."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def raised(error: BaseException, cause: BaseException | None = None) -> BaseException:
    try:
        raise error from cause
    except BaseException as caught:
        return caught


def test_errors_travel_with_their_causes_and_traceback() -> None:
    """Goal: the user sees in the driver what happened in the worker, whatever was raised."""
    inner = raised(PickyError(5, "refused"), raised(KeyError("k")))
    outer = raised(ProcessingError("mapper failed", topic="in", offset=42), inner)
    arrived = decode_value(encode_value(ThreadExit("error", outer, ("a", "b"))))
    assert (arrived.kind, arrived.story) == ("error", ("a", "b"))
    error = arrived.error
    assert isinstance(error, ProcessingError)
    assert (error.topic, error.offset) == ("in", 42)
    assert type(error.__cause__) is StreamsError
    assert "PickyError: refused" in str(error.__cause__)
    assert isinstance(error.__cause__.__cause__, KeyError)
    assert "test_control.py" in error.__notes__[0]
    assert "PickyError" in error.__notes__[0]


def test_what_cannot_be_pickled_arrives_as_a_description() -> None:
    """Goal: a report is never lost because of what it holds."""
    arrived = decode_value(encode_value({"lock": threading.Lock()}))
    assert isinstance(arrived, Undeliverable)
    assert arrived.type_name == "dict"
    assert "lock" in arrived.text
    assert "pickle" in arrived.why


def test_a_reply_that_cannot_be_sent_is_an_error(server: ControlServer, connect: Connect) -> None:
    """Goal: a query whose answer cannot travel fails at once instead of timing out."""
    channel = connect()

    def answer() -> None:
        assert channel.wait(5000)
        for asked in channel.commands():
            channel.reply(asked, threading.Lock())

    answering = threading.Thread(target=answer)
    answering.start()
    with pytest.raises(SparkError, match="could not be sent"):
        server.request("t", Ask("query", None), 10_000)
    answering.join()


def test_a_signal_looks_like_a_close_command(connect: Connect) -> None:
    """Goal: the machine's request to end takes the same path as the driver's."""
    channel = connect()
    channel.stop_by_signal("SIGHUP", 5_000)
    assert channel.commands() == [Asked(Close(commit_timeout_ms=5_000))]
    assert channel.stop_signal == "SIGHUP"


@pytest.mark.parametrize("size", [0, 1, 20_000_000])
def test_a_thread_is_given_its_code_once(
    server: ControlServer, connect: Callable[..., ControlChannel], size: int
) -> None:
    """Goal: whatever its size, and not again when the connection is opened anew."""
    code = b"x" * size
    server.expect("t", 1, code)
    channel = connect()
    assert channel.take_code() == code
    server.drop_connection("t")
    wait_for(lambda: channel.connected and server.connected("t"), 10, "it is back")
    assert channel.take_code() == b""


def test_a_keeper_that_dies_is_no_silent_end(server: ControlServer, connect: Connect) -> None:
    """Hunts for a thread that works on and on without ever hearing that it is to close."""
    channel = connect()

    def fail() -> None:
        channel.on_news = lambda: None
        raise ValueError("nobody expected this")

    channel.on_news = fail
    server.send("t", Say("hello"))
    wait_for(lambda: channel.lost, 10, "the thread is told to stop")
    assert "nobody expected this" in str(channel.lost_reason)
