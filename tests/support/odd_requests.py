"""Malformed and random HTTP requests that no regular client sends."""

from __future__ import annotations

import random
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote_from_bytes

_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3}) ")

#: A valid request apart from its target: method, headers and body are well-formed.
_VALID: Final = re.compile(
    rb"GET /[!-~]* HTTP/1\.[01]\r\nhost: here\r\nauthorization: Bearer [!-~]+"
    rb"(\r\nconnection: close)?\r\n\r\n"
)

#: Valid paths with placeholders for random text.
_PATHS: Final = (
    "/stores/counts/keys/{}",
    "/stores/{}/keys/ann",
    "/stores/counts/range?from={}&limit=2",
    "/stores/counts/range?cursor={}",
    "/stores/counts/range?limit={}",
    "/stores/numbers/keys/{}?key_as=json",
    "/stores/numbers/keys/{}?key_as=base64",
    "/stores/carts/keys/{}",
    "/stores/minutes/windows/{}?from=0",
    "/stores/minutes/windows?to={}",
    "/stores/visits/sessions/{}",
    "/stores/prices/versions/{}?as_of=1",
    "/metadata/stores/counts/keys/{}",
    "/metadata/{}",
    "/assets/{}",
    "/console/{}",
    "/{}",
    "/health/live?{}",
)
_TEXTS: Final = (
    *("", "..", "../../etc/passwd", "%2e%2e%2f", "....//", "a/../b", "//", "\\..\\", "%00", "%0a"),
    *("%", "%%", "%GG", "%ff%fe", "%c0%af", "%ed%a0%80", "%F4%90%80%80", "\u202e", "\U0001f600"),
    *("NaN", "-0", "1e999", "9" * 400, "0x10", "1_000", " 7", "7 ", "true", "null", "[]", "{}"),
    *('{"a":' * 60 + "1" + "}" * 60, "[" * 2_000, "'; drop table", "<script>", "${jndi:ldap://x}"),
    *("AAAA", "lqgzZTJlNDIwOAHEA2FubgAAAQ", "=" * 40, "a" * 9_000, "&&&&", "a=b=c", "?", "#", "+"),
)
_METHODS: Final = (
    *("GET", "GET", "GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT"),
    *("get", "PROPFIND", "X" * 300, "G\u00cbT", "", "GET GET"),
)
_HEADERS: Final = (
    *("content-length: -1", "content-length: " + "9" * 20),
    "content-length: 1\r\ncontent-length: 2",
    *("transfer-encoding: chunked", "transfer-encoding: gzip, chunked", "transfer-encoding: x"),
    *("content-length: 5\r\ntransfer-encoding: chunked", "expect: 100-continue", "expect: x"),
    *("upgrade: websocket\r\nconnection: upgrade", "upgrade: h2c", "host: evil\r\nhost: worse"),
    *("x: " + "y" * 20_000, "\r\n".join(f"x{n}: y" for n in range(200)), "x y: z", ": z", "x:\0"),
    *(" folded: x", "x: \xff\xfe", "if-none-match: *", "range: bytes=0-", "accept-encoding: br"),
    *("connection: close, keep-alive", "te: trailers", "content-type: multipart/form-data"),
)
_BODIES: Final = (
    *(b"", b"{}", b"[]", b"{", b"\x80", b"\x81\xa5store\xc0", b"\xff" * 100, b"a" * 70_000),
    *(b'{"partition_concurrency": -1}', b'{"properties": {}}', b"0\r\n\r\n", b"5\r\nhello\r\n"),
    *(b"f" * 18 + b"\r\nx", b"-1\r\n", b"\xdf" + b"\xff" * 4, b"\x82\xa6cursor\xa1x\xa5close\xc3"),
)
_HELLOS: Final = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    bytes.fromhex("160301020001 0001fc0303".replace(" ", "")) + b"\0" * 64,
    b"GET /\r\n\r\n",
    b"GET / HTTP/0.9\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"\r\n\r\n\r\n",
    b"\0" * 64,
    b"HELO x\r\n",
)


@dataclass(frozen=True)
class OddRequest:
    """A request.

    Args:
        is_authorized: whether it contains the valid token.
        is_valid: whether it is well-formed HTTP with the valid token, whatever its target.
    """

    data: bytes
    is_authorized: bool
    is_valid: bool = False


def odd_request(seed: int, token: str) -> OddRequest:
    """Generate the request with this number.

    Args:
        token: the valid one, which about half of the requests contain.
    """
    dice = random.Random(seed)
    kind = dice.random()
    if kind < 0.04:
        return OddRequest(dice.choice(_HELLOS), is_authorized=False)
    if kind < 0.08:
        return OddRequest(dice.randbytes(dice.randrange(1, 400)), is_authorized=False)
    shows = dice.random() < 0.5
    data = _plausible(dice, token if shows else _wrong(dice, token))
    is_valid = shows and _VALID.fullmatch(data) is not None
    if dice.random() < 0.3:
        data, is_valid = _mutated(dice, data), False
    return OddRequest(data, shows, is_valid)


def answer_to(port: int, request: bytes, timeout_s: float) -> int | None:
    """Send a request to a server on this machine and return the response's status, or None if it
    closes the connection.

    Raises:
        TimeoutError: neither happens.
        AssertionError: the response is not HTTP.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
        # The server may close the connection before it has read everything.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(request)
        data = b""
        try:
            while b"\r\n\r\n" not in data and (more := connection.recv(65_536)):
                data += more
        except ConnectionResetError:
            return None
    if not data:
        return None
    found = _STATUS.match(data)
    assert found, data[:200]
    return int(found[1])


def _plausible(dice: random.Random, token: str) -> bytes:
    path = dice.choice(_PATHS).format(_text(dice))
    method = dice.choice(_METHODS) if dice.random() < 0.3 else "GET"
    body = b""
    if dice.random() < 0.2:
        method, path = dice.choice(
            (("PUT", "/subscription/properties"), ("POST", "/internal/query"), ("GET", "/stores"))
        )
        body = dice.choice(_BODIES)
    lines = [f"{method} {path} HTTP/1.{dice.choice('1110')}", "host: here"]
    lines.append(f"authorization: {dice.choice(('Bearer', 'Bearer', 'bearer'))} {token}")
    if dice.random() < 0.3:
        lines.append(dice.choice(_HEADERS))
    elif body:
        lines.append(f"content-length: {len(body)}")
    if dice.random() < 0.7:
        lines.append("connection: close")
    return "\r\n".join(lines).encode("utf-8", "replace") + b"\r\n\r\n" + body


def _text(dice: random.Random) -> str:
    if dice.random() < 0.3:
        return quote_from_bytes(dice.randbytes(dice.randrange(1, 30)), safe="")
    text = dice.choice(_TEXTS)
    return text if dice.random() < 0.5 else quote_from_bytes(text.encode(), safe="")


def _wrong(dice: random.Random, token: str) -> str:
    altered = [token[:-1], token + "x", token.upper(), f"{token} {token}"]
    return dice.choice(["", "x", *altered, "\xe4" * 10, "\0", "null"])


def _mutated(dice: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(dice.randrange(1, 6)):
        place = dice.randrange(len(changed)) if changed else 0
        match dice.randrange(4):
            case 0 if changed:
                changed[place] = dice.randrange(256)
            case 1:
                changed[place:place] = dice.randbytes(dice.randrange(1, 9))
            case 2:
                del changed[place : place + dice.randrange(1, 40)]
            case _:
                del changed[place:]
    return bytes(changed)
