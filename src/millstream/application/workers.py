"""Where the stream threads of an instance run: their hosts, processes and clients."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from millstream.runtime.control import ClientJoined
from millstream.spark.connection.messages import Hello


@dataclass(frozen=True)
class Worker:
    """The Spark Python worker that a stream thread is.

    Args:
        host: its host; None while there is none.
        pid: its process there.
        client: the process id of the client that it is of, once that is told.
        folder: where that client keeps state on the host; None if nothing is kept on disk.
    """

    host: str | None = None
    pid: int | None = None
    client: str | None = None
    folder: str | None = None


#: Of a thread that does not run.
NOWHERE: Final = Worker()


class Workers:
    """The workers of the threads that run, by thread. Usable from several threads."""

    def __init__(self) -> None:
        self._workers: dict[str, Worker] = {}

    def registered(self, hello: Hello) -> str:
        """A thread has registered; where it runs, in words."""
        self._workers[hello.thread_name] = Worker(hello.host, hello.pid)
        return f"runs in process {hello.pid} on {hello.host}"

    def joined(self, thread: str, told: ClientJoined) -> str:
        """A thread knows its client; which it is, in words."""
        worker = replace(self.of(thread), client=told.process_id, folder=told.folder)
        self._workers[thread] = worker
        kept = (
            "which keeps nothing on disk" if told.folder is None else f"with state in {told.folder}"
        )
        return f"is of client {told.process_id} on {worker.host}, {kept}"

    def ended(self, thread: str) -> None:
        """A thread runs no more."""
        self._workers.pop(thread, None)

    def host_of(self, thread: str) -> str | None:
        """The host of a thread, if it runs."""
        return self.of(thread).host

    def of(self, thread: str) -> Worker:
        """Where a thread runs; `NOWHERE` if it does not."""
        return self._workers.get(thread, NOWHERE)
