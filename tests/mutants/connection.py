"""Faults in the control connection between driver and workers (`spark/connection`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_SERVER = "spark/connection/control_server.py"
_CHANNEL = "spark/connection/control_client.py"
_CONVERSATION = "spark/connection/reliable_channel.py"
_TESTS = (
    "tests/unit/spark/connection/test_control.py",
    "tests/unit/spark/connection/test_frames.py",
)

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "a reconnect does not wait for the end of the previous link",
        _SERVER,
        *("previous is None or previous.wait_ended(_TAKEOVER_S)", "True"),
        tests=_TESTS,
    ),
    mutant(
        "a reconnect is treated as a registration",
        _SERVER,
        *("if current is not None and hello.epoch == current.hello.epoch:", "if False:"),
        tests=_TESTS,
    ),
    mutant(
        "a replaced attempt is admitted",
        _SERVER,
        *("if current is not None and hello.epoch < current.hello.epoch:", "if False:"),
        tests=_TESTS,
    ),
    mutant(
        "an attempt of an earlier submission is admitted",
        _SERVER,
        *("if hello.epoch.submission < entry.lowest_submission:", "if False:"),
        tests=_TESTS,
    ),
    mutant(
        "requests to an ended attempt get no response",
        _SERVER,
        *(
            "                request.complete(ThreadUnavailableError(why))\n",
            "                pass\n",
        ),
        tests=_TESTS,
    ),
    mutant(
        "the worker waits ten times its grace period for the driver",
        _CHANNEL,
        *(
            "time.monotonic() + self._grace_s",
            "time.monotonic() + 10 * self._grace_s",
        ),
        tests=_TESTS,
    ),
    mutant(
        "a thread does not stop after its monitor has failed",
        _CHANNEL,
        *(
            '            self._mark_lost(f"its control connection failed',
            '            str(f"its control',
        ),
        tests=_TESTS,
    ),
    mutant(
        "received messages are sent again after a reconnect",
        _CONVERSATION,
        *("while self._unsent and self._unsent[0].number <= last_received:", "while False:"),
        tests=_TESTS,
    ),
    mutant(
        "messages in flight are not sent again after a reconnect",
        _CONVERSATION,
        *("            self._unsent.extendleft(reversed(self._unacknowledged))\n", ""),
        tests=_TESTS,
    ),
    mutant(
        "duplicate messages are processed twice",
        _CONVERSATION,
        *("            if number > reliable_channel.received:\n", "            if True:\n"),
        tests=_TESTS,
    ),
    mutant(
        "a full channel drops messages instead of rejecting them",
        _CONVERSATION,
        *("if self._drop_oldest and not self._ended:", "if not self._ended:"),
        tests=_TESTS,
    ),
)
