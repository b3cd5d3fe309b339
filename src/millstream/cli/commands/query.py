"""`millstream query counts alice`: query stores over HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any, Final

import click
import orjson

from millstream.cli.application_server import (
    ServerClient,
    ServerError,
    ServerLocation,
    find_server,
    server_options,
)
from millstream.cli.output import Cell, json_text, print_json, print_message, print_table
from millstream.durations import time_ms
from millstream.errors import ConfigError

_PAGE: Final = 1_000


@click.command("query")
@click.argument("store", required=False)
@click.argument("key", required=False)
@server_options
@click.option(
    "--from", "begin", metavar="KEY|TIME", help="The first key or earliest time, inclusive."
)
@click.option("--to", "end", metavar="KEY|TIME", help="The last key or latest time, inclusive.")
@click.option("--as-of", metavar="TIME", help="For versioned stores: the version at this time.")
@click.option("--descending", is_flag=True, help="Largest key or latest time first.")
@click.option(
    "--limit",
    type=click.IntRange(0),
    default=100,
    show_default=True,
    help="Maximum number of entries; 0 for all.",
)
@click.option(
    "--key-as",
    type=click.Choice(["text", "json", "base64"]),
    help="The format of keys on the command line: text for the store's serde (the default), JSON, "
    "or base64 of their bytes.",
)
@click.option("--stale", is_flag=True, help="Also query standbys, which may lag.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one line per entry.")
def command(
    store: str | None,
    key: str | None,
    begin: str | None,
    end: str | None,
    as_of: str | None,
    descending: bool,
    limit: int,
    key_as: str | None,
    stale: bool,
    as_json: bool,
    **options: Any,
) -> int:
    """Query the stores of a running application.

    Without STORE, lists the stores. With STORE, shows its entries, optionally for a range of keys
    or times. With KEY, shows the entries of that key. Times are written as 2026-11-23T04:30:00, in
    UTC, or as milliseconds since the epoch. The exit code is 1 if the key does not exist.
    """
    server = find_server(ServerLocation(**options))
    if store is None:
        _list_stores(server, as_json)
        return 0
    form = _form_of(server, store)
    path = _path(form, key)
    if (begin is not None or end is not None) and path[0] in ("keys", "sessions"):
        raise click.UsageError(f"--from and --to are for ranges of {store}, not for a single key.")
    _check_form(store, form, key, as_of)
    query: dict[str, Any] = {"key_as": key_as, "stale": stale or None}
    if path[0] != "keys":
        times = form != "key-value"
        query |= {
            "from_": _time(begin) if times else begin,
            "to": _time(end) if times else end,
            "as_of": _time(as_of),
            "descending": descending or None,
            "limit": min(limit, _PAGE) or _PAGE,
        }
    entries = _entries(server, store, path, query)
    number = _print_entries(islice(entries, limit or None), as_json)
    if not number:
        print_message(
            f"{store} has no such entries." if key is None else f"{store} has no key {key!r}."
        )
        return 0 if key is None else 1
    if limit and next(entries, None) is not None:
        print_message(f"There are more than {limit} entries: use --limit, or --limit 0 for all.")
    return 0


def _print_entries(entries: Iterator[Mapping[str, Any]], as_json: bool) -> int:
    """Write the entries one by one or as a table, and return their number."""
    number = 0
    try:
        if as_json:
            for number, entry in enumerate(entries, 1):  # noqa: B007
                click.echo(json_text(entry))
            return number
        shown = list(entries)
    except ServerError as error:
        if error.code != "KEY_NOT_FOUND":
            raise
        return number
    if shown:
        _show(shown)
    return len(shown)


def _check_form(store: str, form: str, key: str | None, as_of: str | None) -> None:
    if as_of is not None and form != "versioned":
        raise click.UsageError(f"--as-of is for versioned stores, but {store} is a {form} store.")
    if form in ("session", "versioned") and key is None:
        raise click.UsageError(f"{store} is a {form} store: give a KEY.")
    if form == "buffer":
        raise click.UsageError(f"{store} is an internal store, which cannot be queried.")


def _list_stores(server: ServerClient, as_json: bool) -> None:
    stores = server.get("stores")
    if as_json:
        print_json(stores)
        return
    print_table(
        ["store", "form", "keys", "values", "sub-topology", "changelog"],
        [
            (
                each["name"],
                each.get("form"),
                each.get("key"),
                each.get("value"),
                "global" if each.get("is_global") else each.get("subtopology"),
                each.get("changelog"),
            )
            for each in stores
        ],
    )


def _form_of(server: ServerClient, store: str) -> str:
    """Return the form of a store: key-value, window, session, versioned or buffer."""
    stores: Sequence[Mapping[str, Any]] = server.get("stores")
    found = next((each for each in stores if each["name"] == store), None)
    if found is None:
        names = ", ".join(sorted(str(each["name"]) for each in stores)) or "none"
        raise click.UsageError(f"The application has no store {store!r}. Its stores: {names}.")
    return str(found["form"])


def _path(form: str, key: str | None) -> tuple[str, ...]:
    """Return the path of the entries below the store."""
    if form == "key-value":
        return ("range",) if key is None else ("keys", key)
    section = {"window": "windows", "session": "sessions", "versioned": "versions"}.get(form, "")
    return (section,) if key is None else (section, key)


def _entries(
    server: ServerClient, store: str, path: Sequence[str], query: Mapping[str, Any]
) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of all pages."""
    cursor: str | None = None
    while True:
        page = server.get("stores", store, *path, cursor=cursor, **query)
        if "entries" not in page:
            yield page
            return
        yield from page["entries"]
        cursor = page.get("cursor")
        if not cursor:
            return


def _time(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        return int(text) if text.removeprefix("-").isdecimal() else time_ms(text)
    except ConfigError as error:
        raise click.UsageError(str(error)) from error


def _show(entries: Sequence[Mapping[str, Any]]) -> None:
    """Write a table of the entries, without their location, which only --json shows."""
    left_out = {"host", "position", "partition"}
    columns = [
        name
        for name in dict.fromkeys(name for entry in entries for name in entry)
        if name not in left_out and any(entry.get(name) is not None for entry in entries)
    ]
    print_table(columns, [[_cell(name, entry.get(name)) for name in columns] for entry in entries])


def _cell(name: str, value: Any) -> Cell:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and _is_time(name):
        try:
            return datetime.fromtimestamp(value / 1_000, UTC).isoformat(timespec="milliseconds")
        except (OverflowError, ValueError, OSError):
            return str(value)
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return orjson.dumps(value).decode()


def _is_time(name: str) -> bool:
    return name in ("timestamp", "window_start", "window_end", "valid_to")
