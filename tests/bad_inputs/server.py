"""Invalid settings of the HTTP server."""

from __future__ import annotations

from typing import Any

from bad_inputs.case import Case, Family, config, ms
from bad_inputs.nulls import TEXT
from bad_inputs.settings import case, properties, raises

#: An address reserved for documentation, which no machine has.
NOWHERE = "192.0.2.1"


def serving(id: str, description: str, settings: dict[str, Any], *parts: str) -> Case:
    """Create a case that fails when the server starts."""
    return Case(id, description, lambda: _served(settings), raises(*parts))


def _served(settings: dict[str, Any]) -> None:
    builder = ms.StreamsBuilder()
    builder.stream("in", **TEXT).to("out")
    streams = ms.KafkaStreams(builder.build(), config(**settings))
    try:
        streams.serve()
    finally:
        streams.close()


FAMILY = Family(
    "Settings of the server",
    "Rejected when the `StreamsConfig` is created. Files, addresses and the token are checked when "
    "the server starts.",
    [
        case(
            "port-negative",
            "a negative server_port",
            {"server_port": -1},
            raises("server_port is -1", "from 0 to 65535"),
        ),
        case(
            "port-large",
            "a server_port above 65535",
            {"server_port": 65_536},
            raises("server_port is 65536", "from 0 to 65535"),
        ),
        case(
            "port-text",
            "a server_port as text",
            {"server_port": "8080"},
            raises("server_port is '8080'", "an int"),
        ),
        properties(
            "port-property",
            "a server.port that is not a number",
            {"server.port": "http"},
            raises("server.port is 'http'", "a number"),
        ),
        case(
            "host-none",
            "None as the server_host",
            {"server_host": None},
            raises("server_host must not be None"),
        ),
        case(
            "timeout",
            "a request timeout of zero",
            {"server_request_timeout_ms": 0},
            raises("server_request_timeout_ms is 0", "at least 1"),
        ),
        case(
            "bytes",
            "a maximum request size of zero",
            {"server_request_max_bytes": 0},
            raises("server_request_max_bytes is 0", "at least 1"),
        ),
        case(
            "requests",
            "zero concurrent requests",
            {"server_max_concurrent_requests": 0},
            raises("server_max_concurrent_requests is 0", "at least 1"),
        ),
        case(
            "key-alone",
            "a private key without a certificate",
            {"server_tls_key": "key.pem"},
            raises("server_tls_certificate is required with server_tls_key", "plain HTTP"),
        ),
        case(
            "client-ca-alone",
            "certificate authorities without a certificate",
            {"server_tls_client_ca": "clients.pem", "server_tls_ca": "servers.pem"},
            raises(
                "server_tls_certificate is required with server_tls_ca and server_tls_client_ca"
            ),
        ),
        case(
            "certificate-number",
            "a number as the certificate file",
            {"server_tls_certificate": 5},
            raises("server_tls_certificate is 5", "a path"),
        ),
        serving(
            "certificate-missing",
            "a certificate file that does not exist",
            {"server_tls_certificate": "/nowhere/server.pem"},
            *("cannot use its certificate", "server_tls_certificate (/nowhere/server.pem)"),
        ),
        serving(
            "authorities-missing",
            "a CA file that does not exist",
            {"server_tls_certificate": "server.pem", "server_tls_ca": "/nowhere/ca.pem"},
            *("cannot be reached over HTTPS", "server_tls_ca (/nowhere/ca.pem)"),
        ),
        case(
            "token-bytes",
            "a server_token of bytes, which the message hides",
            {"server_token": b"one-that-is-used-elsewhere"},
            raises("server_token is '********' (bytes)", "a string"),
        ),
        serving(
            "token-short",
            "a server_token of seven characters",
            {"server_token": "1234567"},
            *("server_token must have at least 8", "nothing else protects the server"),
        ),
        serving(
            "token-blank",
            "a server_token with a space",
            {"server_token": "not a token"},
            "server_token must not contain spaces",
        ),
        serving(
            "token-letters",
            "a server_token with non-ASCII letters",
            {"server_token": "schlüssel-für-alles"},
            *("server_token must have at least 8", "ASCII"),
        ),
        serving(
            "host-elsewhere",
            "a server_host that is not an address of this machine",
            {"server_host": NOWHERE},
            *(f"cannot listen on {NOWHERE}", "server_port"),
        ),
    ],
)
