"""The control connections of a thousand stream threads to one driver.

They are measured without a broker or Spark.

The driver's end is the same as in an application: the server, the event queue, and the aggregation
of metrics. At the other ends are the channels of stream threads, a few hundred in each process.
They report their metrics as often as real stream threads, but process no records.
"""

from __future__ import annotations

import argparse
import os
import queue
import resource
import secrets
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from millstream import StreamsBuilder, StreamsConfig, TaskId
from millstream.application.client_metrics import ClientMetrics
from millstream.clock import SystemClock
from millstream.metrics.metric_frames import FrameWriter
from millstream.metrics.registry import MetricsScope
from millstream.runtime.loop.thread_settings import report_interval_ms
from millstream.runtime.states.client_states import ClientStateTracker
from millstream.runtime.task.task_meters import TASK_GROUP
from millstream.runtime.thread_control import Close, GetMetrics, Report, ThreadMetrics
from millstream.spark.connection.control_client import ControlChannel
from millstream.spark.connection.control_server import ControlServer
from millstream.spark.connection.messages import Epoch, Hello
from millstream.spark.thread_events import ThreadEvent, ThreadEventQueue

#: The number of stream threads in each process at the other end.
_THREADS_PER_PROCESS: Final = 250
#: The number of tasks of a thread, and of metrics of each task, as in the job `count`.
_TASKS: Final = 10
_METRICS: Final = 35
_QUIET_S: Final = 15.0
_SMOKE_QUIET_S: Final = 0.6
#: How often a request is sent to all threads at once.
_REQUEST_ROUNDS: Final = 10
_DEADLINE_S: Final = 120.0
_REPLY_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True)
class ConnectionCosts:
    """The cost of connections for the driver.

    Attributes:
        threads: the number of connected threads.
        connected_s: the time until all threads were connected.
        mb_a_thousand: the memory for 1,000 connections.
        python_threads: the number of Python threads in the driver's process.
        files: the number of files that the driver has open.
        cores: CPU usage while all threads report.
        reports: reports per second.
        last_reply_s: the time until the last reply to a request to all threads: median and maximum.
        median_reply_s: the median time until a reply, over all threads.
    """

    threads: int
    connected_s: float
    mb_a_thousand: float
    python_threads: int
    files: int
    cores: float
    reports: float
    last_reply_s: tuple[float, float]
    median_reply_s: float


class Driver:
    """The driver's end, as in an application."""

    def __init__(self) -> None:
        builder = StreamsBuilder()
        builder.stream("in").to("out")
        self.key = secrets.token_bytes(32)
        self.server = ControlServer("bench", self.key, self)
        self.registered = threading.Semaphore(0)
        self.reports = 0
        self._metrics = ClientMetrics(
            builder.build(),
            StreamsConfig(application_id="bench", bootstrap_servers="not-used:9092"),
            ClientStateTracker("bench", SystemClock()),
            lambda: "bench",
            dict,
            lambda: 0,
        )
        self._events = ThreadEventQueue(self._on_event)

    def start(self, names: list[str]) -> None:
        """Listen for the connections of these threads."""
        self._events.start()
        self.server.start()
        for name in names:
            self.server.expect_thread(name, 1)

    def on_registered(self, hello: Hello) -> None:
        self.registered.release()

    def on_report(self, hello: Hello, report: Report) -> None:
        self._events.put(ThreadEvent(hello.thread_name, "report", report))

    def request_all(self, names: list[str]) -> list[float]:
        """Send a request to all threads at once; return the sorted reply times."""
        done: queue.SimpleQueue[float] = queue.SimpleQueue()
        began = time.perf_counter()
        answers = [self.server.post(name, GetMetrics()) for name in names]
        for answer in answers:
            answer.add_done_callback(lambda _: done.put(time.perf_counter() - began))
        for answer in answers:
            answer.result(_REPLY_TIMEOUT_S)
        return sorted(done.get(timeout=_REPLY_TIMEOUT_S) for _ in names)

    def close(self) -> None:
        self.server.close()
        self._events.close(_REPLY_TIMEOUT_S)

    def _on_event(self, event: ThreadEvent) -> None:
        self.reports += 1
        self._metrics.update(event.thread, event.data)
        self._metrics.processed_by_task(event.thread)


def measure(threads: int, quiet_s: float) -> ConnectionCosts:
    """Connect this number of threads, let them report, and send requests."""
    driver = Driver()
    names = [_name(number) for number in range(threads)]
    memory_kb, files, python_threads = _memory_kb(), _open_files(), threading.active_count()
    driver.start(names)
    with ExitStack() as ends:
        ends.callback(driver.close)
        began = time.perf_counter()
        for first in range(0, threads, _THREADS_PER_PROCESS):
            ends.enter_context(
                _process(driver, threads, first, min(threads, first + _THREADS_PER_PROCESS))
            )
        for _ in names:
            assert driver.registered.acquire(timeout=_DEADLINE_S), "threads did not connect"
        connected_s = time.perf_counter() - began
        reports, cpu_s, now = driver.reports, _cpu_s(), time.perf_counter()
        time.sleep(quiet_s)
        took_s = time.perf_counter() - now
        reports, cpu_s = driver.reports - reports, _cpu_s() - cpu_s
        rounds = [driver.request_all(names) for _ in range(_REQUEST_ROUNDS)]
        last = sorted(answered[-1] for answered in rounds)
        middle = sorted(answered[len(answered) // 2] for answered in rounds)
        result = ConnectionCosts(
            threads,
            connected_s,
            (_memory_kb() - memory_kb) / 1024 * 1000 / threads,
            threading.active_count() - python_threads,
            _open_files() - files,
            cpu_s / took_s,
            reports / took_s,
            (last[len(last) // 2], last[-1]),
            middle[len(middle) // 2],
        )
        for name in names:
            driver.server.send(name, Close())
        return result


@contextmanager
def _process(driver: Driver, threads: int, first: int, end: int) -> Iterator[None]:
    """Run a process with the stream threads from `first` to `end`."""
    host, port = driver.server.address
    numbers = map(str, (threads, first, end))
    command = [sys.executable, __file__, host, str(port), *numbers]
    environment = {**os.environ, "MILLSTREAM_BENCH_KEY": driver.key.hex()}
    process = subprocess.Popen(command, env=environment)
    try:
        yield
        process.wait(_DEADLINE_S)
    finally:
        process.kill()
        process.wait()


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure with increasing numbers of threads; return the results to save."""
    _allow_files(8_192)
    counts = (20,) if options.smoke else (100, 500, 1_000)
    print(f"\nconnections of stream threads with {_TASKS} tasks each to one driver\n")
    head = f"{'threads':>8} {'connected s':>11} {'MB':>6} {'py threads':>10} {'files':>6}"
    print(
        f"{head} {'cores':>6} {'reports/s':>10} {'median reply ms':>15} {'last reply ms':>14} "
        f"{'max':>7}"
    )
    measured: dict[str, Any] = {}
    for count in counts:
        one = measure(count, _SMOKE_QUIET_S if options.smoke else _QUIET_S)
        print(
            f"{count:>8,} {one.connected_s:>11.1f} {one.mb_a_thousand * count / 1000:>6.0f} "
            f"{one.python_threads:>10,} {one.files:>6,} {one.cores:>6.2f} {one.reports:>10,.0f} "
            f"{one.median_reply_s * 1000:>15,.0f} {one.last_reply_s[0] * 1000:>14,.0f} "
            f"{one.last_reply_s[1] * 1000:>7,.0f}"
        )
        measured[str(count)] = {
            "connected_s": one.connected_s,
            "mb_a_thousand": one.mb_a_thousand,
            "python_threads": one.python_threads,
            "files": one.files,
            "cores": one.cores,
            "reports": one.reports,
            "all_answered_s": one.last_reply_s,
            "half_answered_s": one.median_reply_s,
        }
    return measured


class _StreamThreads:
    """The stream threads' ends, in a separate process."""

    def __init__(
        self, address: tuple[str, int], key: bytes, numbers: range, interval_ms: int
    ) -> None:
        self._wakeups: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._processed = 0.0
        self._interval_s = interval_ms / 1000
        self._ends: list[tuple[ControlChannel, MetricsScope, FrameWriter]] = []
        for number in numbers:
            hello = Hello("bench", _name(number), number, Epoch(1, 0), os.getpid(), "localhost")
            channel = ControlChannel(address, key, hello)
            channel.on_event = lambda: self._wakeups.put(None)
            assert channel.open(), channel.lost_reason
            channel.take_code()
            scope = self._scope()
            self._ends.append((channel, scope, FrameWriter(scope)))

    def run(self) -> None:
        """Report and reply until the driver closes all connections."""
        interval_s = self._interval_s / len(self._ends)
        due, turn = time.monotonic(), 0
        open_ends = len(self._ends)
        while open_ends:
            try:
                self._wakeups.get(timeout=max(0.0, due - time.monotonic()))
                open_ends -= sum(map(self._execute, self._ends))
            except queue.Empty:
                # One thread at a time, spread over the interval like reports from many machines.
                channel, _, frames = self._ends[turn]
                self._processed += 1
                channel.report(ThreadMetrics(frames.next()))
                turn = (turn + 1) % len(self._ends)
                due += interval_s
        for channel, *_ in self._ends:
            channel.close()

    def _execute(self, end: tuple[ControlChannel, MetricsScope, FrameWriter]) -> bool:
        """Execute the commands of a thread; return whether one of them was Close."""
        channel, scope, _ = end
        is_over = False
        for request in channel.commands():
            is_over |= isinstance(request.command, Close)
            if isinstance(request.command, GetMetrics):
                channel.reply(request, ThreadMetrics(FrameWriter(scope).full()))
        return is_over

    def _scope(self) -> MetricsScope:
        scope = MetricsScope(SystemClock())
        for number in range(_TASKS):
            task = scope.child(task_id=str(TaskId(0, number)))
            task.add(TASK_GROUP, "process-total", lambda: self._processed)
            for metric in range(_METRICS - 1):
                # Every second metric changes between reports.
                steady = float(metric)
                task.add(
                    TASK_GROUP,
                    f"metric-{metric}",
                    (lambda: self._processed) if metric % 2 else (lambda value=steady: value),  # type: ignore[misc]
                )
        return scope


def _name(number: int) -> str:
    return f"bench-StreamThread-{number}"


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _memory_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmRSS:")[1].split()[0])


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def _allow_files(file_limit: int) -> None:
    """Raise the limit of open files as far as possible, also for child processes."""
    limit, maximum = resource.getrlimit(resource.RLIMIT_NOFILE)
    file_limit = file_limit if maximum == resource.RLIM_INFINITY else min(file_limit, maximum)
    if limit != resource.RLIM_INFINITY and limit < file_limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (file_limit, maximum))


def _main() -> None:
    host, port, threads, first, end = sys.argv[1:]
    key = bytes.fromhex(os.environ.pop("MILLSTREAM_BENCH_KEY"))
    numbers = range(int(first), int(end))
    _StreamThreads((host, int(port)), key, numbers, report_interval_ms(int(threads))).run()


if __name__ == "__main__":
    _main()
