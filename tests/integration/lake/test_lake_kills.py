"""Goal: a writer that is killed at any step of a batch leaves a table with each row once.

Method: a program with a query into a table kills itself and its JVM at a place of a batch, and is
restarted with the same checkpoint; this is repeated for each place, with one batch each.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.machine.scripts import Script, support_script
from support.running.lake_writer import places_of

_ROWS = 40
_KEYS = 25
_TIMEOUT_S = 300


def write_input(folder: Path, batches: int) -> list[list[object]]:
    """Write the input of each batch; return the expected ids of the appends table, by key."""
    place = folder / "input"
    place.mkdir()
    appended: list[list[object]] = []
    for batch in range(batches):
        lines = []
        for number in range(batch * _ROWS, (batch + 1) * _ROWS):
            row = {
                "key": f"key-{number % _KEYS}",
                "timestamp": "2024-01-01T00:00:00Z",
                "partition": 0,
                "offset": number,
                "value": {"id": number, "country": f"land {number % 3}"},
            }
            # Some keys are deleted and written again.
            if number % 7 == 0:
                del row["value"]
            lines.append(json.dumps(row))
            appended.append([row["key"], number if number % 7 else None])
        path = place / f"{batch:03}.json"
        path.write_text("\n".join(lines))
        # Spark processes the oldest file first.
        os.utime(path, (1_700_000_000 + batch, 1_700_000_000 + batch))
    return appended


def last_of(appended: list[list[object]]) -> list[list[object]]:
    """The expected ids of the upserts table."""
    last = {repr(key): (key, number) for key, number in appended}
    return [[key, number] for key, number in last.values() if number is not None]


def start(folder: Path, *arguments: str) -> Script:
    return support_script("lake_writer.py", str(folder), *arguments, home=folder)


def kill_at_each(folder: Path, format: str, kind: str, places: list[str]) -> list[list[object]]:
    """Kill a writer at each place in turn, then let it finish, and return the table."""
    for batch, place in enumerate(places):
        with start(folder, format, kind, place, str(batch)) as writer:
            assert writer.wait_ended(_TIMEOUT_S) == -9, (place, writer.errors)
            assert writer.lines == [], f"it ended without reaching {place}"
    with start(folder, format, kind) as writer:
        assert writer.wait_ended(_TIMEOUT_S) == 0, writer.errors
        rows: list[list[object]] = json.loads(writer.lines[-1])
    return rows


def in_order(rows: list[list[object]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.slow
def test_a_repeated_batch_is_written_once(tmp_path: Path) -> None:
    """The narrowest place: the table has the batch, but the checkpoint does not."""
    appended = write_input(tmp_path, 2)
    rows = kill_at_each(tmp_path, "iceberg", "appends", ["after the batch"])
    assert in_order(rows) == in_order(appended)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["appends", "upserts"])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_killed_at_each_step(tmp_path: Path, format: str, kind: str) -> None:
    """All places, from the one before the batch to the one after it."""
    places = places_of(format)
    appended = write_input(tmp_path, len(places) + 1)
    rows = kill_at_each(tmp_path, format, kind, places)
    assert in_order(rows) == in_order(appended if kind == "appends" else last_of(appended))
