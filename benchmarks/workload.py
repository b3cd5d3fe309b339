"""What a workload is: a file in `workloads/` with an object `WORKLOAD`, and a Java class.

The file says what Millstream runs, which input it needs, and what a right output is. The class
has the same name, in `peers/kafka-streams/src/main/java/workloads/`: `stream_table.py` and
`StreamTable.java`. Nothing else knows which workloads there are.
"""

from __future__ import annotations

import importlib
import inspect
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

import load

if TYPE_CHECKING:
    from arguments import Arguments
    from progress import Progress

    from millstream import Topology

Answer = TypeVar("Answer")
#: Key and value of each record on an output topic; no value is no bytes.
Records = Iterable[tuple[bytes, bytes]]


class Workload(ABC, Generic[Answer]):
    """One job. The first paragraph of its docstring is what the report says of it."""

    #: What the input is called: workloads that say the same share it, so they must fill it alike.
    input: ClassVar[str] = "events"
    #: Input topics beside the first, by what comes behind its name.
    beside: ClassVar[tuple[str, ...]] = ()
    #: Internal topics that the group reads, by what comes behind the application's id.
    between: ClassVar[tuple[str, ...]] = ()
    #: Whether all is done as soon as the input is committed.
    offsets_tell: ClassVar[bool] = True

    @abstractmethod
    def topology(self, arguments: Arguments, progress: Progress) -> Topology:
        """What Millstream runs."""

    def steps(self, records: int) -> int:
        """How much `Progress` counts until the last record was there."""
        return records

    def fill(self, load_: load.Load) -> None:
        """Makes the input topics and writes `load_.records` records to them."""
        load.fill(load_)

    @abstractmethod
    def answer(self, load_: load.Load) -> Answer:
        """What the output must say."""

    @abstractmethod
    def wrong(self, answer: Answer, records: Records) -> str | None:
        """What is wrong with the output, in one sentence; None when nothing is."""

    @property
    def description(self) -> str:
        """What it does, in a sentence or two."""
        paragraph, _, _ = (inspect.getdoc(type(self)) or "").partition("\n\n")
        return " ".join(paragraph.split())


def find(name: str) -> Workload[Any]:
    """The workload of that name, which `programs.JOBS` lists."""
    found = importlib.import_module(f"workloads.{name}").WORKLOAD
    assert isinstance(found, Workload)
    return found
