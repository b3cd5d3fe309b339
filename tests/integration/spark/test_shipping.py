"""A user's script as a program: with its own modules, its own session, Ctrl-C."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from support.broker.topics import committed_lag, fill, latest, read_all, unique
from support.machine.leftovers import nothing_left
from support.machine.scripts import Script
from support.waiting import wait_for

from millstream import KafkaStreams, NotPicklableError, StreamsBuilder, StreamsConfig
from millstream.serdes import LONG, STRING
from millstream.testing import EmbeddedKafka

APP = """
import sys

import helpers
from millstream import KafkaStreams, StreamsBuilder, StreamsConfig
from millstream.serdes import LONG, STRING

BOOTSTRAP, NAME, STATE = sys.argv[1:]
LONGEST = 12


def main():
    shortest = helpers.SHORTEST

    def is_a_word(_, word):
        import deeper  # Found as well, on this machine.

        return shortest <= len(word) <= LONGEST and word not in deeper.STOP_WORDS

    builder = StreamsBuilder()
    (
        builder.stream(f"{NAME}-lines", key=STRING, value=STRING)
        .flat_map_values(helpers.words)
        .filter(is_a_word)
        .group_by(lambda _, word: word, key=STRING, value=STRING)
        .count(store="counts")
        .to_stream()
        .to(f"{NAME}-counts", key=STRING, value=LONG)
    )
    config = StreamsConfig(
        application_id=NAME,
        bootstrap_servers=BOOTSTRAP,
        state_dir=STATE,
        num_stream_threads=2,
        commit_interval_ms=60_000,
        statestore_cache_max_bytes=0,
    )
    streams = KafkaStreams(builder.build(), config)
    streams.set_state_listener(lambda new, _: print("state", new.name, flush=True))
    streams.run()
    print("pids", *(t.pid for t in streams.metadata_for_local_threads()), flush=True)


if __name__ == "__main__":
    main()
"""

HELPERS = """
import re

import deeper

SHORTEST = 3
WORD = re.compile("[a-z]+")


def words(line):
    return [word for word in WORD.findall(deeper.Folding().fold(line))]
"""

DEEPER = """
STOP_WORDS = frozenset({"the", "and"})


class Folding:
    def fold(self, line):
        return line.lower()
"""


class App:
    """The script in its own folder, and its topics."""

    def __init__(self, kafka: EmbeddedKafka, folder: Path) -> None:
        self._folder = folder
        self.bootstrap = kafka.bootstrap_servers
        self.name = unique("shipped")
        for kind in ("lines", "counts"):
            kafka.create_topic(f"{self.name}-{kind}", 2)
        scripts = folder / "scripts"
        scripts.mkdir()
        self._path = scripts / "app.py"
        self._path.write_text(APP)
        (scripts / "helpers.py").write_text(HELPERS)
        (scripts / "deeper.py").write_text(DEEPER)
        self._runs = 0

    def run(self) -> Script:
        self._runs += 1
        arguments = (self.bootstrap, self.name, str(self._folder / "state"))
        # Its working directory is different, so that modules are not found by accident.
        return Script(self._path, *arguments, home=self._folder / f"run-{self._runs}")

    def write(self, line: str, count: int) -> None:
        lines = ((b"%d" % number, line.encode()) for number in range(count))
        fill(self.bootstrap, f"{self.name}-lines", lines)

    def counts(self) -> dict[str, int]:
        found = latest(self.bootstrap, f"{self.name}-counts")
        return {(k or b"").decode(): LONG.deserialize("", v) or 0 for k, v in found.items()}

    def outputs(self) -> int:
        return len(read_all(self.bootstrap, f"{self.name}-counts"))

    @property
    def lag(self) -> int:
        return committed_lag(self.bootstrap, self.name, f"{self.name}-lines")


def interrupt(script: Script) -> None:
    """Send Ctrl-C as a terminal does: SIGINT to every process of the script, which must exit
    soon and successfully."""
    script.signal_group(signal.SIGINT)
    code = script.wait_ended(30)
    wait_for(lambda: not script.group_exists(), 30, "all its processes have ended")
    assert code == 0, script.errors
    assert "Traceback" not in script.errors
    assert script.lines[-3:] == ["state PENDING_SHUTDOWN", "state NOT_RUNNING", "pids"]


@pytest.mark.extended
def test_a_script_with_local_modules(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: lambdas, closures and local modules are shipped; Ctrl-C commits; nothing is repeated.

    Method: no commit is due before Ctrl-C, and without a cache each count is an output record.
    """
    app = App(kafka, tmp_path)
    app.write("The Cat AND the dog, a cat!", 100)
    with app.run() as script:
        wait_for(
            lambda: app.counts() == {"cat": 200, "dog": 100} or not script.is_running,
            90,
            f"counted; {script.errors}",
        )
        interrupt(script)
    assert app.lag == 0
    outputs = app.outputs()
    assert outputs == 300
    app.write("the bird", 50)
    with app.run() as script:
        wait_for(
            lambda: app.counts().get("bird") == 50 or not script.is_running,
            90,
            f"counted; {script.errors}",
        )
        interrupt(script)
    assert app.lag == 0
    assert app.counts() == {"cat": 200, "dog": 100, "bird": 50}
    assert app.outputs() == outputs + 50, "records were processed twice"


def test_unpicklable_objects_are_named(
    kafka: EmbeddedKafka, spark: SparkSession, tmp_path: Path
) -> None:
    """Goal: the error names the node, the variable and its type, before any thread is started."""
    lock = threading.Lock()

    def guarded(value: str) -> str:
        with lock:
            return value

    builder = StreamsBuilder()
    (
        builder.stream("in", key=STRING, value=STRING)
        .map_values(guarded, name="guard")
        .to("out", key=STRING, value=STRING)
    )
    config = StreamsConfig(
        application_id=unique("unpicklable"),
        bootstrap_servers=kafka.bootstrap_servers,
        state_dir=str(tmp_path),
    )
    streams = KafkaStreams(builder.build(), config, spark)
    with nothing_left(), pytest.raises(NotPicklableError) as raised:
        streams.start()
    error = raised.value
    assert error.node == "guard"
    assert error.type_name.endswith("lock")
    assert "'guard'" in str(error)
    assert "'lock'" in str(error)
    assert "Create it in the worker" in str(error)
    assert streams.state.name == "ERROR"
    assert streams.error is error


_UNPICKLABLE = """
import threading
from millstream import KafkaStreams, StreamsBuilder, StreamsConfig
from millstream.serdes import STRING

lock = threading.Lock()

def guarded(value):
    with lock:
        return value

builder = StreamsBuilder()
builder.stream("in", key=STRING, value=STRING).map_values(guarded).to("out")
config = StreamsConfig(
    application_id="one", bootstrap_servers="127.0.0.1:1", default_key_serde=STRING,
    default_value_serde=STRING,
)
KafkaStreams(builder.build(), config).run()
"""


def test_a_mistake_in_a_script_is_reported_once(tmp_path: Path) -> None:
    """Goal: mistakes that this machine can detect are reported before the application waits for
    a broker, without a traceback."""
    script = tmp_path / "app.py"
    script.write_text(_UNPICKLABLE)
    ran = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=60, cwd=tmp_path
    )
    assert ran.returncode == 1
    assert ran.stderr.count("cannot pickle") == 1
    assert "cloudpickle.py" not in ran.stderr
    assert ran.stderr.splitlines()[-1].startswith("millstream.errors.NotPicklableError: ")
