"""The wire protocol between driver and stream thread.

The protocol consists of authenticated frames over TCP. Both ends prove that they have the
application's key before any other data is read, because frames contain pickles, and a peer that can
send a pickle can execute code. Each frame has an authentication code that binds it to the
connection, the direction and its position in the stream, so frames can be neither injected nor
replayed. Between machines, the connection uses TLS (`encryption`).

A frame consists of the length of the body (4 bytes, big-endian), the authentication code
(16 bytes), and the body.
"""

from __future__ import annotations

import contextlib
import hmac
import secrets
import socket
import ssl
import struct
import threading
import time
from collections.abc import Sequence
from typing import Final

from millstream.spark.connection.encryption import EncryptedSocket, wrap_client_socket

#: A plain or encrypted socket.
Stream = socket.socket | EncryptedSocket

#: The maximum size of a frame. A larger frame ends the connection.
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024

_MAGIC: Final = b"millstream-control-2\n"
_NONCE_BYTES: Final = 32
_PROOF_BYTES: Final = 32
_CODE_BYTES: Final = 16
_LENGTH: Final = struct.Struct(">I")
_COUNTER: Final = struct.Struct(">Q")
#: The kernel's `struct timeval`: seconds and microseconds.
_TIMEVAL: Final = struct.Struct("@ll")
#: The maximum size of one `send` call, so that the timeout applies to each part of a large frame.
_CHUNK_BYTES: Final = 256 * 1024
#: The minimum buffer size of one `recv` call, because many small frames arrive together.
_READ_BYTES: Final = 64 * 1024


class ControlConnection:
    """An authenticated connection that sends and receives whole frames.

    One thread may receive while others send. Any failure, such as a timeout or a frame that is not
    authentic, raises a `ConnectionError` and closes the connection. The connection owns the socket.
    `sends` and `receives` are the labels in the authentication codes of this end and the peer.
    """

    def __init__(
        self, sock: Stream, key: bytes, *, sends: bytes, receives: bytes, idle_timeout_s: float
    ) -> None:
        self._sock = sock
        self._key = key
        self._sends = sends
        self._receives = receives
        self._sending = threading.Lock()
        self._sent_frames = 0
        self._received_frames = 0
        #: The bytes that `send_nowait` could not send.
        self._unsent = b""
        #: The bytes that were received but not yet consumed.
        self._received = bytearray()
        # Use the kernel's timeout: Python's timeout needs an additional system call each time, and
        # after each system call, a thread may have to wait for Python's global interpreter lock.
        sock.settimeout(None)
        seconds, fraction_s = divmod(idle_timeout_s, 1)
        limit = _TIMEVAL.pack(int(seconds), int(fraction_s * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def send(self, *bodies: bytes) -> None:
        """Send one frame per body, in a single system call if possible.

        After each system call, the sender may have to wait for Python's global interpreter lock.
        Raises a `ValueError` if a body is larger than `MAX_FRAME_BYTES`.
        """
        for body in bodies:
            if len(body) > MAX_FRAME_BYTES:
                raise ValueError(
                    f"A control message of {len(body)} bytes exceeds the limit of "
                    f"{MAX_FRAME_BYTES} bytes."
                )
        with self._sending:
            try:
                for data in (self._unsent, self._framed(bodies)):
                    left = memoryview(data)
                    while left:
                        left = left[self._sock.send(left[:_CHUNK_BYTES]) :]
            except OSError as error:
                raise self._fail(error) from error
            self._unsent = b""

    def receive(self) -> bytes:
        """Wait for the next frame and return its body."""
        try:
            (length,) = _LENGTH.unpack(self._take(_LENGTH.size))
            if length > MAX_FRAME_BYTES:
                raise ConnectionError(f"A frame of {length} bytes exceeds the limit.")
            code = self._take(_CODE_BYTES)
            body = self._take(length)
        except OSError as error:
            raise self._fail(error) from error
        expected = self._code(self._receives, self._received_frames, body)
        self._received_frames += 1
        if not hmac.compare_digest(code, expected):
            self.close()
            raise ConnectionError("A frame of the control connection is not authentic.")
        return body

    @property
    def has_partial_send(self) -> bool:
        """Whether `send_nowait` has left unsent bytes, which the next `send` sends first."""
        return bool(self._unsent)

    @property
    def supports_nonblocking(self) -> bool:
        """Whether the connection supports non-blocking calls.

        Encrypted connections do not support them.
        """
        return isinstance(self._sock, socket.socket)

    def send_nowait(self, *bodies: bytes) -> None:
        """Send as much of the frames as possible without blocking.

        Must not be called while another thread is sending, or while there are unsent bytes.
        """
        assert isinstance(self._sock, socket.socket)
        with self._sending:
            frames = self._framed(bodies)
            try:
                self._unsent = frames[self._sock.send(frames, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                self._unsent = frames
            except OSError as error:
                raise self._fail(error) from error

    def receive_nowait(self, max_frames: int) -> list[bytes]:
        """Return up to `max_frames` received frames, without blocking.

        Must not be called while another thread is receiving.
        """
        assert isinstance(self._sock, socket.socket)
        part = None
        try:
            part = self._sock.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            # No new data has arrived, but earlier data may contain whole frames.
            pass
        except OSError as error:
            raise self._fail(error) from error
        if part == b"":
            raise self._fail("the other end closed the connection")
        self._received += part or b""
        bodies: list[bytes] = []
        while len(bodies) < max_frames and self._has_whole_frame:
            bodies.append(self.receive())
        return bodies

    @property
    def _has_whole_frame(self) -> bool:
        received = self._received
        if len(received) < _LENGTH.size:
            return False
        length: int = _LENGTH.unpack_from(received)[0]
        # `receive` rejects frames that are too large.
        return length > MAX_FRAME_BYTES or len(received) >= _LENGTH.size + _CODE_BYTES + length

    def close(self) -> None:
        """Close the connection, and wake a thread that is receiving. Idempotent."""
        # Shut down first, because closing the socket does not wake a thread that is reading. If
        # the peer is gone, the shutdown fails, which can be ignored.
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _fail(self, reason: object) -> ConnectionError:
        self.close()
        return ConnectionError(f"The control connection failed: {reason}")

    def _framed(self, bodies: Sequence[bytes]) -> bytes:
        parts: list[bytes] = []
        for body in bodies:
            code = self._code(self._sends, self._sent_frames, body)
            self._sent_frames += 1
            parts += (_LENGTH.pack(len(body)), code, body)
        return b"".join(parts)

    def _take(self, size: int) -> bytes:
        received = self._received
        while len(received) < size:
            part = self._sock.recv(min(max(_READ_BYTES, size - len(received)), _CHUNK_BYTES))
            if not part:
                raise ConnectionError("the other end closed the connection")
            received += part
        taken = bytes(memoryview(received)[:size])
        del received[:size]
        return taken

    def _code(self, label: bytes, number: int, body: bytes) -> bytes:
        text = label + _COUNTER.pack(number) + body
        return hmac.digest(self._key, text, "sha256")[:_CODE_BYTES]


def connect_to_driver(
    address: tuple[str, int],
    authkey: bytes,
    *,
    timeout_s: float,
    idle_timeout_s: float,
    certificate: bytes = b"",
) -> ControlConnection:
    """Open the worker's end of a connection, or raise a `ConnectionError`.

    `timeout_s` limits the total time for connecting and authenticating. `certificate` is the
    driver's certificate in DER, or empty if the connection is not encrypted.
    """
    deadline = time.monotonic() + timeout_s
    try:
        connected = socket.create_connection(address, timeout_s)
    except OSError as error:
        raise ConnectionError(f"Cannot reach {address[0]}:{address[1]}: {error}") from error
    sock: Stream = connected
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if certificate:
            sock = wrap_client_socket(connected, certificate, deadline)
        theirs = _read_nonce(sock, deadline)
        mine = secrets.token_bytes(_NONCE_BYTES)
        sock.sendall(_MAGIC + mine + _proof(authkey, b"worker", theirs, mine))
        if not hmac.compare_digest(
            _read(sock, _PROOF_BYTES, deadline), _proof(authkey, b"driver", theirs, mine)
        ):
            raise ConnectionError("The driver does not have this application's key.")
    except OSError as error:
        sock.close()
        raise ConnectionError(f"The driver did not complete the handshake: {error}") from error
    return ControlConnection(
        sock,
        _proof(authkey, b"session", theirs, mine),
        sends=b"worker",
        receives=b"driver",
        idle_timeout_s=idle_timeout_s,
    )


def accept_worker(
    accepted: socket.socket,
    authkey: bytes,
    *,
    timeout_s: float,
    idle_timeout_s: float,
    tls: ssl.SSLContext | None = None,
) -> ControlConnection:
    """Open the driver's end of a connection.

    If this fails, the socket is closed and a `ConnectionError` is raised. `timeout_s` limits the
    time for encrypting and authenticating the connection.
    """
    deadline = time.monotonic() + timeout_s
    sock: Stream = accepted
    try:
        sock.settimeout(timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            sock = EncryptedSocket(accepted, tls, server_side=True)
            sock.do_handshake(deadline)
        mine = secrets.token_bytes(_NONCE_BYTES)
        sock.sendall(_MAGIC + mine)
        theirs = _read_nonce(sock, deadline)
        proof = _read(sock, _PROOF_BYTES, deadline)
        if not hmac.compare_digest(proof, _proof(authkey, b"worker", mine, theirs)):
            raise ConnectionError("The peer does not have this application's key.")
        sock.sendall(_proof(authkey, b"driver", mine, theirs))
    except OSError as error:
        sock.close()
        raise ConnectionError(f"The peer did not complete the handshake: {error}") from error
    return ControlConnection(
        sock,
        _proof(authkey, b"session", mine, theirs),
        sends=b"driver",
        receives=b"worker",
        idle_timeout_s=idle_timeout_s,
    )


def _read_nonce(sock: Stream, deadline: float) -> bytes:
    if _read(sock, len(_MAGIC), deadline) != _MAGIC:
        raise ConnectionError("The other end does not use this protocol.")
    return _read(sock, _NONCE_BYTES, deadline)


def _proof(authkey: bytes, role: bytes, driver_nonce: bytes, worker_nonce: bytes) -> bytes:
    return hmac.digest(authkey, role + driver_nonce + worker_nonce, "sha256")


def _read(sock: Stream, size: int, deadline: float) -> bytes:
    parts: list[bytes] = []
    while size > 0:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no response in time")
        sock.settimeout(left)
        part = sock.recv(size)
        if not part:
            raise ConnectionError("the other end closed the connection")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
