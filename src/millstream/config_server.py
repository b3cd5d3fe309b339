"""The settings of the server that an application can have, beside Kafka Streams' own."""

from __future__ import annotations

from millstream.config_connections import ConnectionSettings
from millstream.config_fields import setting


class ServerSettings(ConnectionSettings):
    """What the application's HTTP server is told. Part of `StreamsConfig`."""

    server_port: int | None = setting(
        "server.port",
        default=None,
        kind="int",
        least=0,
        most=65_535,
        doc="Where `start` lets the application answer HTTP; 0 is any free port, None no server.",
    )
    server_host: str = setting(
        "server.host",
        default="127.0.0.1",
        doc="The address on which the server listens: by default this machine alone reaches it.",
    )
    server_token: str | None = setting(
        "server.token",
        default=None,
        doc="What a request must show; by default one is made up at each start. Instances that "
        "ask each other need the same.",
    )
    server_tls_certificate: str | None = setting(
        "server.tls.certificate",
        default=None,
        kind="path",
        doc="PEM file with the certificate chain of the server, which speaks HTTPS then.",
    )
    server_tls_key: str | None = setting(
        "server.tls.key",
        default=None,
        kind="path",
        doc="PEM file with its private key; by default in the certificate's file.",
    )
    server_tls_key_password: str | None = setting(
        "server.tls.key.password", default=None, doc="What the private key is encrypted with."
    )
    server_tls_ca: str | None = setting(
        "server.tls.ca",
        default=None,
        kind="path",
        doc="PEM file with the authorities whose certificates other instances show; by default "
        "those that the system trusts.",
    )
    server_tls_client_ca: str | None = setting(
        "server.tls.client.ca",
        default=None,
        kind="path",
        doc="PEM file with the authorities one of which must have signed a client's certificate; "
        "by default clients need none.",
    )
    server_request_timeout_ms: int = setting(
        "server.request.timeout.ms",
        default=10_000,
        least=1,
        doc="How long a request may take to come, and again to be answered.",
    )
    server_request_max_bytes: int = setting(
        "server.request.max.bytes",
        default=1_048_576,
        least=1,
        doc="The largest body of a request.",
    )
    server_max_concurrent_requests: int = setting(
        "server.max.concurrent.requests",
        default=32,
        least=1,
        doc="How many requests are worked on at a time; those beyond are asked to come again. "
        "Eight times as many connections may be open.",
    )
