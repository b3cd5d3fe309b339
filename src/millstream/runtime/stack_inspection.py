"""Locates a stalled stream thread, an exception, or a log line in the topology.

The stack of a stalled thread is inspected on another thread, at no cost for the stream thread. The
result is exact for a hanging thread and approximate for a running one.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

from millstream.errors import StreamsError, summary_of
from millstream.operators.aggregates.cached_loops import AggregateUpdates
from millstream.operators.concurrent.coroutine_runner import CoroutineRunner
from millstream.operators.concurrent.thread_runner import ThreadRunner
from millstream.operators.operator import Operator
from millstream.operators.record_batch import Batch
from millstream.operators.user_calls import call_each
from millstream.record import TaskId
from millstream.runtime.task.executor import RuntimeNode
from millstream.runtime.task.node_context import NodeContext
from millstream.runtime.task.queues.record_queue import Chunk, RecordQueue
from millstream.runtime.task.sinks import Sink
from millstream.runtime.task.stream_task import StreamTask
from millstream.runtime.thread_control import Stall

#: The maximum number of reported stack frames, counted from the innermost.
_MAX_FRAMES: Final = 40
#: The objects whose methods call user code for a task, on the stream thread or another thread.
_CALLERS: Final = (StreamTask, CoroutineRunner, ThreadRunner)
_CALLER_MODULES: Final = frozenset(each.__module__ for each in _CALLERS)


def running_task() -> TaskId | None:
    """Return the task that the calling thread or coroutine processes, if any.

    Only reads the variables of a few frames, so that others keep no references to old batches.
    """
    for frame in _outwards(sys._getframe(1)):
        if frame.f_globals.get("__name__") in _CALLER_MODULES:
            owner = frame.f_locals.get("self")
            if isinstance(owner, _CALLERS):
                return owner.task_id
    return None


def depth_of(frame: FrameType) -> int:
    """Return the number of frames from the outermost to this one."""
    return sum(1 for _ in _outwards(frame))


def stall_of(frame: FrameType, silent_ms: int, skip: int = 0) -> Stall:
    """Return the location of a thread; the stack omits the `skip` outermost frames."""
    location = _Location()
    for each in _outwards(frame):
        location.inspect(each)
    task_id = None if location.task_id is None else str(location.task_id)
    record = location.topic, location.partition, location.offset
    return Stall(silent_ms, task_id, location.node, *record, _stack(frame, skip))


@dataclass
class _Location:
    """The location in the topology, collected from frames, innermost first."""

    task_id: TaskId | None = None
    node: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    _has_row: bool = False

    def inspect(self, frame: FrameType) -> None:
        """Add the details that the inner frames lacked."""
        found = frame.f_locals
        if self.node is None:
            self.node = _node(found)
        if self.task_id is None:
            owners = (v for v in found.values() if isinstance(v, StreamTask | NodeContext))
            self.task_id = next((owner.task_id for owner in owners), None)
        if not self._has_row and (row := _row(frame)) is not None:
            self._has_row = True
            batch, index = row
            metadata = batch.metadata_of(index)
            if metadata is not None and metadata.topic is not None:
                self.topic, self.partition = metadata.topic, metadata.partition
                self.offset = metadata.offset
        queue, chunk, position = found.get("self"), found.get("chunk"), found.get("index")
        if not self._has_row and isinstance(queue, RecordQueue):
            # The queue is decoding records or calling a timestamp extractor.
            self._has_row = True
            self.node, (self.topic, self.partition) = queue.source, queue.partition
            if isinstance(chunk, Chunk) and isinstance(position, int):
                self.offset = chunk.offsets[position]


def raised_by_user_code(error: BaseException) -> StreamsError:
    """Return an error for an exception that no handler accepts, such as SystemExit."""
    frames = list(traceback.walk_tb(error.__traceback__))
    location = _Location()
    for frame, _ in reversed(frames):
        location.inspect(frame)
    ours = max((n for n, (frame, _) in enumerate(frames) if _is_ours(frame)), default=-1)
    function = "A function"
    if ours + 1 < len(frames):
        frame, line = frames[ours + 1]
        code = frame.f_code
        function = f"The function {code.co_qualname} ({code.co_filename}:{line})"
    failure = StreamsError(
        f"{function} raised {summary_of(error)}, which ends the stream thread: exception handlers "
        "are only called for subclasses of Exception. Raise a subclass of Exception, or let the "
        "program that created the KafkaStreams object end the application.",
        task_id=location.task_id,
        topic=location.topic,
        partition=location.partition,
        offset=location.offset,
        node=location.node,
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
    runtime_node = found.get("runtime_node")
    return runtime_node.name if isinstance(runtime_node, RuntimeNode) else None


def _row(frame: FrameType) -> tuple[Batch, int] | None:
    """Return the batch and index of the current record.

    Functions that call user code keep the index in a local variable, for error reports.
    """
    found = frame.f_locals
    batch = found.get("batch")
    if not isinstance(batch, Batch):
        return None
    index = found.get("index")
    if frame.f_code is call_each.__code__:
        # There is one result for each record before the current one.
        done = len(found["results"]) - found.get("done", 0)
        index = done if index is None else index + 1 + done
    if isinstance(updates := found.get("updates"), AggregateUpdates):
        index = updates.at[0]
    return (batch, index) if isinstance(index, int) and 0 <= index < len(batch) else None


def _stack(frame: FrameType, skip: int) -> tuple[str, ...]:
    summary = traceback.extract_stack(frame)[skip:][-_MAX_FRAMES:]
    return tuple(
        f"{each.filename}:{each.lineno} in {each.name}: {each.line or ''}".rstrip(": ")
        for each in summary
    )
