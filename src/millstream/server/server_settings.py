"""Settings of the server."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError


@dataclass(frozen=True)
class TlsSettings:
    """The server's TLS certificate and the CA for client certificates, as PEM files.

    Without `key`, the key is in the certificate's file. Without `client_ca`, clients need no
    certificate.
    """

    certificate: str
    key: str | None = None
    key_password: str | None = None
    client_ca: str | None = None


@dataclass(frozen=True)
class ServerOptions:
    """The address, the token and the limits of a server.

    Port 0 selects a free port. The timeout applies to receiving a request, and again to processing
    it.
    """

    host: str
    port: int
    token: str
    tls: TlsSettings | None = None
    timeout_ms: int = 10_000
    max_bytes: int = 1_048_576
    max_requests: int = 32


def server_options(config: StreamsConfig, *, host: str, port: int, token: str) -> ServerOptions:
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


def client_tls_context(config: StreamsConfig) -> ssl.SSLContext | None:
    """Create the TLS context for connections to other instances; None for plain HTTP."""
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
            f"Other instances cannot be reached over HTTPS: {error}. Check server_tls_ca "
            f"({config.server_tls_ca}), server_tls_certificate ({certificate}) and its key."
        ) from error
    return context
