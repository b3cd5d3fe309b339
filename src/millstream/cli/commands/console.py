"""`millstream console`: open the console of a running application in a browser."""

from __future__ import annotations

import html
import tempfile
import time
import webbrowser
from pathlib import Path
from typing import Any, Final

import click

from millstream.cli.application_server import ServerLocation, find_server, server_options
from millstream.cli.output import FAINT, print_json, print_message

#: How long the redirecting file exists: the browser may have to start first.
_BROWSER_START_S: Final = 10.0
_PAGE: Final = """<!doctype html>
<meta charset="utf-8">
<meta name="referrer" content="no-referrer">
<meta http-equiv="refresh" content="0; url={address}">
<title>Millstream</title>
<a href="{address}">The console</a>
"""


@click.command("console")
@server_options
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.option("--json", "as_json", is_flag=True, help="Only print the address, as JSON.")
def command(no_browser: bool, as_json: bool, **options: Any) -> None:
    """Open the console of a running application.

    Prints its address with the token, which grants access to all functions of the console. The
    application must run its HTTP server (server_port, or streams.serve()).
    """
    server = find_server(ServerLocation(**options))
    # Checks that the server responds and accepts the token.
    server.get("console", "state")
    if as_json:
        print_json({"url": server.console})
        return
    click.echo(server.console)
    if not no_browser and not _open_browser(server.console):
        print_message(
            "No browser was found: open the address in a browser that can reach it.", FAINT
        )


def _open_browser(address: str) -> bool:
    """Open an address in a browser; return False if no browser was found.

    Uses a temporary file that only this user can read: command lines are visible to all users of
    the machine, and the address contains the token.
    """
    with tempfile.TemporaryDirectory(prefix="millstream-") as folder:
        page = Path(folder, "console.html")
        page.touch(mode=0o600)
        page.write_text(_PAGE.format(address=html.escape(address)), encoding="utf-8")
        if not webbrowser.open(page.as_uri()):
            return False
        time.sleep(_BROWSER_START_S)
    return True
