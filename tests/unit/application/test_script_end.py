"""Applications whose script ends without closing them."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: A script with an application without threads. Closing the application starts a thread, as
#: stopping Spark does.
PRELUDE = """
import sys
import threading
import time
from millstream.application.run_application import close_with_script
from millstream.clock import SystemClock
from millstream.runtime.states.client_states import ClientStateTracker
from millstream.runtime.states.thread_states import ClientState

states = ClientStateTracker("shop", SystemClock())
states.try_transition(ClientState.REBALANCING, "started")

def close(timeout):
    stopping = threading.Thread(target=print, args=("closed",), kwargs={"flush": True})
    stopping.start()
    stopping.join()
    states.try_transition(ClientState.PENDING_SHUTDOWN, "closing")
    states.try_transition(ClientState.NOT_RUNNING, "closed")

close_with_script("shop", states, close)
"""


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PRELUDE + script], capture_output=True, text=True, timeout=60
    )


@pytest.mark.extended
@pytest.mark.parametrize(
    ("end", "code"), [("", 0), ("raise ValueError('no')", 1), ("sys.exit(4)", 4)]
)
def test_the_application_is_closed_when_the_script_ends(end: str, code: int) -> None:
    """Detects stream threads that are killed, or continue to run, when their driver has ended."""
    result = run_script(end)
    assert (result.stdout, result.returncode) == ("closed\n", code)
    assert "'shop' was not closed before its script ended" in result.stderr


def test_a_closed_application_is_left_alone() -> None:
    result = run_script("close(None)")
    assert (result.stdout, result.returncode) == ("closed\n", 0)
    assert result.stderr == ""


def test_the_script_ends_with_its_last_thread() -> None:
    """Detects an application that is closed while threads of the script still use it."""
    result = run_script(
        "def work():\n"
        "    time.sleep(1)\n"
        "    print('worked', flush=True)\n"
        "threading.Thread(target=work).start()\n"
    )
    assert result.stdout == "worked\nclosed\n"


def test_an_abandoned_close_does_not_block_the_exit() -> None:
    """After the third signal run() returns at once, even if the application is still closing."""
    result = run_script("states.try_transition(ClientState.PENDING_SHUTDOWN, 'closing')")
    assert (result.stdout, result.stderr, result.returncode) == ("", "", 0)
