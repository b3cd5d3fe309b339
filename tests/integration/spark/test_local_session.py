"""The local session of a process: interrupted starts, sharing, and loss."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from support.broker.topics import unique
from support.machine.leftovers import runs
from support.machine.scripts import Script
from support.waiting import wait_for

from millstream.testing import EmbeddedKafka

COPYING = """
import json, os, signal, sys, time
from datetime import timedelta
from millstream import IllegalStateError, KafkaStreams, NotEnoughSlotsError
from millstream import StreamsBuilder, StreamsConfig
from millstream.serdes import STRING

BOOTSTRAP, TOPIC, STATE = sys.argv[1:]

def application(name, threads=1, state="state"):
    builder = StreamsBuilder()
    builder.stream(TOPIC, key=STRING, value=STRING).for_each(lambda key, value: None)
    config = StreamsConfig(
        application_id=name, bootstrap_servers=BOOTSTRAP, num_stream_threads=threads,
        state_dir=f"{STATE}/{state}",
        consumer={"session.timeout.ms": 6_000, "heartbeat.interval.ms": 1_000},
    )
    return KafkaStreams(builder.build(), config)
"""

RUN = """
if __name__ == "__main__":
    print("run", flush=True)
    application(f"{TOPIC}-run").run()
"""

START = """
if __name__ == "__main__":
    try:
        application(f"{TOPIC}-start").start()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""

SHARED = """
RUNNING = timedelta(seconds=60)

def refused(kind, streams):
    try:
        streams.start()
    except kind as error:
        return str(error)
    raise AssertionError("it was started")

def main():
    from pyspark import SparkContext

    one, other = application(f"{TOPIC}-one", threads=2), application(f"{TOPIC}-other")
    one.start()
    other.start()
    again = application(f"{TOPIC}-other")
    print("again", refused(IllegalStateError, again), flush=True)
    print("many", refused(NotEnoughSlotsError, application(f"{TOPIC}-many", threads=4)), flush=True)
    beside = application(f"{TOPIC}-other", state="elsewhere")
    beside.start()
    for each in (one, other, beside):
        each.wait_for_state("RUNNING", RUNNING)
    print("running", KafkaStreams.running() == [one, other, beside], flush=True)
    print("one closed", one.close(), flush=True)
    beside.close()
    time.sleep(1)
    print("other", other.state.name, other.error, flush=True)
    print("other closed", other.close(), flush=True)
    print("stopped", SparkContext._active_spark_context is None, flush=True)

    again.start()
    again.wait_for_state("RUNNING", RUNNING)
    SparkContext._gateway.proc.kill()
    try:
        again.wait_for_state("NOT_RUNNING", RUNNING)
    except Exception as error:
        print("lost", type(error).__name__, flush=True)
    print("lost closed", again.close(), again.state.name, flush=True)

    last = application(f"{TOPIC}-last")
    last.start()
    last.wait_for_state("RUNNING", RUNNING)
    print("last closed", last.close(), flush=True)

if __name__ == "__main__":
    main()
"""


def java_of(pid: int) -> int | None:
    """The JVM process of a script that is starting Spark."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or not runs(int(entry.name)):
            continue
        try:
            parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            command = (entry / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if parent == pid and b"SparkSubmit" in command:
            return int(entry.name)
    return None


@pytest.mark.parametrize(
    ("text", "number"), [(RUN, signal.SIGTERM), (START, signal.SIGINT)], ids=["run", "start"]
)
def test_a_signal_does_not_wait_for_the_start_of_spark(
    kafka: EmbeddedKafka, tmp_path: Path, text: str, number: signal.Signals
) -> None:
    """Goal: a signal during Spark's start ends the script and all processes that it has started.

    Method: the JVM is suspended, so its start would never complete.
    """
    topic = unique("in")
    kafka.create_topic(topic)
    app = tmp_path / "app.py"
    app.write_text(COPYING + text)
    arguments = (kafka.bootstrap_servers, topic, str(tmp_path / "state"))
    with Script(app, *arguments, home=tmp_path / "home") as script:
        java = wait_for(lambda: java_of(script.pid), 60, "Spark is starting")
        assert java is not None
        os.kill(java, signal.SIGSTOP)
        script.signal(number)
        assert script.wait_ended(30) == 0, script.errors
        wait_for(lambda: not script.group_exists(), 10, "its processes have ended")
        assert "Traceback" not in script.errors, script.errors
        if text is RUN:
            assert "SIGTERM" in script.errors
            assert "stopped, before anything was processed" in script.errors
        else:
            script.wait_for_line("interrupted", 10)


@pytest.mark.extended
def test_applications_of_one_process_share_it(kafka: EmbeddedKafka, tmp_path: Path) -> None:
    """Goal: the session is stopped with its last user, too small ones are rejected, and its loss is
    reported.

    A second start of one application is rejected, unless it has another state directory.
    """
    topic = unique("in")
    kafka.create_topic(topic, 2)
    app = tmp_path / "app.py"
    app.write_text(COPYING + SHARED)
    arguments = (kafka.bootstrap_servers, topic, str(tmp_path / "state"))
    with Script(app, *arguments, home=tmp_path / "home") as script:
        refused = script.wait_for_line("again", 120)
        assert f"<KafkaStreams '{topic}-other': REBALANCING" in refused or "RUNNING" in refused
        assert "KafkaStreams.running()" in refused
        assert "app.py:" in refused
        small = script.wait_for_line("many")
        assert "has 6 task slots" in small
        assert f"{topic}-one (2), {topic}-other (1)" in small
        assert script.wait_for_line("running", 120) == "True"
        assert script.wait_for_line("one closed", 60) == "True"
        assert script.wait_for_line("other") == "RUNNING None"
        assert script.wait_for_line("other closed", 60) == "True"
        assert script.wait_for_line("stopped") == "True"
        assert script.wait_for_line("lost", 120) == "SparkError"
        assert script.wait_for_line("lost closed", 60) == "False ERROR"
        assert script.wait_for_line("last closed", 120) == "True"
        assert script.wait_ended(30) == 0, script.errors
        wait_for(lambda: not script.group_exists(), 10, "its processes have ended")
        assert "py4j" not in script.errors, script.errors
