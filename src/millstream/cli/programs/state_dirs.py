"""Where applications keep their state on this machine, and folders for those on passing brokers."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from millstream.config import StreamsConfig

DEFAULT_STATE_DIR: Final = Path(
    next(each.default for each in StreamsConfig.settings() if each.name == "state_dir")
)
_PASSING: Final = "millstream-with-broker-"


@contextmanager
def passing_state_dir() -> Iterator[str]:
    """A folder for the state of an application whose broker goes away with it."""
    with tempfile.TemporaryDirectory(prefix=_PASSING, ignore_cleanup_errors=True) as folder:
        yield folder


def passing_state_dirs() -> list[Path]:
    """Such folders that are there now."""
    return sorted(Path(tempfile.gettempdir()).glob(f"{_PASSING}*"))
