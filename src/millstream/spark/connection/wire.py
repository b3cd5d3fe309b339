"""The wire between the driver and a stream thread: authenticated frames over one TCP connection.

Both ends prove that they know the application's key before anything else is read: what the frames
carry are pickles, and whoever can send a pickle can run code. Each frame carries a code that binds
it to this connection, its direction and its place in the stream, so that nothing can be inserted
later either. Between machines all of it goes through TLS (`encryption`).

A frame is: length of the body (4 bytes, big-endian), authentication code (16 bytes), body.
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

from millstream.spark.connection.encryption import (
    EncryptedSocket,
    encrypted_to_driver,
    encrypted_to_worker,
)

#: What bytes go through.
Stream = socket.socket | EncryptedSocket

#: The most that one frame may hold; a longer one ends the connection.
MAX_FRAME_BYTES: Final = 64 * 1024 * 1024

_MAGIC: Final = b"millstream-control-2\n"
_NONCE_BYTES: Final = 32
_PROOF_BYTES: Final = 32
_CODE_BYTES: Final = 16
_LENGTH: Final = struct.Struct(">I")
_COUNTER: Final = struct.Struct(">Q")
#: What the kernel takes: seconds and microseconds.
_TIME_LIMIT: Final = struct.Struct("@ll")
#: What is handed to the kernel at once, so that the time limit is one of progress, not of a frame.
_CHUNK_BYTES: Final = 256 * 1024
#: What is taken from the kernel at once, if no frame wants more: many small frames come together.
_READ_BYTES: Final = 64 * 1024


class Connection:
    """An authenticated connection: whole frames in, whole frames out.

    One thread may receive while others send. Every failure, silence included, is a
    `ConnectionError` and leaves the connection closed.

    Args:
        sock: a connected socket; the connection owns it from here on.
        key: the key of this connection, which both ends derived in the handshake.
        sends: the label of what this end sends.
        receives: the label of what the other end sends.
        silence_limit_s: seconds without a byte after which the other end counts as gone.
    """

    def __init__(
        self,
        sock: Stream,
        key: bytes,
        *,
        sends: bytes,
        receives: bytes,
        silence_limit_s: float,
    ) -> None:
        self._sock = sock
        self._key = key
        self._sends = sends
        self._receives = receives
        self._sending = threading.Lock()
        self._sent_frames = 0
        self._received_frames = 0
        #: What `send_now` could not send.
        self._rest = b""
        #: What has come and is not taken out yet.
        self._arrived = bytearray()
        # The kernel's time limit, since Python's costs another call before each one, and a thread
        # that comes back from a call waits for Python's lock.
        sock.settimeout(None)
        seconds, rest_s = divmod(silence_limit_s, 1)
        limit = _TIME_LIMIT.pack(int(seconds), int(rest_s * 1e6))
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def send(self, *bodies: bytes) -> None:
        """Send frames, one for each body, together: each trip to the kernel may cost the sender its
        turn at Python's lock.

        Raises:
            ConnectionError: the other end is gone or takes nothing any more.
            ValueError: a body is longer than `MAX_FRAME_BYTES`.
        """
        for body in bodies:
            if len(body) > MAX_FRAME_BYTES:
                raise ValueError(
                    f"A control message of {len(body)} bytes is above the limit of "
                    f"{MAX_FRAME_BYTES} bytes."
                )
        with self._sending:
            try:
                for data in (self._rest, self._framed(bodies)):
                    left = memoryview(data)
                    while left:
                        left = left[self._sock.send(left[:_CHUNK_BYTES]) :]
            except OSError as error:
                raise self._broke(error) from error
            self._rest = b""

    def receive(self) -> bytes:
        """Wait for the next frame and return its body.

        Raises:
            ConnectionError: the other end closed, was silent for too long, or is not the one
                that was authenticated.
        """
        try:
            (length,) = _LENGTH.unpack(self._take(_LENGTH.size))
            if length > MAX_FRAME_BYTES:
                raise ConnectionError(f"A frame of {length} bytes is above the limit.")
            code = self._take(_CODE_BYTES)
            body = self._take(length)
        except OSError as error:
            raise self._broke(error) from error
        expected = self._code(self._receives, self._received_frames, body)
        self._received_frames += 1
        if not hmac.compare_digest(code, expected):
            self.close()
            raise ConnectionError("A frame of the control connection is not authentic.")
        return body

    @property
    def has_rest(self) -> bool:
        """Whether a part of what `send_now` took is still to be sent: `send` begins with it."""
        return bool(self._rest)

    @property
    def may_go_on(self) -> bool:
        """Whether it can be used without waiting. Encrypted ones cannot."""
        return isinstance(self._sock, socket.socket)

    def send_now(self, *bodies: bytes) -> None:
        """Send frames as far as that goes without waiting. Not while another thread sends, and not
        while there is a rest.

        Raises:
            ConnectionError: as for `send`.
        """
        assert isinstance(self._sock, socket.socket)
        with self._sending:
            frames = self._framed(bodies)
            try:
                self._rest = frames[self._sock.send(frames, socket.MSG_DONTWAIT) :]
            except BlockingIOError:
                self._rest = frames
            except OSError as error:
                raise self._broke(error) from error

    def receive_now(self, most: int) -> list[bytes]:
        """Up to so many frames that have come, without waiting for any. Not while another thread
        receives.

        Raises:
            ConnectionError: as for `receive`.
        """
        assert isinstance(self._sock, socket.socket)
        part = None
        try:
            part = self._sock.recv(_READ_BYTES, socket.MSG_DONTWAIT)
        except BlockingIOError:
            # Nothing has come; of what came before there may be whole frames left.
            pass
        except OSError as error:
            raise self._broke(error) from error
        if part == b"":
            raise self._broke("the other end closed it")
        self._arrived += part or b""
        bodies: list[bytes] = []
        while len(bodies) < most and self._has_whole_frame:
            bodies.append(self.receive())
        return bodies

    @property
    def _has_whole_frame(self) -> bool:
        arrived = self._arrived
        if len(arrived) < _LENGTH.size:
            return False
        length: int = _LENGTH.unpack_from(arrived)[0]
        # One that is too long is for `receive` to refuse.
        return length > MAX_FRAME_BYTES or len(arrived) >= _LENGTH.size + _CODE_BYTES + length

    def close(self) -> None:
        """Cut the connection; a thread that is receiving wakes up. Does nothing the second time."""
        # Shut down first: closing alone does not wake another thread that reads. It fails on a
        # socket whose peer has gone, which is as good as done.
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _broke(self, why: object) -> ConnectionError:
        self.close()
        return ConnectionError(f"The control connection broke: {why}")

    def _framed(self, bodies: Sequence[bytes]) -> bytes:
        parts: list[bytes] = []
        for body in bodies:
            code = self._code(self._sends, self._sent_frames, body)
            self._sent_frames += 1
            parts += (_LENGTH.pack(len(body)), code, body)
        return b"".join(parts)

    def _take(self, size: int) -> bytes:
        """The next bytes, exactly so many."""
        arrived = self._arrived
        while len(arrived) < size:
            part = self._sock.recv(min(max(_READ_BYTES, size - len(arrived)), _CHUNK_BYTES))
            if not part:
                raise ConnectionError("the other end closed it")
            arrived += part
        taken = bytes(memoryview(arrived)[:size])
        del arrived[:size]
        return taken

    def _code(self, label: bytes, number: int, body: bytes) -> bytes:
        text = label + _COUNTER.pack(number) + body
        return hmac.digest(self._key, text, "sha256")[:_CODE_BYTES]


def dial(
    address: tuple[str, int],
    authkey: bytes,
    *,
    timeout_s: float,
    silence_limit_s: float,
    certificate: bytes = b"",
) -> Connection:
    """Open the worker's end.

    Args:
        address: host and port at which the driver listens.
        authkey: the application's key.
        timeout_s: seconds for connecting and proving the key together.
        silence_limit_s: see `Connection`.
        certificate: the driver's, in DER; empty if it does not encrypt.

    Raises:
        ConnectionError: nobody listens there, or not one who knows the key.
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
            sock = encrypted_to_driver(connected, certificate, deadline)
        theirs = _greeting(sock, deadline)
        mine = secrets.token_bytes(_NONCE_BYTES)
        sock.sendall(_MAGIC + mine + _proof(authkey, b"worker", theirs, mine))
        if not hmac.compare_digest(
            _read(sock, _PROOF_BYTES, deadline), _proof(authkey, b"driver", theirs, mine)
        ):
            raise ConnectionError("The driver does not know this application's key.")
    except OSError as error:
        sock.close()
        raise ConnectionError(f"The driver did not complete the handshake: {error}") from error
    return Connection(
        sock,
        _proof(authkey, b"session", theirs, mine),
        sends=b"worker",
        receives=b"driver",
        silence_limit_s=silence_limit_s,
    )


def welcome(
    accepted: socket.socket,
    authkey: bytes,
    *,
    timeout_s: float,
    silence_limit_s: float,
    tls: ssl.SSLContext | None = None,
) -> Connection:
    """Open the driver's end over a socket that was just accepted.

    Args:
        accepted: the socket; closed when this raises.
        authkey: the application's key.
        timeout_s: seconds for the caller to prove that it knows the key.
        silence_limit_s: see `Connection`.
        tls: how it is encrypted; None if it is not.

    Raises:
        ConnectionError: the caller does not know the key, or is too slow to show it.
    """
    deadline = time.monotonic() + timeout_s
    sock: Stream = accepted
    try:
        sock.settimeout(timeout_s)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            sock = encrypted_to_worker(accepted, tls, deadline)
        mine = secrets.token_bytes(_NONCE_BYTES)
        sock.sendall(_MAGIC + mine)
        theirs = _greeting(sock, deadline)
        proof = _read(sock, _PROOF_BYTES, deadline)
        if not hmac.compare_digest(proof, _proof(authkey, b"worker", mine, theirs)):
            raise ConnectionError("The caller does not know this application's key.")
        sock.sendall(_proof(authkey, b"driver", mine, theirs))
    except OSError as error:
        sock.close()
        raise ConnectionError(f"The caller did not complete the handshake: {error}") from error
    return Connection(
        sock,
        _proof(authkey, b"session", mine, theirs),
        sends=b"driver",
        receives=b"worker",
        silence_limit_s=silence_limit_s,
    )


def _greeting(sock: Stream, deadline: float) -> bytes:
    """The other end's nonce."""
    if _read(sock, len(_MAGIC), deadline) != _MAGIC:
        raise ConnectionError("The other end does not speak this protocol.")
    return _read(sock, _NONCE_BYTES, deadline)


def _proof(authkey: bytes, role: bytes, driver_nonce: bytes, worker_nonce: bytes) -> bytes:
    return hmac.digest(authkey, role + driver_nonce + worker_nonce, "sha256")


def _read(sock: Stream, size: int, deadline: float) -> bytes:
    """Exactly `size` bytes of a handshake, all of them until the deadline."""
    parts: list[bytes] = []
    while size > 0:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("no answer in time")
        sock.settimeout(left)
        part = sock.recv(size)
        if not part:
            raise ConnectionError("the other end closed it")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
