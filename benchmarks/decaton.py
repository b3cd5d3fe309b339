"""Decaton 9.5 for benchmarks and tests: jars, programs, and task rates.

The programs are single Java files, which Java compiles in memory at startup; this requires a JDK 17
or later. The environment variable MILLSTREAM_DECATON_JARS is a folder with Decaton's jars:
`com.linecorp.decaton:decaton-client` and `decaton-processor` in version 9.5.0 with their
dependencies, and nothing else.

    python benchmarks/decaton.py     # a few tasks of each kind, as a check
"""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from millstream.embedded.java import find_java
from millstream.errors import EmbeddedKafkaError
from millstream.testing import EmbeddedKafka

Work = Literal["sleep", "noop", "http"]

JARS = "MILLSTREAM_DECATON_JARS"
PEER = Path(__file__).parent / "peers" / "decaton" / "DecatonPeer.java"
ANSWER_S = 0.01
_TIMEOUT_S = 30
_RUN_TIMEOUT_S = 600


class DecatonUnavailable(Exception):  # noqa: N818 - a reason to skip tests
    """Decaton cannot run here; the message contains the reason."""


def command(source: Path, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    """Return the command line of a Java program that uses Decaton.

    Args:
        source: the source file.
        arguments: the arguments of its `main`.
        options: the options of Java.

    Raises:
        DecatonUnavailable: no JDK was found, or the folder of jars is not set.
    """
    folder = os.environ.get(JARS)
    if not folder:
        raise DecatonUnavailable(
            f"Decaton's jars are missing: set {JARS} to a folder with decaton-client and "
            "decaton-processor 9.5.0 and their dependencies."
        )
    jars = sorted(Path(folder).expanduser().glob("*.jar"))
    if not any(jar.name.startswith("decaton-") for jar in jars):
        raise DecatonUnavailable(f"{JARS} is {folder}, which contains no jars of Decaton.")
    try:
        java = find_java().path
    except EmbeddedKafkaError as error:
        raise DecatonUnavailable(str(error)) from error
    if not java.resolve().with_name("javac").is_file():
        raise DecatonUnavailable(f"There is no javac next to {java}: install a JDK.")
    path = os.pathsep.join(map(str, jars))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [str(java), quiet, *options, "-cp", path, str(source), *arguments]


def fill(bootstrap: str, topic: str, partitions: int, tasks: int) -> None:
    """Create a topic with tasks, which are spread over the partitions.

    Each task has a different key.

    Raises:
        KafkaException: the topic exists, or a broker rejects it.
        RuntimeError: not all tasks were written.
    """
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(_TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
    for number in range(tasks):
        while True:
            try:
                producer.produce(topic, b"task-%d" % number, b"%d" % number, number % partitions)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(_TIMEOUT_S * 2):
        raise RuntimeError(f"Not all tasks were written to {topic}.")


def run_decaton(
    bootstrap: str,
    topic: str,
    partitions: int,
    concurrency: int,
    work: Work = "sleep",
    *,
    tasks: int,
    url: str | None = None,
) -> float:
    """Run a Decaton subscription, and return its tasks per second.

    The time is measured from the start of the first task to the end of the last. Decaton has its
    defaults except for the concurrency.

    Args:
        bootstrap: the bootstrap servers.
        topic: created and filled if it does not exist; otherwise it must contain `tasks` tasks.
        partitions: the partitions of the topic.
        concurrency: threads per partition.
        work: the work of each task: a sleep of 10 ms, nothing, or a request to the URL.
        tasks: the number of tasks in the topic.
        url: the URL for "http".

    Raises:
        DecatonUnavailable: no JDK was found, or the folder of jars is not set.
        RuntimeError: the program failed, or processed another number of tasks.
        TimeoutExpired: the program took more than ten minutes.
    """
    group = f"decaton-{time.time_ns() // 1_000_000:x}"
    arguments = (bootstrap, topic, group, str(concurrency), work, str(tasks), url or "")
    line = command(PEER, *arguments)
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=_TIMEOUT_S)
    if topic not in metadata.topics:
        fill(bootstrap, topic, partitions, tasks)
    elif len(metadata.topics[topic].partitions) != partitions:
        raise RuntimeError(f"{topic} has {len(metadata.topics[topic].partitions)} partitions.")
    done = subprocess.run(line, capture_output=True, text=True, timeout=_RUN_TIMEOUT_S, check=False)
    output = dict(row.split() for row in done.stdout.splitlines() if row.count(" ") == 1)
    if done.returncode or int(output.get("TASKS", -1)) != tasks:
        raise RuntimeError(f"Decaton failed ({output}): {done.stderr[-2_000:]}")
    return tasks / (int(output["NANOSECONDS"]) / 1e9)


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        time.sleep(ANSWER_S)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@contextmanager
def answer_server() -> Iterator[str]:
    """Run a server that responds after 10 ms, and yield its URL.

    Only suitable for smoke tests, because it needs more CPU time than its clients.
    """
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Answer)
    server.daemon_threads = True
    with ThreadPoolExecutor(1) as pool:
        pool.submit(server.serve_forever)
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/"
        finally:
            server.shutdown()
            server.server_close()


def smoke() -> None:
    """Run a few tasks of each kind."""
    with EmbeddedKafka() as kafka, answer_server() as url:
        servers = kafka.bootstrap_servers
        cases: tuple[tuple[int, int, Work, int], ...] = (
            (1, 20, "sleep", 400),
            (3, 20, "noop", 30_000),
            (1, 10, "http", 100),
        )
        for partitions, concurrency, work, tasks in cases:
            topic = f"{work}-{partitions}"
            rate = run_decaton(servers, topic, partitions, concurrency, work, tasks=tasks, url=url)
            print(f"{work}: {partitions} x {concurrency}, {tasks} tasks: {rate:,.0f} tasks/s")


if __name__ == "__main__":
    smoke()
