"""`millstream console`: the page of a running application, in a browser."""

from __future__ import annotations

import html
import tempfile
import time
import webbrowser
from pathlib import Path
from typing import Any, Final

import click

from millstream.cli.output import FAINT, print_json, say
from millstream.cli.server import Sought, server_of, server_options

#: For how long a browser that has to be started first finds the page which sends it on, in seconds.
_STARTS_S: Final = 10.0
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
def command(no_browser: bool, as_json: bool, **sought: Any) -> None:
    """Open the console of a running application.

    Prints its address, token included: who has it may ask and change what the console can. The
    application must be served (server_port, or streams.serve()).
    """
    server = server_of(Sought(**sought))
    # Whether it answers, and takes the token.
    server.get("console", "state")
    if as_json:
        print_json({"url": server.console})
        return
    click.echo(server.console)
    if not no_browser and not _opened(server.console):
        say("There is no browser here: open the address in one that reaches it.", FAINT)


def _opened(address: str) -> bool:
    """Open an address in a browser; whether there is one.

    By way of a page that only this user can read, gone soon after: the words of a command can be
    read by all users of the machine while it runs, and the address has the token.
    """
    with tempfile.TemporaryDirectory(prefix="millstream-") as folder:
        page = Path(folder, "console.html")
        page.touch(mode=0o600)
        page.write_text(_PAGE.format(address=html.escape(address)), encoding="utf-8")
        if not webbrowser.open(page.as_uri()):
            return False
        time.sleep(_STARTS_S)
    return True
