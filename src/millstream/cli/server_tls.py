"""How a command trusts an application's server over HTTPS, and shows who it is."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeVar

import click

from millstream.config import StreamsConfig
from millstream.errors import ConfigError

F = TypeVar("F", bound=Callable[..., Any])

_PASSWORD_VARIABLE: Final = "MILLSTREAM_KEY_PASSWORD"


class Tls(NamedTuple):
    """Files of PEM for HTTPS: the server's authority; the certificate to show, and its key."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


def tls_options(function: F) -> F:
    """The options: the parameters are those of `Tls`."""
    file = click.Path(exists=True, dir_okay=False)
    for option in (
        click.option(
            "--ca",
            type=file,
            help="Of https: the certificate authority of the server, as PEM; by default that of "
            "the program's settings, or those that the system trusts.",
        ),
        click.option(
            "--cert",
            type=file,
            help="Of https: the certificate to show where the server wants one, as PEM; by default "
            "that of the program's settings.",
        ),
        click.option(
            "--key",
            "tls_key",
            type=file,
            help="The key of --cert, if it is not in the same file. What it is encrypted with "
            f"goes into the variable {_PASSWORD_VARIABLE}.",
        ),
    ):
        function = option(function)
    return function


def context_of(tls: Tls, config: StreamsConfig | None) -> ssl.SSLContext:
    """With what connections are encrypted, as other instances of the application do it.

    Args:
        tls: what the options say.
        config: the settings of the program, if there is one.

    Raises:
        ConfigError: a file cannot be read, or what is in it cannot be used.
    """
    if tls.key is not None and tls.cert is None:
        raise ConfigError("--key goes with --cert: give both.")
    ca, cert, key = tls
    password = os.environ.get(_PASSWORD_VARIABLE)
    if config is not None:
        ca = ca or config.server_tls_ca
        if cert is None and config.server_tls_client_ca is not None:
            cert, key = config.server_tls_certificate, config.server_tls_key
            password = config.server_tls_key_password
    try:
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            # Never asked for at the terminal.
            context.load_cert_chain(cert, key, password or "")
    except (OSError, ValueError) as error:
        shown = "" if cert is None else f", --cert ({cert}), --key ({key}) and {_PASSWORD_VARIABLE}"
        raise ConfigError(
            f"The server cannot be asked over HTTPS: {error}. Look at --ca ({ca}){shown}."
        ) from error
    return context
