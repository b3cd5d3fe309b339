"""A script's signals: heeded wherever they come, and each further one says it more urgently."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

#: An application that runs at once, on no Spark and no broker: what is left is `run`.
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
    streams._supervisor.start = lambda: streams._states.become(KafkaStreams.State.RUNNING, "test")
    return streams
"""

EVERYWHERE = """
from millstream.application import run

run._LOOK_S = 0.002

def stopped_at_line(number):
    # Runs the application, with SIGINT before the given line of Python that the main thread
    # executes, whatever module it is in and whichever locks are held there.
    streams = application()
    left = number

    def trace(frame, event, argument):
        nonlocal left
        heeded = getattr(signal.getsignal(signal.SIGINT), "__name__", "") == "on_signal"
        if event == "line" and heeded:
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

URGENT = """
asked = []

def close(timeout_ms, leave_group):
    hurried.wait(30)
    return False

streams = application()
hurried = threading.Event()
streams._supervisor.close = close
if sys.argv[2] == "second":
    streams._supervisor.hurry = hurried.set
else:
    streams._supervisor.hurry = lambda: asked.append(True)

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
        assert asked and not hurried.is_set()
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


def test_a_signal_is_heeded_wherever_it_comes(tmp_path: Path) -> None:
    """Goal: the handler never waits for a lock that the code it interrupts holds.

    Method: a signal at each of the first lines that Python executes, the standard library's
    included; a lock that both take would end in a deadlock.
    """
    ended = run(EVERYWHERE, tmp_path)
    assert ended.stdout == "all ended\n", ended.stderr[-4_000:]


@pytest.mark.parametrize("which", ["second", "third"])
def test_further_signals_are_more_urgent(tmp_path: Path, which: str) -> None:
    """Goal: the second one kills threads that have not closed, the third one ends the script."""
    ended = run(URGENT, tmp_path, which)
    lines = ended.stdout.splitlines()
    if which == "second":
        assert ended.returncode == 3, ended.stderr
        assert lines == ["ended NOT_RUNNING"]
        assert "shop stopped, not in order" in ended.stderr
    else:
        assert ended.returncode == 0, ended.stderr
        assert lines == ["interrupted", "ended PENDING_SHUTDOWN"]
    assert "SIGINT: shop closes; once more ends it at once" in ended.stderr
