"""What is told of a stream thread that hangs."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Stall:
    """Where a stream thread hangs whose processing loop does not come round.

    Args:
        silent_ms: milliseconds without progress.
        task_id: the task that it works on, for example `0_1`; None between tasks.
        node: the processor node; None outside of one.
        topic: of the record that it works on; None where there is none, as in a punctuator.
        partition: of that record.
        offset: of that record.
        stack: the Python stack, the innermost call last, as lines of text.

    Example:
        >>> streams = KafkaStreams(topology, config)
        >>> streams.start()
        >>> for thread in streams.metadata_for_local_threads():
        ...     if thread.stall is not None:
        ...         print(thread.thread_name, "hangs in", thread.stall.place)
    """

    silent_ms: int
    task_id: str | None = None
    node: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    stack: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """In words, for example `task 0_1, node KSTREAM-MAP-0000000001, in-1 offset 42`."""
        told = []
        if self.task_id is not None:
            told.append(f"task {self.task_id}")
        if self.node is not None:
            told.append(f"node {self.node}")
        if self.topic is not None:
            where = f"{self.topic}-{self.partition}"
            told.append(where if self.offset is None else f"{where} offset {self.offset}")
        return ", ".join(told) or "no task"

    def told_of(self, thread: str) -> str:
        """What the log says of it, with the stack.

        Args:
            thread: the name of the stream thread.

        Example:
            >>> print(Stall(2_000, "0_1", stack=("line 7",)).told_of("StreamThread-1"))
            StreamThread-1 has made no progress for 2 s: it hangs in task 0_1. Its tasks go to ...
              line 7
        """
        stack = "\n  ".join(self.stack)
        return (
            f"{thread} has made no progress for {self.silent_ms // 1_000} s: it hangs in "
            f"{self.place}. Its tasks go to other threads until it goes on. Its stack, the "
            f"innermost call last:\n  {stack}"
        )
