"""What is to be read of which store: the plan that goes from the driver to Spark's tasks."""

from __future__ import annotations

import os
import pickle
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from millstream.config import StreamsConfig
from millstream.errors import ConfigError
from millstream.lake.store_table import StoreTable
from millstream.spark.code.shipping import ship

#: What last records may take in the memory of a task.
DEFAULT_MEMORY_BYTES: Final = 512 * 1024 * 1024


@dataclass(frozen=True)
class ReadPlan:
    """What is to be read.

    Args:
        config: how the cluster is reached.
        table: of which store.
        position: a snapshot's position as it was given; None for the end of the changelog.
        as_of_ms: of a versioned store: the versions of that time.
        history: of a versioned store: all versions.
        is_partitioned: whether keys lie where Kafka's default partitioner puts them.
        starting_offsets: where changes are read from: "earliest", "latest", or a position.
        memory_bytes: what last records may take in the memory of a task.
    """

    config: StreamsConfig
    table: StoreTable
    position: str | None = None
    as_of_ms: int | None = None
    history: bool = False
    is_partitioned: bool = True
    starting_offsets: str = "earliest"
    memory_bytes: int = DEFAULT_MEMORY_BYTES

    def __post_init__(self) -> None:
        table = self.table
        if table.shape != "versioned" and (self.as_of_ms is not None or self.history):
            what = "history" if self.history else "as_of"
            raise ConfigError(
                f"Store {table.store} is a {table.shape} store, which keeps no versions: {what} "
                "works for versioned stores only. For what a store showed earlier, give the "
                "position of a snapshot that was taken then."
            )
        if self.history and self.as_of_ms is not None:
            raise ConfigError("Give as_of for one time, or history for all versions, not both.")


@contextmanager
def handed_over(plan: ReadPlan) -> Iterator[str]:
    """The path of a file from which Spark's planner takes a plan; gone afterwards.

    What goes as an option would be seen in the query's plan, in the user interface and in event
    logs, with passwords and all. The file can be read by this user only.

    Raises:
        NotPicklableError: a serde or setting cannot be pickled.
    """
    data = ship(plan, "the plan of a DataFrame")
    with tempfile.TemporaryDirectory(prefix="millstream-") as folder:
        path = Path(folder, "plan")
        with open(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
            file.write(data)
        yield str(path)


def taken_over(path: str) -> ReadPlan:
    """The plan of a file that `handed_over` wrote."""
    plan: Any = pickle.loads(Path(path).read_bytes())
    assert isinstance(plan, ReadPlan)
    return plan
