"""Goal: whatever step of a batch a writer is killed at, its table has each row once afterwards.

Method: a program with a query into a table kills itself and its JVM at a place of a batch, and is
started again with the same checkpoint; so it goes from place to place, a batch each.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from support.machine.scripts import Script
from support.running import lake_writer
from support.running.lake_writer import places_of

_ROWS = 40
_KEYS = 25
_PATIENCE_S = 300


def offer(folder: Path, batches: int) -> list[list[object]]:
    """Write the input of each batch; which ids the table of appends shall have, by key."""
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
            # Some keys go, and come again.
            if number % 7 == 0:
                del row["value"]
            lines.append(json.dumps(row))
            appended.append([row["key"], number if number % 7 else None])
        path = place / f"{batch:03}.json"
        path.write_text("\n".join(lines))
        # Spark takes the oldest file first.
        os.utime(path, (1_700_000_000 + batch, 1_700_000_000 + batch))
    return appended


def last_of(appended: list[list[object]]) -> list[list[object]]:
    """Which ids the table of upserts shall have."""
    last = {repr(key): (key, number) for key, number in appended}
    return [[key, number] for key, number in last.values() if number is not None]


def start(folder: Path, *arguments: str) -> Script:
    script = Path(lake_writer.__file__)
    return Script(script, str(folder), *arguments, home=folder, imports=script.parents[2])


def kill_at_each(folder: Path, format: str, kind: str, places: list[str]) -> list[list[object]]:
    """Kill a writer at each place in turn, then let it come to its end; what the table has."""
    for batch, place in enumerate(places):
        with start(folder, format, kind, place, str(batch)) as writer:
            assert writer.wait_ended(_PATIENCE_S) == -9, (place, writer.errors)
            assert writer.lines == [], f"it came to its end without {place}"
    with start(folder, format, kind) as writer:
        assert writer.wait_ended(_PATIENCE_S) == 0, writer.errors
        rows: list[list[object]] = json.loads(writer.lines[-1])
    return rows


def in_order(rows: list[list[object]]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.slow
def test_a_batch_that_is_done_again_is_there_once(tmp_path: Path) -> None:
    """The narrowest place: the table has the batch, and the checkpoint does not say so yet."""
    appended = offer(tmp_path, 2)
    rows = kill_at_each(tmp_path, "iceberg", "appends", ["after the batch"])
    assert in_order(rows) == in_order(appended)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["appends", "upserts"])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_killed_at_each_step(tmp_path: Path, format: str, kind: str) -> None:
    """All places, from the one before the batch to the one after it."""
    places = places_of(format)
    appended = offer(tmp_path, len(places) + 1)
    rows = kill_at_each(tmp_path, format, kind, places)
    assert in_order(rows) == in_order(appended if kind == "appends" else last_of(appended))
