"""A workload: a file in `workloads/` with an object `WORKLOAD`, and a Java class.

The file contains the topology for Millstream, the input, and the expected output. The Java class is
in `peers/kafka-streams/src/main/java/workloads/` and has the same name: `stream_table.py` and
`StreamTable.java`. Workloads are found by their files; there is no list.
"""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from harness import load

if TYPE_CHECKING:
    from arguments import Arguments
    from progress import Progress

    from millstream import Topology

Answer = TypeVar("Answer")
#: The key and value of each record on an output topic; a missing value is empty.
Records = Iterable[tuple[bytes, bytes]]


class Workload(ABC, Generic[Answer]):
    """A job. The first paragraph of its docstring is used in the report."""

    #: The name of the input. Workloads with the same input share it, so they must fill it
    #: identically.
    input: ClassVar[str] = "events"
    #: Suffixes of additional input topics.
    other_inputs: ClassVar[tuple[str, ...]] = ()
    #: Internal topics that the group reads, without the application id.
    internal_topics: ClassVar[tuple[str, ...]] = ()
    #: Whether the run is complete as soon as the input is committed.
    is_complete_when_committed: ClassVar[bool] = True

    @abstractmethod
    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        """Return the topology for Millstream."""

    def steps(self, records: int) -> int:
        """Return the count of `Progress` when the last record has been processed."""
        return records

    def fill(self, load_: load.Load) -> None:
        """Create the input topics and write `load_.records` records to them."""
        load.fill(load_)

    @abstractmethod
    def answer(self, load_: load.Load) -> Answer:
        """Return the expected output."""

    @abstractmethod
    def wrong(self, answer: Answer, records: Records) -> str | None:
        """Return a description of the difference from the expected output, or None."""

    @property
    def description(self) -> str:
        """A description of the job in one or two sentences."""
        paragraph, _, _ = (inspect.getdoc(type(self)) or "").partition("\n\n")
        return " ".join(paragraph.split())


def find(name: str) -> Workload[Any]:
    """Return the workload with this name, one of `programs.JOBS`."""
    found = importlib.import_module(f"workloads.{name}").WORKLOAD
    assert isinstance(found, Workload)
    return found
