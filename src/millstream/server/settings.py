"""What a server is told when it starts."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from millstream.config import StreamsConfig
from millstream.errors import ConfigError


@dataclass(frozen=True)
class TlsSettings:
    """How the server proves who it is, and what clients must show.

    Args:
        certificate: PEM file with its certificate chain.
        key: PEM file with its key; None if that is in the same file.
        key_password: what the key is encrypted with.
        client_ca: PEM file with the authorities of clients; None if these need no certificates.
    """

    certificate: str
    key: str | None = None
    key_password: str | None = None
    client_ca: str | None = None


@dataclass(frozen=True)
class ServerOptions:
    """Where a server listens, whom it answers, and how much it does at a time.

    Args:
        host: the address.
        port: 0 for any that is free.
        token: what requests must show.
        tls: None for plain HTTP.
        timeout_ms: how long a request may take to come, and again to be answered, in milliseconds.
        max_bytes: the largest body of a request.
        max_requests: how many are worked on at a time.
    """

    host: str
    port: int
    token: str
    tls: TlsSettings | None = None
    timeout_ms: int = 10_000
    max_bytes: int = 1_048_576
    max_requests: int = 32


def options_of(config: StreamsConfig, *, host: str, port: int, token: str) -> ServerOptions:
    """What the settings of an application say, but for where and for whom."""
    tls = None
    if config.server_tls_certificate is not None:
        tls = TlsSettings(
            config.server_tls_certificate,
            config.server_tls_key,
            config.server_tls_key_password,
            config.server_tls_client_ca,
        )
    return ServerOptions(
        host,
        port,
        token,
        tls,
        config.server_request_timeout_ms,
        config.server_request_max_bytes,
        config.server_max_concurrent_requests,
    )


def peers_context(config: StreamsConfig) -> ssl.SSLContext | None:
    """With what connections to other instances are encrypted: as theirs are with this one.

    Raises:
        ConfigError: a file cannot be read, or what is in it cannot be used.
    """
    certificate = config.server_tls_certificate
    if certificate is None:
        return None
    try:
        context = ssl.create_default_context(cafile=config.server_tls_ca)
        if config.server_tls_client_ca is not None:
            password = config.server_tls_key_password or ""
            context.load_cert_chain(certificate, config.server_tls_key, password)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"Other instances cannot be reached over HTTPS: {error}. Look at server_tls_ca "
            f"({config.server_tls_ca}), server_tls_certificate ({certificate}) and its key."
        ) from error
    return context
