"""The process id that a folder of state keeps: made once, and the same over restarts.

The file is Kafka Streams' own. Whoever has the state of a folder at hand joins the group under its
id, so that the group's leader knows after a restart where which state is.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Final

from millstream.errors import StreamsError
from millstream.state.directories.disk import Disk, disk_errors

logger = logging.getLogger(__name__)

_FILE: Final = "kafka-streams-process-metadata"

#: Makes a process id.
NewProcessId = Callable[[], uuid.UUID]


def read_process_id(folder: Path, disk: Disk) -> uuid.UUID:
    """The id that a folder keeps.

    Raises:
        FileNotFoundError: it keeps none.
        ValueError: the file holds something else.
    """
    text = disk.read_text(folder / _FILE)
    try:
        return uuid.UUID(json.loads(text)["processId"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ValueError(f"it begins with {text[:40]!r}") from None


def kept_process_id(
    folder: Path, disk: Disk, new_process_id: NewProcessId, *, may_replace: bool
) -> uuid.UUID:
    """The id that a folder keeps, made when first asked for.

    Several processes may ask at the same time: all get the same.

    Args:
        folder: which exists.
        disk: where it is.
        new_process_id: makes the id when there is none yet.
        may_replace: whether nobody else uses the folder, so that a file that holds something else
            is replaced.

    Raises:
        StreamsError: the file holds something else and may not be replaced, or the disk fails.
    """
    path = folder / _FILE
    try:
        return read_process_id(folder, disk)
    except FileNotFoundError:
        pass  # The first one to ask makes it.
    except ValueError as error:
        if not may_replace:
            raise StreamsError(
                f"{path} holds no process id: {error}. Delete it, and a new one is made."
            ) from error
        logger.warning("%s holds no process id (%s); it gets a new one", path, error)
        disk.delete(path)
    process_id = new_process_id()
    temporary = folder / f"{_FILE}.{process_id}"
    with disk_errors(f"keep the process id in {path}"):
        try:
            disk.make_text(path, json.dumps({"processId": str(process_id)}), temporary)
        except FileExistsError:
            return read_process_id(folder, disk)
    return process_id
