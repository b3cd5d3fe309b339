"""Noticing that the files of a program have changed.

By looking at them twice a second: a program has some dozens of files, and a look at each costs
microseconds. Being told by the system would take a compiled package for each platform.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

#: Of programs; and of what they read when they start.
_SUFFIXES: Final = (".py", ".toml", ".json", ".yaml", ".yml", ".env", ".properties")
_NOT_THE_USERS: Final = frozenset({"__pycache__", "node_modules"})
#: In a folder with more files than this somebody keeps something else than a program.
_FILES_MOST: Final = 20_000

#: Of each file its time and its size.
Snapshot = dict[str, tuple[int, int]]


def snapshot(folder: Path) -> Snapshot:
    """The files of a program at this moment, hidden folders and virtual environments left out."""
    found: Snapshot = {}
    for path in _files(str(folder)):
        try:
            status = os.stat(path)
        except OSError:
            continue  # Deleted meanwhile.
        found[path] = (status.st_mtime_ns, status.st_size)
        if len(found) == _FILES_MOST:
            break
    return found


def changed(before: Snapshot, after: Snapshot) -> list[str]:
    """The files that are new, gone or other than before."""
    return sorted({path for path, _ in before.items() ^ after.items()})


def broken(paths: list[str]) -> str | None:
    """What is wrong with the first of some files that is no Python, as far as reading tells."""
    for path in paths:
        if not path.endswith(".py"):
            continue
        try:
            compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
        except OSError:
            continue
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            return f"{path}{f', line {line}' if line else ''}: {error}"
    return None


def _files(folder: str) -> Iterator[str]:
    for path, folders, files in os.walk(folder):
        folders[:] = [
            each
            for each in folders
            if not each.startswith(".")
            and each not in _NOT_THE_USERS
            and not os.path.exists(os.path.join(path, each, "pyvenv.cfg"))
        ]
        yield from (os.path.join(path, each) for each in files if each.endswith(_SUFFIXES))
