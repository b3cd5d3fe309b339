"""A client for the HTTP server of an application, and the search for servers."""

from __future__ import annotations

import glob
import http.client
import json
import os
import ssl
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from millstream.cli.programs.topologies import config_in
from millstream.config.streams_config import StreamsConfig
from millstream.errors import ConfigError, StreamsError
from millstream.server.address import ADDRESS_FILE, is_loopback, is_served, read_address
from millstream.state.directories.state_directory import resolve_state_dir

F = TypeVar("F", bound=Callable[..., Any])

_TIMEOUT_S: Final = 30.0
#: Larger than any page of results.
_MAX_RESPONSE_BYTES: Final = 64 * 1024 * 1024

DEFAULT_STATE_DIR: Final = Path(
    next(each.default for each in StreamsConfig.settings() if each.name == "state_dir")
)
_PASSWORD_VARIABLE: Final = "MILLSTREAM_KEY_PASSWORD"
_TEMPORARY_PREFIX: Final = "millstream-with-broker-"


def temporary_state_dir() -> tempfile.TemporaryDirectory[str]:
    """Create a state directory for an application with a temporary broker."""
    return tempfile.TemporaryDirectory(prefix=_TEMPORARY_PREFIX, ignore_cleanup_errors=True)


def temporary_state_dirs() -> list[Path]:
    return sorted(Path(tempfile.gettempdir()).glob(f"{_TEMPORARY_PREFIX}*"))


class TlsFiles(NamedTuple):
    """PEM files for HTTPS: the server's CA, the client certificate, and its key."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None


def tls_options(function: F) -> F:
    """Add the options for HTTPS: the parameters `ca`, `cert` and `tls_key`."""
    file = click.Path(exists=True, dir_okay=False)
    for option in (
        click.option(
            "--ca",
            type=file,
            help="For HTTPS: a PEM file with the server's certificate authority; by default the "
            "one in the program's settings, or else the system's.",
        ),
        click.option(
            "--cert",
            type=file,
            help="For HTTPS: a PEM file with the client certificate, if the server requires one; "
            "by default the one in the program's settings.",
        ),
        click.option(
            "--key",
            "tls_key",
            type=file,
            help="The key of --cert, if it is not in the same file. Its password is read from the "
            f"environment variable {_PASSWORD_VARIABLE}.",
        ),
    ):
        function = option(function)
    return function


def context_of(tls: TlsFiles, config: StreamsConfig | None) -> ssl.SSLContext:
    """Return the TLS context for connections to a server.

    Files that are not passed default to those that the application's instances use. Raises
    ConfigError if a file cannot be read or used.
    """
    if tls.key is not None and tls.cert is None:
        raise ConfigError("--key requires --cert.")
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
            # With None, OpenSSL would prompt for a password.
            context.load_cert_chain(cert, key, password or "")
    except (OSError, ValueError) as error:
        shown = "" if cert is None else f", --cert ({cert}), --key ({key}) and {_PASSWORD_VARIABLE}"
        raise ConfigError(
            f"Cannot connect to the server over HTTPS: {error}. Check --ca ({ca}){shown}."
        ) from error
    return context


class ServerLocation(NamedTuple):
    program: str | None = None
    url: str | None = None
    token: str | None = None
    application_id: str | None = None
    state_dir: str | None = None
    ca: str | None = None
    cert: str | None = None
    tls_key: str | None = None

    @property
    def tls(self) -> TlsFiles:
        return TlsFiles(self.ca, self.cert, self.tls_key)


def server_options(function: F) -> F:
    """Add the options for locating a server.

    The parameters are the fields of `ServerLocation`.
    """
    for option in (
        click.option(
            "--app",
            "program",
            metavar="PROGRAM",
            type=click.Path(),
            help="The program that runs the server, for its application id and state directory.",
        ),
        click.option(
            "--url", help="The URL of the server; by default from the application's address file."
        ),
        click.option(
            "--token",
            envvar="MILLSTREAM_TOKEN",
            show_envvar=True,
            help="The token of the server; by default from the application's address file.",
        ),
        tls_options,
        click.option("--application-id", metavar="ID", help="The application id of the server."),
        click.option(
            "--state-dir",
            type=click.Path(file_okay=False),
            help=f"The application's state directory; by default {DEFAULT_STATE_DIR}.",
        ),
    ):
        function = option(function)
    return function


class ServerError(StreamsError):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


class NoServerError(StreamsError):
    """No server was found, or more than one."""


class ServerClient:
    """Sends requests to a server. An empty token is not sent."""

    def __init__(
        self, url: str, token: str, tls: TlsFiles | None = None, config: StreamsConfig | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self.token = token
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise StreamsError(f"{url!r} is not a valid URL: use http://HOST:PORT.")
        handlers: list[urllib.request.BaseHandler] = [_NoRedirects()]
        if is_loopback(parts.hostname):
            # The token must not go through a proxy that is configured for other hosts.
            handlers.append(urllib.request.ProxyHandler({}))
        if parts.scheme == "https":
            handlers.append(
                urllib.request.HTTPSHandler(context=context_of(tls or TlsFiles(), config))
            )
        self._opener = urllib.request.build_opener(*handlers)

    @property
    def console(self) -> str:
        """The URL of the console. Browsers do not send the part after `#` to the server."""
        token = urllib.parse.quote(self.token, safe="")
        return f"{self.url}/#token={token}" if token else f"{self.url}/"

    def get(self, *path: str, **query: str | int | bool | None) -> Any:
        """Return the JSON document at a path.

        Query parameters that are None are omitted. Raises ServerError if the server returns an
        error; StreamsError if there is no response, or none from the server of an application.
        """
        address = f"{self.url}/{'/'.join(urllib.parse.quote(part, safe='') for part in path)}"
        parameters = {
            name.rstrip("_"): str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in query.items()
            if value is not None
        }
        if parameters:
            address += f"?{urllib.parse.urlencode(parameters)}"
        request = urllib.request.Request(address, headers={"Accept": "application/json"})
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                status, body = answer.status, answer.read(_MAX_RESPONSE_BYTES + 1)
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            hint = "Is the application running, with server_port set?"
            if self.url.startswith("https:") and not isinstance(reason, ConnectionRefusedError):
                hint = (
                    "HTTPS may require the server's certificate authority (--ca) and a client "
                    "certificate (--cert and --key, or --app to use those of its settings)."
                )
            raise StreamsError(f"No server responds at {self.url}: {reason}. {hint}") from error
        if not 200 <= status < 300:
            raise self._error_of(status, body)
        return self._document(body)

    def _document(self, body: bytes) -> Any:
        if len(body) > _MAX_RESPONSE_BYTES:
            raise StreamsError(f"The response of {self.url} is too large.")
        try:
            return json.loads(body)
        except ValueError as error:
            raise StreamsError(
                f"The server at {self.url} does not belong to an application: it does not send "
                "JSON."
            ) from error

    def _error_of(self, status: int, body: bytes) -> StreamsError:
        try:
            error = json.loads(body)["error"]
            code, message = str(error["code"]), str(error["message"])
        except (ValueError, KeyError, TypeError):
            return StreamsError(
                f"{self.url} responds with HTTP {status}, but not like the server of an "
                "application."
            )
        retry_ms = error.get("retry_after_ms")
        hint = "" if retry_ms is None else f" Try again in {int(retry_ms) / 1_000:g} s."
        if status == 401:
            hint = " Pass --token, or run the command as the user of the application."
        return ServerError(status, code, f"{message}{hint}")


def find_server(options: ServerLocation, config: StreamsConfig | None = None) -> ServerClient:
    """Return a client for the server at a URL, or for this user's application.

    Raises NoServerError if no server is found, or more than one; StreamsError if the URL is
    invalid.
    """
    if options.program is not None:
        config = config_in(options.program)
    if options.url is not None:
        return ServerClient(options.url, options.token or "", options.tls, config)
    application_id, state_dir = options.application_id, options.state_dir
    if config is not None:
        application_id = application_id or config.application_id
        state_dir = state_dir or config.state_dir
    name = "*" if application_id is None else glob.escape(application_id)
    folders = [resolve_state_dir(state_dir or DEFAULT_STATE_DIR), *temporary_state_dirs()]
    addresses = {
        path.parent: address
        for folder in folders
        for path in sorted(folder.glob(f"{name}/{ADDRESS_FILE}"))
        if (address := read_address(path.parent)) is not None
    }
    served = {folder: address for folder, address in addresses.items() if is_served(folder)}
    if len(served) != 1:
        label = application_id or "any application"
        found = (
            f"several servers are running: {_listed(served)}"
            if served
            else f"no server of {label} was found"
        )
        if addresses and not served:
            found = f"the process of {_listed(addresses)} has ended"
        raise NoServerError(
            f"Cannot select a server: in {folders[0]}, {found}. An application with server_port "
            "writes the address of its server to its state directory, for other programs of the "
            "same user. Pass --application-id, --app or --state-dir, or --url and --token."
        )
    (address,) = served.values()
    return ServerClient(address.url, options.token or address.token, options.tls, config)


def _listed(served: Iterable[Path]) -> str:
    return ", ".join(map(str, served))


class _NoRedirects(urllib.request.HTTPErrorProcessor):
    """Returns redirects instead of following them.

    The server of an application never redirects, and the token must not be sent to other hosts.
    """

    def http_response(self, request: Any, response: Any) -> Any:
        return response

    https_response = http_response
