"""`millstream init`: the generated project runs, for a user with only the wheel."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from support.machine.ports import free_port
from support.machine.scripts import Program, processes_in
from support.machine.wheels import built_here
from support.waiting import wait_for

ROOT = Path(__file__).parents[3]
ORDERS = 300


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a shell with an environment in which the built wheel is installed.

    All dependencies come from the environment of the tests.
    """
    folder = tmp_path_factory.mktemp("installed")

    def run(*words: str | Path) -> None:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr

    wheel = built_here(folder / "dist").wheel
    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    run(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel)
    (site,) = (folder / "venv" / "lib").glob("python*/site-packages")
    # Only this folder is on the path; its .pth files, one of which refers to the checkout, are
    # ignored.
    (site / "of_the_tests.pth").write_text(sysconfig.get_path("purelib") + "\n")
    port = free_port()
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith("PYTHON")},
        "PATH": f"{python.parent}:{os.environ['PATH']}",
        # The default port may belong to a developer's own broker.
        "MILLSTREAM_BROKER_PORT": str(port),
        "BOOTSTRAP_SERVERS": f"127.0.0.1:{port}",
    }


def printed(output: str) -> tuple[list[str], list[str]]:
    """The printed commands, and those for another terminal."""
    this_terminal, other_terminal = (
        [line.split("#")[0].strip() for line in part.splitlines() if line.startswith("  ")]
        for part in output.split("in another terminal")
    )
    return this_terminal, other_terminal


@pytest.mark.slow
def test_the_printed_commands_run_the_application_and_its_test(
    environment: dict[str, str], tmp_path: Path
) -> None:
    """In an empty folder outside of the checkout, with the commands exactly as printed."""

    def shell(command: str, folder: Path) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=180,
        )

    where = shell("python -c 'import millstream; print(millstream.__file__)'", tmp_path)
    assert str(ROOT) not in where.stdout, where
    made = shell("millstream init shop", tmp_path)
    assert made.returncode == 0, made.stderr
    (enter, *tests, run), (look,) = printed(made.stdout)
    assert enter == "cd shop"
    folder = tmp_path / "shop"
    for command in tests:
        done = shell(command, folder)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    with Program(*shlex.split(run), home=folder, environment=environment) as application:
        wait_for(lambda: "RUNNING" in application.errors, 150, lambda: application.errors)
        seen = shell(f"{look} {ORDERS}", folder)
        assert seen.returncode == 0, seen.stderr + application.errors
        assert f"The revenue includes all {ORDERS} orders." in seen.stdout
        # Commands from the README.
        assert shell("millstream topics app.py", folder).returncode == 0
        lag = shell("millstream lag app.py --most 0", folder)
        assert lag.returncode == 0, lag.stdout + lag.stderr
        assert "to restore" in lag.stdout
        query = shell("millstream query revenue-by-product --json --app app.py", folder)
        assert query.returncode == 0, query.stdout + query.stderr
        entries = map(json.loads, query.stdout.splitlines())
        assert sum(entry["value"]["orders"] for entry in entries) == ORDERS
        console = shell("millstream console --no-browser --app app.py", folder)
        assert "#token=" in console.stdout, console.stderr
        application.signal(signal.SIGINT)
        assert application.wait_ended(120) == 0, application.errors
        assert "everything committed" in application.errors
    # The application is in its own process group, but in the same folder.
    assert not processes_in(folder)
    left = {path.name for path in folder.iterdir()} - {"__pycache__", ".pytest_cache"}
    assert left == set(_names(made.stdout))


def _names(output: str) -> list[str]:
    """The created files, as printed."""
    first = output.splitlines()[0]
    return first.partition(": ")[2].rstrip(".").split(", ")
