"""Settings of the HTTP server that are wrong."""

from __future__ import annotations

from typing import Any

from bad_inputs.case import Case, Family, config, ms
from bad_inputs.nulls import TEXT
from bad_inputs.settings import case, properties, refused

#: Of the networks that documents may name: no machine has it.
NOWHERE = "192.0.2.1"


def serving(id: str, what: str, settings: dict[str, Any], *told: str) -> Case:
    """Settings of which only the start of the server can tell."""
    return Case(id, what, lambda: _served(settings), refused(*told))


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
    "Refused when the `StreamsConfig` is made; what only the machine can tell, and the token, when "
    "the server starts.",
    [
        case(
            "port-negative",
            "a negative server_port",
            {"server_port": -1},
            refused("server_port is -1", "from 0 to 65535"),
        ),
        case(
            "port-large",
            "a server_port above all ports",
            {"server_port": 65_536},
            refused("server_port is 65536", "from 0 to 65535"),
        ),
        case(
            "port-text",
            "a server_port as text",
            {"server_port": "8080"},
            refused("server_port is '8080'", "an int"),
        ),
        properties(
            "port-property",
            "a server.port that is no number",
            {"server.port": "http"},
            refused("server.port is 'http'", "a number"),
        ),
        case(
            "host-none",
            "None as the server_host",
            {"server_host": None},
            refused("server_host must not be None"),
        ),
        case(
            "timeout",
            "no time for a request",
            {"server_request_timeout_ms": 0},
            refused("server_request_timeout_ms is 0", "at least 1"),
        ),
        case(
            "bytes",
            "no bytes for a request",
            {"server_request_max_bytes": 0},
            refused("server_request_max_bytes is 0", "at least 1"),
        ),
        case(
            "requests",
            "no requests at a time",
            {"server_max_concurrent_requests": 0},
            refused("server_max_concurrent_requests is 0", "at least 1"),
        ),
        case(
            "key-alone",
            "a private key without a certificate",
            {"server_tls_key": "key.pem"},
            refused("server_tls_key is given without server_tls_certificate", "plain HTTP"),
        ),
        case(
            "client-ca-alone",
            "authorities of clients without a certificate",
            {"server_tls_client_ca": "clients.pem", "server_tls_ca": "servers.pem"},
            refused(
                "server_tls_ca and server_tls_client_ca is given without server_tls_certificate"
            ),
        ),
        case(
            "certificate-number",
            "a number as the certificate's file",
            {"server_tls_certificate": 5},
            refused("server_tls_certificate is 5", "a path"),
        ),
        serving(
            "certificate-missing",
            "a certificate's file that is not there",
            {"server_tls_certificate": "/nowhere/server.pem"},
            *("cannot use its certificate", "server_tls_certificate (/nowhere/server.pem)"),
        ),
        serving(
            "authorities-missing",
            "a file of authorities that is not there",
            {"server_tls_certificate": "server.pem", "server_tls_ca": "/nowhere/ca.pem"},
            *("cannot be reached over HTTPS", "server_tls_ca (/nowhere/ca.pem)"),
        ),
        case(
            "token-bytes",
            "a server_token of bytes, which are not shown",
            {"server_token": b"one-that-is-used-elsewhere"},
            refused("server_token is '********' (bytes)", "a string"),
        ),
        serving(
            "token-short",
            "a server_token of seven characters",
            {"server_token": "1234567"},
            *("server_token must have at least 8", "all that keeps others out"),
        ),
        serving(
            "token-blank",
            "a server_token with a blank",
            {"server_token": "not a token"},
            "server_token must not hold spaces",
        ),
        serving(
            "token-letters",
            "a server_token with letters beyond ASCII",
            {"server_token": "schlüssel-für-alles"},
            *("server_token must have at least 8", "ASCII"),
        ),
        serving(
            "host-elsewhere",
            "a server_host that is no address of this machine",
            {"server_host": NOWHERE},
            *(f"cannot listen on {NOWHERE}", "server_port"),
        ),
    ],
)
