"""A script's signals are handled at any time, and each further signal is more forceful."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: An application that runs immediately, without Spark and a broker: only `run` is real.
APPLICATION = """
import os, signal, sys, threading, time
from millstream import KafkaStreams, StreamsBuilder, StreamsConfig
from millstream.serdes import STRING

builder = StreamsBuilder()
builder.stream("in", key=STRING, value=STRING).to("out")
CONFIG = StreamsConfig(
    application_id="shop", bootstrap_servers="localhost:1", default_key_serde=STRING,
    default_value_serde=STRING, state_dir=sys.argv[1],
)

def application():
    streams = KafkaStreams(builder.build(), CONFIG)
    running = KafkaStreams.State.RUNNING
    streams._supervisor.start = lambda: streams._states.try_transition(running, "test")
    return streams
"""

SIGNAL_AT_EACH_LINE = """
from millstream.application import run_application

run_application._POLL_INTERVAL_S = 0.002

def stopped_at_line(number):
    # Runs the application, with SIGINT before the given line of Python that the main thread
    # executes, whatever module it is in and whichever locks are held there.
    streams = application()
    left = number

    def trace(frame, event, argument):
        nonlocal left
        is_installed = getattr(signal.getsignal(signal.SIGINT), "__name__", "") == "on_signal"
        if event == "line" and is_installed:
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGINT)
        return trace

    sys.settrace(trace)
    try:
        streams.run()
    finally:
        sys.settrace(None)
    assert streams.state.name == "NOT_RUNNING", streams

for number in range(1, 500):
    stopped_at_line(number)
print("all ended")
"""

REPEATED_SIGNALS = """
forced = []

def close(timeout_ms, leave_group):
    hurried.wait(30)
    return False

streams = application()
hurried = threading.Event()
streams._supervisor.close = close
if sys.argv[2] == "second":
    streams._supervisor.force_close = hurried.set
else:
    streams._supervisor.force_close = lambda: forced.append(True)

def send(number):
    os.kill(os.getpid(), number)
    time.sleep(0.5)

def press():
    while streams.state.name != "RUNNING":
        time.sleep(0.01)
    send(signal.SIGINT)
    assert streams.state.name == "PENDING_SHUTDOWN", streams
    assert not hurried.is_set()
    send(signal.SIGTERM)
    if sys.argv[2] == "third":
        assert forced and not hurried.is_set()
        send(signal.SIGINT)

threading.Thread(target=press, daemon=True).start()
try:
    streams.run()
except KeyboardInterrupt:
    print("interrupted")
finally:
    print("ended", streams.state.name)
"""


def run(text: str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(APPLICATION + text)
    return subprocess.run(
        [sys.executable, str(script), str(folder / "state"), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.extended
def test_a_signal_is_handled_wherever_it_arrives(tmp_path: Path) -> None:
    """Goal: the handler never waits for a lock held by interrupted code.

    Method: a signal at each of the first lines that Python executes, including those of the
    standard library; a lock taken by both the handler and the interrupted code would cause a
    deadlock.
    """
    ended = run(SIGNAL_AT_EACH_LINE, tmp_path)
    assert ended.stdout == "all ended\n", ended.stderr[-4_000:]


@pytest.mark.parametrize("which", ["second", "third"])
def test_further_signals_are_more_forceful(tmp_path: Path, which: str) -> None:
    """Goal: the second one kills threads that have not closed, the third one ends the script."""
    ended = run(REPEATED_SIGNALS, tmp_path, which)
    lines = ended.stdout.splitlines()
    if which == "second":
        assert ended.returncode == 3, ended.stderr
        assert lines == ["ended NOT_RUNNING"]
        assert "shop stopped, after threads were killed" in ended.stderr
    else:
        assert ended.returncode == 0, ended.stderr
        assert lines == ["interrupted", "ended PENDING_SHUTDOWN"]
    assert "SIGINT: closing shop; repeat to kill its threads" in ended.stderr
