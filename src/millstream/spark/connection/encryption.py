"""Encrypts the control connection between machines with TLS.

Each application instance creates its own self-signed certificate. Python's standard library cannot
create certificates, but Spark always has a JVM. Java creates the key pair and the signature, and
this module encodes the certificate. The certificate contains no host name and never expires,
because a stream thread compares it byte by byte with the certificate in its `ThreadPlan`.
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

# DER tags, and the constant parts of a certificate.
_SEQUENCE, _SET, _INTEGER, _BIT_STRING, _UTF8 = b"\x30", b"\x31", b"\x02", b"\x03", b"\x0c"
_ECDSA_WITH_SHA256: Final = bytes.fromhex("300a06082a8648ce3d040302")
_COMMON_NAME: Final = bytes.fromhex("0603550403")
#: The validity, from 2000-01-01 to 9999-12-31, the end date of certificates without expiration.
_ALWAYS: Final = b"\x17\x0d000101000000Z" + b"\x18\x0f99991231235959Z"


@dataclass(frozen=True)
class TlsIdentity:
    """A certificate (DER), which is not secret, and its private key (PKCS #8 in DER)."""

    certificate: bytes
    key: bytes = field(repr=False)

    def server_context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.num_tickets = 0
        both = _pem("PRIVATE KEY", self.key) + _pem("CERTIFICATE", self.certificate)
        # Python's `ssl` only reads keys from files. Only the owner can read this file, and it is
        # deleted immediately.
        handle, path = tempfile.mkstemp(prefix="millstream-")
        try:
            os.write(handle, both.encode())
            os.close(handle)
            context.load_cert_chain(path)
        finally:
            os.unlink(path)
        return context


def make_tls_identity(session: SparkSession) -> TlsIdentity:
    """Create a key pair and a certificate in the JVM of a classic session."""
    jvm: Any = session.sparkContext._jvm
    generator = jvm.java.security.KeyPairGenerator.getInstance("EC")
    generator.initialize(256)
    pair = generator.generateKeyPair()
    # The classes of the keys are in a Java package that is not exported, so use a KeyFactory.
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
    return TlsIdentity(_der(_SEQUENCE, body + _ECDSA_WITH_SHA256 + signed), encoded["PKCS8"])


class EncryptedSocket:
    """A TLS socket on which one thread may receive while another thread sends.

    Python's `SSLSocket` allows only one thread at a time. This class owns a connected socket, and
    has the socket methods that `control_protocol` uses.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, server_side: bool) -> None:
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        #: Protects the TLS state; never held during network I/O.
        self._state = threading.Lock()
        #: Preserves the order of TLS records.
        self._writing = threading.Lock()
        self.settimeout, self.setsockopt = sock.settimeout, sock.setsockopt
        self.shutdown, self.close = sock.shutdown, sock.close

    def do_handshake(self, deadline: float) -> None:
        """Perform the handshake.

        Raises an `OSError` at the deadline, which is a time of the monotonic clock.
        """
        while True:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("no response in time")
            self._sock.settimeout(left)
            try:
                self._tls.do_handshake()
                self._flush()
                return
            except ssl.SSLWantReadError:
                self._flush()
                self._fill()

    def certificate(self) -> bytes:
        """Return the peer's certificate in DER."""
        return self._tls.getpeercert(binary_form=True) or b""

    def recv(self, size: int) -> bytes:
        """Receive up to `size` bytes; return b"" if the peer has closed the connection."""
        while True:
            with self._state:
                try:
                    return self._tls.read(size)
                except ssl.SSLWantReadError:
                    # The data received so far is not a complete TLS record.
                    pass
                except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                    return b""
            self._fill()

    def send(self, data: bytes | memoryview) -> int:
        """Send all of the data, and return its size."""
        with self._writing:
            with self._state:
                sent = self._tls.write(data)
                encrypted = self._outgoing.read()
            self._sock.sendall(encrypted)
        return sent

    sendall = send

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


def wrap_client_socket(sock: socket.socket, certificate: bytes, deadline: float) -> EncryptedSocket:
    """Encrypt a connection to the driver.

    Raises an `OSError` if the driver does not have this certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The certificate is compared below, and the handshake proves possession of its key.
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    encrypted = EncryptedSocket(sock, context, server_side=False)
    encrypted.do_handshake(deadline)
    if not hmac.compare_digest(encrypted.certificate(), certificate):
        raise ConnectionError("The peer does not have the driver's certificate.")
    return encrypted


def _certificate_body(public_key: bytes) -> bytes:
    """Encode the signed part of an X.509 version 1 certificate (RFC 5280)."""
    name = _der(_SEQUENCE, _COMMON_NAME + _der(_UTF8, b"millstream"))
    names = _der(_SEQUENCE, _der(_SET, name))
    # The leading byte makes the serial number positive, as RFC 5280 requires.
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
