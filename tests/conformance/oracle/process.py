"""Kafka Streams in a Java process: the oracle of the conformance tests.

`Oracle.java` runs a scenario with Kafka Streams' `TopologyTestDriver` and adds the results under
`expect`. The jars are downloaded once, like those of the embedded broker, and stored beside them.
The program is compiled once, which needs a JDK.

    .venv/bin/python tests/conformance/oracle/process.py IN OUT    # JSONL; "-" is stdin or stdout
"""

from __future__ import annotations

import hashlib
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from support.waiting import wait_or_kill

from millstream.embedded.jars import JarSet, cache_folder, fetched_jars
from millstream.embedded.java import Java, find_java
from millstream.errors import EmbeddedKafkaError

HERE = Path(__file__).parent
SOURCE = HERE / "Oracle.java"
MAIN = "org.apache.kafka.streams.Oracle"
#: The timeout of an answer, far longer than any scenario takes.
ANSWER_TIMEOUT_S = 120
#: The number of scenarios in Java's queue while Python processes answers.
AHEAD = 16

Scenario = dict[str, Any]


class OracleUnavailable(Exception):  # noqa: N818 - not an error if tests are skipped
    """Kafka Streams cannot be run here; the text is the reason."""


class OracleFailed(Exception):  # noqa: N818
    """The Java process ended or did not answer; the text contains its last output."""


def sums() -> dict[str, str]:
    """The SHA-256 of every jar by file name."""
    lines = (HERE / "jars.sha256").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def class_path(source: Path = SOURCE, *more: Path) -> tuple[Java, str]:
    """Return Java and the class path of a compiled program. Downloads and compiles if needed.

    Args:
        source: the program, by default the oracle.
        more: sources of other classes.

    Raises:
        OracleUnavailable: there is no JDK, or the jars could not be downloaded.
    """
    try:
        java = find_java()
        dependencies = (HERE / "ivy.xml").read_text()
        folder = cache_folder(what="kafka-streams")
        jar_set = JarSet(folder, sums(), dependencies, "Kafka Streams")
        jars = [str(jar) for jar in fetched_jars(jar_set, java)]
    except EmbeddedKafkaError as error:
        raise OracleUnavailable(str(error)) from error
    text = b"".join(file.read_bytes() for file in (source, *more))
    digest = hashlib.sha256(text).hexdigest()[:16]
    classes = folder.with_name(f"{folder.name}-oracle") / digest
    if not classes.is_dir():
        _compile(_compiler(java), jars, classes, source, *more)
    return java, os.pathsep.join([str(classes), *jars])


def _compiler(java: Java) -> Path:
    compiler = java.path.resolve().with_name("javac")
    if not compiler.is_file():
        raise OracleUnavailable(f"There is no javac beside {java.path}: install a JDK.")
    return compiler


def _compile(compiler: Path, jars: Sequence[str], classes: Path, *sources: Path) -> None:
    classes.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=classes.parent) as work:
        compiled = Path(work) / "classes"
        options = ["-nowarn", "-d", str(compiled), "-cp", os.pathsep.join(jars)]
        command = [str(compiler), *options, *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OracleUnavailable(f"{sources[0].name} does not compile: {done.stderr}")
        # Another process may have compiled the same sources in the meantime.
        with suppress(OSError):
            compiled.rename(classes)


class KafkaStreams:
    """A running oracle; a context manager for a single thread.

    Raises:
        OracleUnavailable: the oracle cannot be started here.
    """

    def __init__(self) -> None:
        java, path = class_path()
        parent = tempfile.tempdir or memory_folder()
        self._folder = tempfile.mkdtemp(prefix="kafka-streams-oracle-", dir=parent)
        options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx768m"]
        command = [str(java.path), *options, f"-Djava.io.tmpdir={self._folder}", "-cp", path, MAIN]
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._process = subprocess.Popen(
            [*command, "-", "-"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            text=True,
            encoding="utf-8",
        )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        # A thread empties the pipe, so that neither side blocks the other.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> KafkaStreams:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, scenario: Scenario) -> Scenario:
        """Run a scenario; return it with Kafka Streams' results under `expect`, or with a reason
        under `bad`."""
        return next(self.run_all([scenario]))

    def run_all(self, scenarios: Iterable[Scenario]) -> Iterator[Scenario]:
        """Run several scenarios, a few of them ahead of the consumed results."""
        remaining = iter(scenarios)
        pending = 0
        for scenario in islice(remaining, AHEAD):
            self._send(scenario)
            pending += 1
        while pending:
            answer = self._receive()
            pending -= 1
            for scenario in islice(remaining, 1):
                self._send(scenario)
                pending += 1
            yield answer

    def close(self) -> None:
        """End the process and delete its files."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        wait_or_kill(self._process, 10)
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._stderr.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _send(self, scenario: Scenario) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(scenario, ensure_ascii=False) + "\n")
            self._process.stdin.flush()
        except OSError as error:
            raise OracleFailed(self._exit_message()) from error

    def _receive(self) -> Scenario:
        try:
            line = self._answers.get(timeout=ANSWER_TIMEOUT_S)
        except queue.Empty:
            self._process.kill()
            raise OracleFailed(f"no answer in {ANSWER_TIMEOUT_S} s") from None
        if not line:
            raise OracleFailed(self._exit_message())
        answer: Scenario = json.loads(line)
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _exit_message(self) -> str:
        self._process.wait()
        self._stderr.seek(0)
        output = self._stderr.read().decode("utf-8", "replace")
        return f"exit code {self._process.returncode}: {output[-2_000:]}"


def memory_folder() -> str | None:
    """The path of an in-memory file system, if there is one.

    Each scenario creates and deletes its stores, which takes five times as long on a busy disk.
    """
    parent = Path("/dev/shm")
    return str(parent) if os.access(parent, os.W_OK) else None


def main(source: str, target: str) -> None:
    """Read scenarios and write them with Kafka Streams' results."""
    lines = sys.stdin if source == "-" else Path(source).open(encoding="utf-8")  # noqa: SIM115
    out = sys.stdout if target == "-" else Path(target).open("w", encoding="utf-8")  # noqa: SIM115
    with lines, out, KafkaStreams() as oracle:
        for answer in oracle.run_all(json.loads(line) for line in lines if line.strip()):
            out.write(json.dumps(answer, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["-", "-"]))
