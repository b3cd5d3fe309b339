"""The real Kafka Streams as a process that answers scenarios: the oracle of the conformance tests.

`Oracle.java` runs a scenario through Kafka Streams' own `TopologyTestDriver` and adds what it saw
under `expect`. The jars are fetched once, as those of the embedded broker are, and kept beside
them; the program is compiled once, which takes a JDK rather than a mere Java runtime.

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

from millstream.embedded.jars import JarSet, cache_folder, fetched_jars
from millstream.embedded.java import Java, find_java
from millstream.errors import EmbeddedKafkaError

HERE = Path(__file__).parent
SOURCE = HERE / "Oracle.java"
MAIN = "org.apache.kafka.streams.Oracle"
#: Long for one scenario, and still an end.
ANSWER_TIMEOUT_S = 120
#: How many scenarios are under way in Java while Python works on what came back.
AHEAD = 16

Scenario = dict[str, Any]


class OracleUnavailable(Exception):  # noqa: N818 - it is no error where tests are skipped
    """Kafka Streams cannot be run here; says why."""


class OracleFailed(Exception):  # noqa: N818
    """The Java process ended or did not answer; says what it said last."""


def sums() -> dict[str, str]:
    """The SHA-256 of every jar by file name."""
    lines = (HERE / "jars.sha256").read_text().splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def class_path(source: Path = SOURCE, *more: Path) -> tuple[Java, str]:
    """Java and the class path of a compiled program; fetches and compiles what is missing.

    Args:
        source: of the program on Kafka Streams, by default of the oracle.
        more: of classes that it consists of.

    Raises:
        OracleUnavailable: there is no JDK, or the jars could not be fetched.
    """
    try:
        java = find_java()
        dependencies = (HERE / "ivy.xml").read_text()
        folder = cache_folder(what="kafka-streams")
        wanted = JarSet(folder, sums(), dependencies, "Kafka Streams")
        jars = [str(jar) for jar in fetched_jars(wanted, java)]
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
        made = Path(work) / "classes"
        options = ["-nowarn", "-d", str(made), "-cp", os.pathsep.join(jars)]
        command = [str(compiler), *options, *map(str, sources)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise OracleUnavailable(f"{sources[0].name} does not compile: {done.stderr}")
        # Whoever else has compiled it meanwhile has the same.
        with suppress(OSError):
            made.rename(classes)


class KafkaStreams:
    """A running oracle. A context manager; one thread uses it.

    Raises:
        OracleUnavailable: it cannot be started here.
    """

    def __init__(self) -> None:
        java, path = class_path()
        place = tempfile.tempdir or memory()
        self._folder = tempfile.mkdtemp(prefix="kafka-streams-oracle-", dir=place)
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
        # The pipe is emptied all the time, so that neither side waits for the other to read.
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> KafkaStreams:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, scenario: Scenario) -> Scenario:
        """The scenario with what Kafka Streams did under `expect`, or with `bad`: why it cannot."""
        return next(self.run_all([scenario]))

    def run_all(self, scenarios: Iterable[Scenario]) -> Iterator[Scenario]:
        """The same for each of several, a few of them ahead of what was taken from here."""
        todo = iter(scenarios)
        under_way = 0
        for scenario in islice(todo, AHEAD):
            self._send(scenario)
            under_way += 1
        while under_way:
            answer = self._receive()
            under_way -= 1
            for scenario in islice(todo, 1):
                self._send(scenario)
                under_way += 1
            yield answer

    def close(self) -> None:
        """End the process and remove what it left behind."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
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
            raise OracleFailed(self._last_words()) from error

    def _receive(self) -> Scenario:
        try:
            line = self._answers.get(timeout=ANSWER_TIMEOUT_S)
        except queue.Empty:
            self._process.kill()
            raise OracleFailed(f"no answer in {ANSWER_TIMEOUT_S} s") from None
        if not line:
            raise OracleFailed(self._last_words())
        answer: Scenario = json.loads(line)
        return answer

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")

    def _last_words(self) -> str:
        self._process.wait()
        self._stderr.seek(0)
        said = self._stderr.read().decode("utf-8", "replace")
        return f"exit code {self._process.returncode}: {said[-2_000:]}"


def memory() -> str | None:
    """A file system in memory, if there is one: each scenario makes and removes its stores.

    On a busy disk that takes five times as long.
    """
    place = Path("/dev/shm")
    return str(place) if os.access(place, os.W_OK) else None


def main(source: str, target: str) -> None:
    """Read scenarios, write them with what Kafka Streams did."""
    lines = sys.stdin if source == "-" else Path(source).open(encoding="utf-8")  # noqa: SIM115
    out = sys.stdout if target == "-" else Path(target).open("w", encoding="utf-8")  # noqa: SIM115
    with lines, out, KafkaStreams() as oracle:
        for answer in oracle.run_all(json.loads(line) for line in lines if line.strip()):
            out.write(json.dumps(answer, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["-", "-"]))
