"""The control connection between machines cannot be read, joined or replayed."""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.broker.sample_messages import SampleReport
from support.waiting import wait_for

from millstream.runtime.thread_control import Report
from millstream.spark.connection.control_client import ControlChannel
from millstream.spark.connection.control_server import ControlServer
from millstream.spark.connection.encryption import TlsIdentity
from millstream.spark.connection.messages import Epoch, Hello

KEY = b"k" * 32
SECRET = b"a secret of the test"


def new_identity(folder: Path) -> TlsIdentity:
    """Create a key pair without Spark."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl is not installed")
    for arguments in (
        "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=t "
        "-keyout key.pem -outform DER -out certificate",
        "pkcs8 -topk8 -nocrypt -in key.pem -outform DER -out key",
    ):
        subprocess.run([openssl, *arguments.split()], cwd=folder, check=True, capture_output=True)
    return TlsIdentity((folder / "certificate").read_bytes(), (folder / "key").read_bytes())


@pytest.fixture(scope="module")
def identity(tmp_path_factory: pytest.TempPathFactory) -> TlsIdentity:
    return new_identity(tmp_path_factory.mktemp("identity"))


class Recorder:
    """Records the server's callbacks."""

    def __init__(self) -> None:
        self.reports: list[Report] = []

    def on_registered(self, hello: Hello) -> None:
        """Ignore the registration."""

    def on_report(self, hello: Hello, report: Report) -> None:
        self.reports.append(report)


class Sniffer:
    """A proxy between worker and driver that records the bytes of both directions."""

    def __init__(self, driver: tuple[str, int]) -> None:
        self._driver = driver
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._socks: list[socket.socket] = []
        self.from_worker = bytearray()
        self.from_driver = bytearray()
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._listening.getsockname()[1]

    def close(self) -> None:
        for sock in (self._listening, *self._socks):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                worker, _ = self._listening.accept()
                driver = socket.create_connection(self._driver)
                self._socks += [worker, driver]
                for source, target, recorded in (
                    (worker, driver, self.from_worker),
                    (driver, worker, self.from_driver),
                ):
                    passing = (source, target, recorded)
                    threading.Thread(target=self._carry, args=passing, daemon=True).start()

    @staticmethod
    def _carry(source: socket.socket, target: socket.socket, recorded: bytearray) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                recorded += data
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


Serve = Callable[[TlsIdentity | None], tuple[ControlServer, Sniffer, Recorder]]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start a driver that expects a thread whose code contains a secret."""
    with contextlib.ExitStack() as stack:

        def start(identity: TlsIdentity | None) -> tuple[ControlServer, Sniffer, Recorder]:
            recorder = Recorder()
            server = ControlServer("shop", KEY, recorder, identity=identity)
            server.start()
            stack.callback(server.close)
            server.expect_thread("t", 1, SECRET)
            sniffer = Sniffer(server.address)
            stack.callback(sniffer.close)
            return server, sniffer, recorder

        yield start


def channel_to(address: tuple[str, int], key: bytes, certificate: bytes) -> ControlChannel:
    hello = Hello("shop", "t", 1, Epoch(1, 0), 1, "here")
    return ControlChannel(address, key, hello, grace_ms=300, certificate=certificate)


@pytest.mark.parametrize("encrypted", [True, False])
def test_messages_cannot_be_read_in_transit(
    serve: Serve, identity: TlsIdentity, encrypted: bool
) -> None:
    """Goal: neither code nor reports can be read in transit.

    Without encryption they can, which shows that the test would find them.
    """
    _, sniffer, recorder = serve(identity if encrypted else None)
    channel = channel_to(sniffer.address, KEY, identity.certificate if encrypted else b"")
    try:
        assert channel.open()
        assert channel.take_code() == SECRET
        channel.report(SampleReport("secret", SECRET * 100_000))
        wait_for(lambda: recorder.reports, 30, "the report arrives")
    finally:
        channel.close()
    assert recorder.reports == [SampleReport("secret", SECRET * 100_000)]
    assert len(sniffer.from_worker) > len(SECRET) * 100_000
    assert (SECRET in sniffer.from_driver) is not encrypted
    assert (SECRET in sniffer.from_worker) is not encrypted


def test_a_wrong_key_is_rejected(
    serve: Serve, identity: TlsIdentity, caplog: pytest.LogCaptureFixture
) -> None:
    server, _, _ = serve(identity)
    channel = channel_to(server.address, b"x" * 32, identity.certificate)
    assert not channel.open()
    channel.close()
    assert "The control port rejected a connection" in caplog.text
    assert "does not have this application's key" in caplog.text
    assert server.registered("t") is None


def test_an_unencrypted_connection_is_rejected(
    serve: Serve, identity: TlsIdentity, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: a worker without encryption gets no useful answer to its greeting."""
    server, _, _ = serve(identity)
    with socket.create_connection(server.address) as plain, contextlib.suppress(OSError):
        plain.sendall(b"millstream-control-2\n" + bytes(64))
        assert b"millstream" not in plain.recv(1 << 16)
    wait_for(
        lambda: "The control port rejected a connection" in caplog.text,
        30,
        "the connection is rejected",
    )
    assert server.registered("t") is None


def test_another_driver_is_not_trusted(serve: Serve, identity: TlsIdentity, tmp_path: Path) -> None:
    """Goal: a peer with the key but without the driver's private key receives nothing."""
    server, _, _ = serve(new_identity(tmp_path))
    channel = channel_to(server.address, KEY, identity.certificate)
    assert not channel.open()
    channel.close()
    assert "does not have the driver's certificate" in str(channel.lost_reason)
    assert server.registered("t") is None


@pytest.mark.parametrize("encrypted", [True, False])
def test_replayed_bytes_are_rejected(
    serve: Serve, identity: TlsIdentity, encrypted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """Goal: recorded bytes open no second connection and report nothing again."""
    server, sniffer, recorder = serve(identity if encrypted else None)
    channel = channel_to(sniffer.address, KEY, identity.certificate if encrypted else b"")
    assert channel.open()
    channel.report(SampleReport("once"))
    wait_for(lambda: recorder.reports, 30, "the report arrives")
    channel.close()
    wait_for(lambda: not server.connected("t"), 30, "the connection is closed")
    with socket.create_connection(server.address) as again, contextlib.suppress(OSError):
        again.sendall(sniffer.from_worker)
        again.shutdown(socket.SHUT_WR)
        while again.recv(1 << 16):
            pass
    wait_for(
        lambda: "The control port rejected a connection" in caplog.text,
        30,
        "the connection is rejected",
    )
    assert recorder.reports == [SampleReport("once")]
    assert not server.connected("t")


def test_the_repr_of_an_identity_contains_no_secret(identity: TlsIdentity) -> None:
    assert repr(identity.key)[2:20] not in repr(identity)
