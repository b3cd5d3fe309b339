"""`millstream run` as a separate program."""

from __future__ import annotations

import os
import pty
import select
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.machine.leftovers import runs
from support.machine.scripts import Program
from support.waiting import wait_for

MILLSTREAM = str(Path(sys.executable).with_name("millstream"))

_SCRIPT = """
import os, signal, sys, time
from neighbour import VERSION

def end(number, _):
    print("received", signal.Signals(number).name, flush=True)
    sys.exit(5)

if __name__ == "__main__":
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    print("pid", os.getpid(), flush=True)
    print("version", VERSION, *sys.argv[1:], flush=True)
    while True:
        time.sleep(0.05)
"""

_MASTER = """
import signal
from millstream.spark.sessions.session import find_session

if __name__ == "__main__":
    heeded = lambda number, frame: None
    signal.signal(signal.SIGINT, heeded)
    context = find_session().sparkContext
    print(context.master, context.appName, signal.getsignal(signal.SIGINT) is heeded)
    context.stop()
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("VERSION = 1\n")
    file = tmp_path / "app.py"
    file.write_text(_SCRIPT)
    return file


def test_a_script_replaces_the_command(script: Path) -> None:
    """Arguments, signals and the exit code are those of the script."""
    with Program(MILLSTREAM, "run", script, "--fast", "-n", "3") as program:
        assert program.wait_for_line("version") == "1 --fast -n 3"
        program.signal(signal.SIGTERM)
        assert program.wait_ended(30) == 5
        assert program.lines[-1] == "received SIGTERM"


@pytest.mark.extended
def test_threads_run_on_the_given_master(tmp_path: Path) -> None:
    """`--spark` works like spark-submit's `--master`: the program requests a session and gets
    that one; other Spark settings are kept, as is the handling of Ctrl-C."""
    program = tmp_path / "app.py"
    program.write_text(_MASTER)
    given = {"PYSPARK_SUBMIT_ARGS": "--conf spark.app.name='my shop' pyspark-shell"}
    with Program(MILLSTREAM, "run", program, "--spark", "local[3]", environment=given) as run:
        assert run.wait_ended(60) == 0, run.errors
        assert run.lines[-1] == "local[3] my shop True"


def test_a_change_restarts_the_program_unless_the_file_is_invalid(script: Path) -> None:
    """It is shut down in an orderly way each time; half-written files are not loaded."""
    neighbour = script.with_name("neighbour.py")
    with Program(MILLSTREAM, "run", "--watch", script, "one") as program:
        assert program.wait_for_line("version 1") == "one"
        neighbour.write_text("VERSION = (\n")
        wait_for(lambda: "not restarted" in program.errors, 30, "the error is reported")
        assert program.lines[1:] == ["version 1 one"]
        neighbour.write_text("VERSION = 2\n")
        assert program.wait_for_line("version 2", 30) == "one"
        output = [line for line in program.lines if not line.startswith("pid")]
        assert output == ["version 1 one", "received SIGTERM", "version 2 one"]
        # A terminal's Ctrl-C reaches the program once, through the command.
        program.signal(signal.SIGINT)
        assert program.wait_ended(30) == 5
        assert program.lines[-1] == "received SIGINT"
        assert "Traceback" not in program.errors
        pids = [int(line.split()[1]) for line in program.lines if line.startswith("pid")]
        # Each has its own process group, so the command's group would not show it.
        assert len(pids) == 2
        assert not any(map(runs, pids))


@pytest.fixture
def default_signals() -> Iterator[None]:
    """Restore signals that nohup, or a background shell, makes its children ignore."""
    former = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGHUP, signal.SIGQUIT)}
    yield
    for each, handler in former.items():
        signal.signal(each, handler)


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(
    "how",
    ["SIGHUP", *(pytest.param(how, marks=pytest.mark.extended) for how in ("SIGQUIT", "SIGKILL"))],
)
def test_the_program_ends_with_the_command(script: Path, how: str) -> None:
    """If the terminal is closed or the command killed, nothing stays in the background."""
    with Program(MILLSTREAM, "run", "--watch", script) as program:
        pid = int(program.wait_for_line("pid"))
        program.wait_for_line("version 1")
        assert runs(pid)
        program.signal(signal.Signals[how])
        program.wait_for_line("received SIGTERM", 30)
        wait_for(lambda: not runs(pid), 30, "the program has ended")
        assert program.wait_ended(30) == (-signal.SIGKILL if how == "SIGKILL" else 5)


def test_ctrl_c_works_while_files_change(script: Path) -> None:
    """A program that writes files next to itself is neither restarted forever, nor unresponsive."""
    progress = script.with_name("progress.json")
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.wait(0.02):
            number += 1
            progress.write_text("x" * number)

    writing = threading.Thread(target=write)
    with Program(MILLSTREAM, "run", "--watch", script) as program:
        program.wait_for_line("version 1")
        writing.start()
        try:
            wait_for(
                lambda: "constant changes: progress.json" in program.errors,
                30,
                "the change is reported",
            )
            script.with_name("neighbour.py").write_text("VERSION = 2\n")
            program.wait_for_line("version 2", 30)
            # Immediately, even during the check whether files have settled.
            script.with_name("other.json").write_text("1")
            program.signal(signal.SIGINT)
            program.wait_for_line("received SIGINT", 10)
            assert program.wait_ended(10) == 5
        finally:
            done.set()
            writing.join()


def test_a_program_in_the_background_reads_nothing_from_the_terminal(tmp_path: Path) -> None:
    """It would be stopped and would not react to signals: its stdin is empty instead."""
    file = tmp_path / "app.py"
    file.write_text(
        "import sys\nif __name__ == '__main__':\n    sys.exit(3 if sys.stdin.read() == '' else 4)\n"
    )
    # The children of a command with a controlling terminal have it as well.
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(sys.executable, [sys.executable, MILLSTREAM, "run", "--watch", str(file)])
    terminal_output = bytearray()

    def has_ended() -> bool:
        if select.select([terminal], [], [], 0)[0]:
            terminal_output.extend(os.read(terminal, 4096))
        return b"exit code 3; waiting for a change" in terminal_output

    try:
        wait_for(has_ended, 60, lambda: f"it has ended: {terminal_output!r}")
        os.kill(pid, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
    finally:
        os.close(terminal)


@pytest.mark.extended
def test_a_failed_program_is_restarted_after_a_change(script: Path) -> None:
    """With --watch the command continues; otherwise its exit code is the program's."""
    neighbour = script.with_name("neighbour.py")
    neighbour.write_text("raise SystemExit(9)\n")
    with Program(MILLSTREAM, "run", script) as program:
        assert program.wait_ended(30) == 9
    with Program(MILLSTREAM, "run", "--watch", script) as program:
        wait_for(
            lambda: "exit code 9; waiting for a change" in program.errors,
            30,
            "the program has failed",
        )
        neighbour.write_text("VERSION = 3\n")
        program.wait_for_line("version 3", 30)
        program.signal(signal.SIGTERM)
        assert program.wait_ended(30) == 5
