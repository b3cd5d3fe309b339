"""Verifies that a test detects each fault of the catalog.

    make mutants ARGS="--only flushed"

Injects one fault after another into a copy of the tree and runs the tests that should detect it,
quick ones first. A table lists the test that detected each; exits with 1 if a fault survived.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import resource
import shutil
import sys
import tempfile
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path

# Imports of the tests that no fault changes, shared by all test processes.
import confluent_kafka.admin  # noqa: F401
import hypothesis  # noqa: F401
import kafka  # noqa: F401
import pyspark.sql  # noqa: F401
import pytest
import rocksdict  # noqa: F401
from mutants.catalog import MUTANTS
from mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
#: The tests that run for a fault, until one fails. `make test` includes all of them.
STAGES: tuple[tuple[str, ...], ...] = (
    (
        "tests/unit/runtime/loop/test_commit_path.py",
        "tests/unit/runtime/loop/test_commits.py",
        "tests/unit/runtime/loop/test_transactions.py",
        "tests/properties/test_pending_offsets.py",
        "tests/unit/runtime/loop/test_rebalances.py",
        "tests/unit/runtime/loop/test_thread.py",
        "tests/unit/runtime/loop/test_thread_commits.py",
        "tests/unit/state/test_task_stores.py",
    ),
    (
        "tests/unit/runtime",
        "tests/unit/operators/concurrent",
        "tests/unit/state",
        "tests/unit/kafka",
    ),
    ("tests/conformance/test_commits.py",),
    ("tests/integration/runtime/test_failpoints.py",),
    ("tests/simulation",),
)
#: The main tests of a module, which run first.
FIRST = {
    "runtime/loop/commits.py": ("tests/unit/runtime/loop/test_commit_path.py",),
    "runtime/loop/exactly_once.py": ("tests/unit/runtime/loop/test_transactions.py",),
    "runtime/loop/at_least_once.py": ("tests/unit/runtime/loop/test_commit_path.py",),
    "kafka/membership/group_member.py": (
        "tests/unit/kafka/membership/test_transaction_metadata.py",
    ),
    "runtime/task/stream_task.py": ("tests/unit/runtime/loop/test_commit_path.py",),
    "runtime/task/queues/pending_offsets.py": ("tests/properties/test_pending_offsets.py",),
    "runtime/loop/rebalances.py": ("tests/unit/runtime/loop/test_rebalances.py",),
    "runtime/loop/thread_closer.py": ("tests/unit/runtime/loop/test_thread_commits.py",),
    "runtime/loop/stream_thread.py": ("tests/unit/runtime/loop/test_thread_commits.py",),
    "state/task_stores.py": ("tests/unit/state/test_task_stores.py",),
    "kafka/clients/delivery.py": ("tests/unit/kafka/test_delivery.py",),
}
_TIMEOUT_S = 600
#: A limit for endless loops; the tests of a stage take a fraction of it.
_MAX_CPU_S = 90
SURVIVED = "SURVIVED"


class Tree:
    """A copy of the sources and tests, into which faults are injected one at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for part in ("src", "tests", "examples", "docs"):
            shutil.copytree(
                ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", ".*")
            )
        for file in ("pyproject.toml", "README.md", "CHANGELOG.md"):
            shutil.copy(ROOT / file, folder)

    def detecting_test(self, mutant: Mutant, stages: Sequence[Sequence[str]]) -> str:
        """Return the first test that fails with a fault."""
        path = self._folder / "src" / "millstream" / mutant.module
        original = path.read_text()
        path.write_text(mutated(mutant, original))
        try:
            for stage in (mutant.tests, FIRST.get(mutant.module, ()), *stages):
                found = self._run(stage)
                if found is not None:
                    return found
            return SURVIVED
        finally:
            path.write_text(original)

    def _run(self, tests: Sequence[str]) -> str | None:
        if not tests:
            return None
        context = multiprocessing.get_context("fork")
        receiver, sender = context.Pipe(duplex=False)
        child = context.Process(target=_pytest, args=(self._folder, tests, sender))
        child.start()
        sender.close()
        try:
            if not receiver.poll(_TIMEOUT_S):
                return f"{' '.join(tests)} hangs"
            return str(failed) if (failed := receiver.recv()) else None
        except EOFError:
            return f"{' '.join(tests)} never ends"
        finally:
            child.kill()
            child.join()


class _Failed:
    """Stores the first failed test."""

    def __init__(self) -> None:
        self.test = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.test = self.test or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.test = self.test or report.nodeid


def _pytest(folder: Path, paths: Sequence[str], answer: Connection) -> None:
    """Run tests of a tree in this process, which has not imported Millstream yet."""
    resource.setrlimit(resource.RLIMIT_CPU, (_MAX_CPU_S, _MAX_CPU_S))
    os.chdir(folder)
    sys.path[:0] = [str(folder / "src"), str(folder / "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    failed_test = _Failed()
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    code = pytest.main([*options, *paths], plugins=[failed_test])
    answer.send("" if code == 0 else failed_test.test or f"exit code {code}")
    answer.close()
    # Do not wait for remaining threads of a fault.
    os._exit(0)


def mutated(mutant: Mutant, original: str) -> str:
    """Inject a fault into the text of a module."""
    for old, new in mutant.changes:
        assert original.count(old) == 1, (
            f"{mutant.module} contains {original.count(old)} times: {old}"
        )
        original = original.replace(old, new)
    return original


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="a part of the fault's name")
    parser.add_argument("--skip", type=int, default=0, help="the number of faults to skip")
    parser.add_argument("--module", default="", help="a part of the path of the module")
    parser.add_argument("--jobs", type=int, default=2, help="the number of faults at a time")
    parser.add_argument(
        "--stages", type=int, default=len(STAGES), help="the maximum number of stages"
    )
    arguments = parser.parse_args()
    chosen = [
        each
        for each in MUTANTS
        if arguments.only in each.breaks and arguments.module in each.module
    ][arguments.skip :]
    stages = STAGES[: arguments.stages]
    context = multiprocessing.get_context("fork")
    found: multiprocessing.SimpleQueue[tuple[str, str]] = context.SimpleQueue()
    jobs = [
        context.Process(target=_try, args=(chosen[job :: arguments.jobs], stages, found))
        for job in range(min(arguments.jobs, len(chosen)))
    ]
    for job in jobs:
        job.start()
    survived = 0
    for _ in chosen:
        breaks, detected_by = found.get()
        survived += detected_by == SURVIVED
        print(f"{breaks:<74} {detected_by}", flush=True)  # noqa: T201
    for job in jobs:
        job.join()
    print(f"{len(chosen)} mutants, {survived} survived")  # noqa: T201
    return 1 if survived else 0


def _try(
    mutants: Sequence[Mutant],
    stages: Sequence[Sequence[str]],
    found: multiprocessing.SimpleQueue[tuple[str, str]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        tree = Tree(Path(folder) / "tree")
        for each in mutants:
            found.put((each.breaks, tree.detecting_test(each, stages)))


if __name__ == "__main__":
    sys.exit(main())
