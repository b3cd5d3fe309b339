"""The HTTP server of a running application, asked by a command: where it is, and its answers."""

from __future__ import annotations

import glob
import http.client
import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import click

from millstream.cli.programs.state_dirs import DEFAULT_STATE_DIR, passing_state_dirs
from millstream.cli.programs.topologies import config_of
from millstream.cli.server_tls import Tls, context_of, tls_options
from millstream.config import StreamsConfig
from millstream.errors import StreamsError
from millstream.server.address import FILE, is_loopback, is_served, read_address
from millstream.state.directories.host_path import state_dir_here

F = TypeVar("F", bound=Callable[..., Any])

_TIMEOUT_S: Final = 30.0
#: More than a page of the server can be.
_ANSWER_BYTES_MOST: Final = 64 * 1024 * 1024


class Sought(NamedTuple):
    """What the options say of the server."""

    program: str | None = None
    url: str | None = None
    token: str | None = None
    application_id: str | None = None
    state_dir: str | None = None
    ca: str | None = None
    cert: str | None = None
    tls_key: str | None = None

    @property
    def tls(self) -> Tls:
        """What of it is about HTTPS."""
        return Tls(self.ca, self.cert, self.tls_key)


def server_options(function: F) -> F:
    """The options of a command that asks a server: its parameters are those of `Sought`."""
    for option in (
        click.option(
            "--app",
            "program",
            metavar="PROGRAM",
            type=click.Path(),
            help="The program whose server is asked, for its application id and state directory.",
        ),
        click.option("--url", help="Where the server is; by default what the application tells."),
        click.option(
            "--token",
            envvar="MILLSTREAM_TOKEN",
            show_envvar=True,
            help="What the server wants to be shown; by default what the application tells.",
        ),
        tls_options,
        click.option("--application-id", metavar="ID", help="Whose server is asked."),
        click.option(
            "--state-dir",
            type=click.Path(file_okay=False),
            help=f"Where it keeps its state; by default {DEFAULT_STATE_DIR}.",
        ),
    ):
        function = option(function)
    return function


class ServerError(StreamsError):
    """What a server says is wrong.

    Args:
        status: of HTTP.
        code: what it is, for programs.
        told: what it is, for people.
    """

    def __init__(self, status: int, code: str, told: str) -> None:
        super().__init__(told)
        self.status = status
        self.code = code


class NoServerError(StreamsError):
    """Nobody told of a server, or several did: it is not known whom to ask."""


class Server:
    """Asks a server.

    Args:
        url: where it is.
        token: what it wants to be shown; empty for nothing.
        tls: what the options say for https.
        config: the settings of its program, as far as they are known: for https as well.
    """

    def __init__(
        self, url: str, token: str, tls: Tls | None = None, config: StreamsConfig | None = None
    ) -> None:
        self.url = url.rstrip("/")
        self.token = token
        parts = urllib.parse.urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise StreamsError(f"{url!r} is no address: give http://HOST:PORT.")
        handlers: list[urllib.request.BaseHandler] = [_AsAnswered()]
        if is_loopback(parts.hostname):
            # The token must not go through a proxy that was set for other places.
            handlers.append(urllib.request.ProxyHandler({}))
        if parts.scheme == "https":
            handlers.append(urllib.request.HTTPSHandler(context=context_of(tls or Tls(), config)))
        self._opener = urllib.request.build_opener(*handlers)

    @property
    def console(self) -> str:
        """The console's page; what stands behind `#` is not sent to the server."""
        token = urllib.parse.quote(self.token, safe="")
        return f"{self.url}/#token={token}" if token else f"{self.url}/"

    def get(self, *path: str, **query: str | int | bool | None) -> Any:
        """The document at a path.

        Args:
            path: its parts, not quoted.
            query: what is asked with it; None is left out.

        Raises:
            ServerError: the server answers with an error.
            StreamsError: nobody answers, or what answers is no server of an application.
        """
        address = f"{self.url}/{'/'.join(urllib.parse.quote(part, safe='') for part in path)}"
        asked = {
            name.rstrip("_"): str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in query.items()
            if value is not None
        }
        if asked:
            address += f"?{urllib.parse.urlencode(asked)}"
        request = urllib.request.Request(address, headers={"Accept": "application/json"})
        if self.token:
            request.add_header("Authorization", f"Bearer {self.token}")
        try:
            with self._opener.open(request, timeout=_TIMEOUT_S) as answer:
                status, body = answer.status, answer.read(_ANSWER_BYTES_MOST + 1)
        except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
            reason = getattr(error, "reason", None) or error
            hint = "Is the application running, with server_port set?"
            if self.url.startswith("https:") and not isinstance(reason, ConnectionRefusedError):
                hint = (
                    "Over HTTPS the server's authority may have to be told (--ca), and who asks "
                    "(--cert and --key, or --app for those of its settings)."
                )
            raise StreamsError(f"No server answers at {self.url}: {reason}. {hint}") from error
        if not 200 <= status < 300:
            raise self._told(status, body)
        return self._document(body)

    def _document(self, body: bytes) -> Any:
        if len(body) > _ANSWER_BYTES_MOST:
            raise StreamsError(f"The answer of {self.url} is too large.")
        try:
            return json.loads(body)
        except ValueError as error:
            raise StreamsError(
                f"What answers at {self.url} is no server of an application: it sends no JSON."
            ) from error

    def _told(self, status: int, body: bytes) -> StreamsError:
        try:
            error = json.loads(body)["error"]
            code, message = str(error["code"]), str(error["message"])
        except (ValueError, KeyError, TypeError):
            return StreamsError(
                f"{self.url} answers with HTTP {status}, and not as a server of an application."
            )
        retry_ms = error.get("retry_after_ms")
        hint = "" if retry_ms is None else f" Try again in {int(retry_ms) / 1_000:g} s."
        if status == 401:
            hint = " Give --token, or ask as the user who runs the application."
        return ServerError(status, code, f"{message}{hint}")


def server_of(sought: Sought, config: StreamsConfig | None = None) -> Server:
    """The server that is meant: by its address, or by what a served application tells its user.

    Args:
        sought: by the options.
        config: the settings of the program, if they are known already.

    Raises:
        NoServerError: none is found, or several.
        StreamsError: the address is none.
    """
    if sought.program is not None:
        config = config_of(sought.program)
    if sought.url is not None:
        return Server(sought.url, sought.token or "", sought.tls, config)
    application_id, state_dir = sought.application_id, sought.state_dir
    if config is not None:
        application_id = application_id or config.application_id
        state_dir = state_dir or config.state_dir
    name = "*" if application_id is None else glob.escape(application_id)
    folders = [state_dir_here(state_dir or DEFAULT_STATE_DIR), *passing_state_dirs()]
    told = {
        path.parent: address
        for folder in folders
        for path in sorted(folder.glob(f"{name}/{FILE}"))
        if (address := read_address(path.parent)) is not None
    }
    served = {folder: address for folder, address in told.items() if is_served(folder)}
    if len(served) != 1:
        whom = application_id or "any application"
        found = f"several are: {_listed(served)}" if served else f"no server of {whom} is told"
        if told and not served:
            found = f"the one of {_listed(told)} seems to have ended: its process is gone"
        raise NoServerError(
            f"Which server? In {folders[0]} {found}. An application tells it where it keeps its "
            "state, to programs of the same user, if server_port is set. Give --application-id or "
            "--app, --state-dir, or else --url and --token."
        )
    (address,) = served.values()
    return Server(address.url, sought.token or address.token, sought.tls, config)


def _listed(served: Iterable[Path]) -> str:
    return ", ".join(map(str, served))


class _AsAnswered(urllib.request.HTTPErrorProcessor):
    """Hands on every answer as it is: a server of an application sends nobody elsewhere, and the
    token must not go there."""

    def http_response(self, request: Any, response: Any) -> Any:
        return response

    https_response = http_response
