"""Encryption of the control connection where it leaves this machine: TLS, with a certificate that
is made for one application instance and that its threads know.

Python cannot make a certificate, and neither librdkafka nor Spark lends it the means; but where
Spark is, there is Java. It makes the key pair and signs; what is signed is written here. The
certificate names nobody and never runs out: a thread compares it, byte by byte, with the one that
it was told of.
"""

from __future__ import annotations

import base64
import hmac
import os
import secrets
import socket
import ssl
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_READ_BYTES: Final = 256 * 1024

# Tags of DER, and what a certificate is made of besides its keys.
_SEQUENCE, _SET, _INTEGER, _BIT_STRING, _UTF8 = b"\x30", b"\x31", b"\x02", b"\x03", b"\x0c"
_ECDSA_WITH_SHA256: Final = bytes.fromhex("300a06082a8648ce3d040302")
_COMMON_NAME: Final = bytes.fromhex("0603550403")
#: From 2000 to the end of time, which is how a certificate says that it does not run out.
_ALWAYS: Final = b"\x17\x0d000101000000Z" + b"\x18\x0f99991231235959Z"


@dataclass(frozen=True)
class Identity:
    """A key pair as two PEM texts.

    Args:
        certificate: in DER; no secret.
        key: the private key, in PKCS #8's DER.
    """

    certificate: bytes
    key: bytes = field(repr=False)

    def server_context(self) -> ssl.SSLContext:
        """How the driver speaks TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        both = _pem("PRIVATE KEY", self.key) + _pem("CERTIFICATE", self.certificate)
        # OpenSSL takes keys from files only. This one is its owner's alone, and gone at once.
        handle, path = tempfile.mkstemp(prefix="millstream-")
        try:
            os.write(handle, both.encode())
            os.close(handle)
            context.load_cert_chain(path)
        finally:
            os.unlink(path)
        return context


def make_identity(session: SparkSession) -> Identity:
    """A new key pair, made by the session's Java.

    Args:
        session: its driver's JVM is in this process's care.
    """
    jvm: Any = session.sparkContext._jvm
    generator = jvm.java.security.KeyPairGenerator.getInstance("EC")
    generator.initialize(256)
    pair = generator.generateKeyPair()
    # By way of these, since the classes of the keys themselves may not be looked into.
    factory = jvm.java.security.KeyFactory.getInstance("EC")
    encoded = {
        kind: bytes(
            factory.getKeySpec(
                key, jvm.java.lang.Class.forName(f"java.security.spec.{kind}EncodedKeySpec")
            ).getEncoded()
        )
        for kind, key in (("PKCS8", pair.getPrivate()), ("X509", pair.getPublic()))
    }
    body = _certificate_body(encoded["X509"])
    signature = jvm.java.security.Signature.getInstance("SHA256withECDSA")
    signature.initSign(pair.getPrivate())
    signature.update(bytearray(body))
    signed = _der(_BIT_STRING, b"\0" + bytes(signature.sign()))
    return Identity(_der(_SEQUENCE, body + _ECDSA_WITH_SHA256 + signed), encoded["PKCS8"])


class EncryptedSocket:
    """A socket that speaks TLS: one thread may receive while another sends.

    Python's own may be used by one thread at a time only. This one has what `wire` uses of a
    socket.

    Args:
        sock: a connected socket, which it owns from here on.
        context: how TLS is spoken.
        server_side: whether this is the driver's end.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        #: Of the state of TLS; never held while the network is waited for.
        self._state = threading.Lock()
        #: Keeps what TLS wrote in its order.
        self._writing = threading.Lock()

    def shake_hands(self, deadline: float) -> None:
        """Agree on keys.

        Args:
            deadline: on the monotonic clock.

        Raises:
            OSError: the other end does not speak TLS, or is too slow.
        """
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no answer in time")
            self._sock.settimeout(left)
            try:
                self._tls.do_handshake()
                self._flush()
                return
            except ssl.SSLWantReadError:
                self._flush()
                self._fill()

    def certificate(self) -> bytes:
        """The other end's, in DER."""
        return self._tls.getpeercert(binary_form=True) or b""

    def recv(self, size: int) -> bytes:
        """Up to so many bytes; none when the other end has closed."""
        while True:
            with self._state:
                try:
                    return self._tls.read(size)
                except ssl.SSLWantReadError:
                    # What has come so far decrypts to nothing yet.
                    pass
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    return b""
            self._fill()

    def send(self, data: bytes | memoryview) -> int:
        """Send all of it; how much that is."""
        with self._writing:
            with self._state:
                sent = self._tls.write(data)
                encrypted = self._outgoing.read()
            self._sock.sendall(encrypted)
        return sent

    def sendall(self, data: bytes) -> None:
        """The same."""
        self.send(data)

    def settimeout(self, seconds: float | None) -> None:
        """How long a receive or send may wait."""
        self._sock.settimeout(seconds)

    def setsockopt(self, level: int, option: int, value: int | bytes) -> None:
        """An option of the socket."""
        self._sock.setsockopt(level, option, value)

    def shutdown(self, how: int) -> None:
        """End the connection."""
        self._sock.shutdown(how)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()

    def _fill(self) -> None:
        received = self._sock.recv(_READ_BYTES)
        with self._state:
            if received:
                self._incoming.write(received)
            else:
                self._incoming.write_eof()

    def _flush(self) -> None:
        with self._writing:
            with self._state:
                encrypted = self._outgoing.read()
            self._sock.sendall(encrypted)


def encrypted_to_driver(
    sock: socket.socket, certificate: bytes, deadline: float
) -> EncryptedSocket:
    """The worker's end.

    Args:
        sock: a connected socket.
        certificate: the driver's, in DER.
        deadline: on the monotonic clock.

    Raises:
        OSError: the other end does not speak TLS, is too slow, or is not the driver.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # It is compared below, and the other end has to have its key.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    encrypted = EncryptedSocket(sock, context, server_side=False)
    encrypted.shake_hands(deadline)
    if not hmac.compare_digest(encrypted.certificate(), certificate):
        raise ConnectionError("The certificate is not the driver's.")
    return encrypted


def encrypted_to_worker(
    sock: socket.socket, context: ssl.SSLContext, deadline: float
) -> EncryptedSocket:
    """The driver's end; raises as the other one does."""
    encrypted = EncryptedSocket(sock, context, server_side=True)
    encrypted.shake_hands(deadline)
    return encrypted


def _certificate_body(public_key: bytes) -> bytes:
    """What is signed of an X.509 certificate (RFC 5280), version 1."""
    name = _der(_SEQUENCE, _COMMON_NAME + _der(_UTF8, b"millstream"))
    names = _der(_SEQUENCE, _der(_SET, name))
    # Positive, as it has to be.
    number = _der(_INTEGER, b"\x01" + secrets.token_bytes(15))
    always = _der(_SEQUENCE, _ALWAYS)
    return _der(_SEQUENCE, number + _ECDSA_WITH_SHA256 + names + always + names + public_key)


def _der(tag: bytes, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return tag + bytes([size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return tag + bytes([0x80 | len(length)]) + length + content


def _pem(kind: str, der: bytes) -> str:
    text = base64.encodebytes(der).decode()
    return f"-----BEGIN {kind}-----\n{text}-----END {kind}-----\n"
