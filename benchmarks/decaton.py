"""Decaton 9.5 beside a benchmark or a test: its jars, programs on it, and tasks a second.

The programs are single Java files, which Java compiles in memory as it starts them: that takes a
JDK of version 17 or newer. Decaton's jars are those in the folder that the environment variable
MILLSTREAM_DECATON_JARS names: `com.linecorp.decaton:decaton-client` and `decaton-processor` of
version 9.5.0 with all that they depend on, and nothing else.

    python benchmarks/decaton.py     # a few tasks of each kind: does it work?
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


class DecatonUnavailable(Exception):  # noqa: N818 - it is no error where tests are skipped
    """Decaton cannot be run here; says why."""


def command(source: Path, *arguments: str, options: tuple[str, ...] = ()) -> list[str]:
    """The command line of a Java program on Decaton.

    Args:
        source: of the program, in one file.
        arguments: of its `main`.
        options: of Java.

    Raises:
        DecatonUnavailable: there is no JDK, or nobody said where the jars are.
    """
    folder = os.environ.get(JARS)
    if not folder:
        raise DecatonUnavailable(
            f"Decaton's jars are not there: let {JARS} name a folder with decaton-client and "
            "decaton-processor 9.5.0 and all that they depend on."
        )
    jars = sorted(Path(folder).expanduser().glob("*.jar"))
    if not any(jar.name.startswith("decaton-") for jar in jars):
        raise DecatonUnavailable(f"{JARS} names {folder}, in which there is no jar of Decaton.")
    try:
        java = find_java().path
    except EmbeddedKafkaError as error:
        raise DecatonUnavailable(str(error)) from error
    if not java.resolve().with_name("javac").is_file():
        raise DecatonUnavailable(f"There is no javac beside {java}: install a JDK.")
    path = os.pathsep.join(map(str, jars))
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    return [str(java), quiet, *options, "-cp", path, str(source), *arguments]


def fill(bootstrap: str, topic: str, partitions: int, tasks: int) -> None:
    """Make a topic of tasks, each with a key of its own, spread evenly over the partitions.

    Raises:
        KafkaException: it exists, or a broker refuses it.
        RuntimeError: not all tasks arrived.
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
    """Tasks a second that a Decaton subscription gets done: from the start of the first to the end
    of the last, with Decaton's defaults beside the concurrency.

    Args:
        bootstrap: of the broker.
        topic: made and filled if it does not exist; else it must hold as many tasks.
        partitions: of the topic.
        concurrency: in each partition, in threads.
        work: of each task: a sleep of 10 ms, nothing, or a call of the URL.
        tasks: how many there are in the topic.
        url: what is called for "http".

    Raises:
        DecatonUnavailable: there is no JDK, or nobody said where the jars are.
        RuntimeError: the program failed, or processed another number of tasks.
        TimeoutExpired: it took more than ten minutes.
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
    told = dict(row.split() for row in done.stdout.splitlines() if row.count(" ") == 1)
    if done.returncode or int(told.get("TASKS", -1)) != tasks:
        raise RuntimeError(f"Decaton failed ({told}): {done.stderr[-2_000:]}")
    return tasks / (int(told["NANOSECONDS"]) / 1e9)


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        time.sleep(ANSWER_S)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"ok")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is written."""


@contextmanager
def answering() -> Iterator[str]:
    """The URL of a server on this machine that takes 10 ms to answer; for smoke tests, as it takes
    more of a processor than what calls it."""
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
    """A few tasks of each kind."""
    with EmbeddedKafka() as kafka, answering() as url:
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
