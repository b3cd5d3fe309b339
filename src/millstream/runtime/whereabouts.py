"""Where a stream thread is, read off its stack from another thread: nothing is noted on the way.

That costs the thread nothing, for each record or otherwise, and is done only when somebody asks:
when it has not come round for long. What is read is a guess while the thread goes on; of one that
hangs it is exact.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final

from millstream.errors import StreamsError, summary_of
from millstream.operators.aggregates.cached_loops import Updates
from millstream.operators.batch import Batch
from millstream.operators.calls import call_each
from millstream.operators.operator import Operator
from millstream.record import TaskId
from millstream.runtime.stall import Stall
from millstream.runtime.task.executor import Station
from millstream.runtime.task.node_context import NodeContext
from millstream.runtime.task.queues.record_queue import Chunk, RecordQueue
from millstream.runtime.task.sinks import Sink
from millstream.runtime.task.stream_task import StreamTask

#: How many frames of the stack are told, the innermost ones.
_MOST_FRAMES: Final = 40


def depth_of(frame: FrameType) -> int:
    """How many frames there are down to this one."""
    return sum(1 for _ in _outwards(frame))


def stall_of(frame: FrameType, silent_ms: int, skip: int = 0) -> Stall:
    """Where a thread is.

    Args:
        frame: its innermost frame.
        silent_ms: for how long it has made no progress, in milliseconds.
        skip: how many outermost frames nobody wants to see.
    """
    place = _Place()
    for each in _outwards(frame):
        place.look_at(each)
    task_id = None if place.task_id is None else str(place.task_id)
    return Stall(
        silent_ms,
        task_id,
        place.node,
        place.topic,
        place.partition,
        place.offset,
        _stack(frame, skip),
    )


class _Place:
    """The place in the application that frames work on, from the innermost outwards."""

    def __init__(self) -> None:
        self.task_id: TaskId | None = None
        self.node: str | None = None
        self.topic: str | None = None
        self.partition: int | None = None
        self.offset: int | None = None
        self._has_row = False

    def look_at(self, frame: FrameType) -> None:
        """Take from a frame what inner frames have not said."""
        found = frame.f_locals
        if self.node is None:
            self.node = _node(found)
        if self.task_id is None:
            self.task_id = next((v.task_id for v in found.values() if _knows_task(v)), None)
        if not self._has_row and (row := _row(frame)) is not None:
            self._has_row = True
            batch, index = row
            metadata = batch.metadata_of(index)
            if metadata is not None and metadata.topic is not None:
                self.topic, self.partition = metadata.topic, metadata.partition
                self.offset = metadata.offset
        queue, chunk, position = found.get("self"), found.get("chunk"), found.get("index")
        if not self._has_row and isinstance(queue, RecordQueue):
            # It decodes records, or calls a timestamp extractor.
            self._has_row = True
            self.node, (self.topic, self.partition) = queue.source, queue.place
            if isinstance(chunk, Chunk) and isinstance(position, int):
                self.offset = chunk.offsets[position]


def raised_by_user_code(error: BaseException) -> StreamsError:
    """The error for what only user code raises and no handler is asked about, such as SystemExit.

    Args:
        error: no `Exception`.
    """
    frames = list(traceback.walk_tb(error.__traceback__))
    place = _Place()
    for frame, _ in reversed(frames):
        place.look_at(frame)
    ours = max((n for n, (frame, _) in enumerate(frames) if _is_ours(frame)), default=-1)
    function = "A function"
    if ours + 1 < len(frames):
        frame, line = frames[ours + 1]
        code = frame.f_code
        function = f"The function {code.co_qualname} ({code.co_filename}:{line})"
    failure = StreamsError(
        f"{function} raised {summary_of(error)}, which ends the stream thread: exception handlers "
        "are only called for subclasses of Exception. Raise one of these, or let the program that "
        "holds the KafkaStreams object end the application.",
        task_id=place.task_id,
        topic=place.topic,
        partition=place.partition,
        offset=place.offset,
        node=place.node,
    )
    failure.__cause__ = error
    return failure


def _is_ours(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__", ""))
    return name.partition(".")[0] == "millstream"


def _outwards(frame: FrameType) -> Iterator[FrameType]:
    at: FrameType | None = frame
    while at is not None:
        yield at
        at = at.f_back


def _knows_task(value: Any) -> bool:
    return isinstance(value, StreamTask | NodeContext)


def _node(found: dict[str, Any]) -> str | None:
    for value in found.values():
        if isinstance(value, NodeContext):
            return value.node
        if isinstance(value, Operator) and isinstance(
            context := getattr(value, "context", None), NodeContext
        ):
            return context.node
    if isinstance(sink := found.get("self"), Sink):
        return sink.name
    station = found.get("station")
    return station.name if isinstance(station, Station) else None


def _row(frame: FrameType) -> tuple[Batch, int] | None:
    """The record that a frame works on: those who call user code for each record of a batch have
    its index at hand, to tell on which one it fails."""
    found = frame.f_locals
    batch = found.get("batch")
    if not isinstance(batch, Batch):
        return None
    index = found.get("index")
    if frame.f_code is call_each.__code__:
        # The results so far are those of the records before; `index` is where the last one failed.
        done = len(found["results"]) - found.get("done", 0)
        index = done if index is None else index + 1 + done
    if isinstance(updates := found.get("updates"), Updates):
        index = updates.at[0]
    return (batch, index) if isinstance(index, int) and 0 <= index < len(batch) else None


def _stack(frame: FrameType, skip: int) -> tuple[str, ...]:
    summary = traceback.extract_stack(frame)[skip:][-_MOST_FRAMES:]
    return tuple(
        f"{each.filename}:{each.lineno} in {each.name}: {each.line or ''}".rstrip(": ")
        for each in summary
    )
