"""Does a test notice each fault of the catalog?

    make mutants ARGS="--only flushed"

Puts one fault after another into a copy of the tree and runs the tests that should see it, quick
ones first. A table tells which test noticed each; the process ends with 1 if a fault survived.
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

# What the tests import and no fault touches: once for all of them.
import confluent_kafka.admin  # noqa: F401
import hypothesis  # noqa: F401
import kafka  # noqa: F401
import pyspark.sql  # noqa: F401
import pytest
import rocksdict  # noqa: F401
from mutants.catalog import MUTANTS
from mutants.mutant import Mutant

ROOT = Path(__file__).parents[2]
#: What is run for a fault, until something fails. All of it is in `make test`.
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
    ("tests/unit/runtime", "tests/unit/operators/apart", "tests/unit/state", "tests/unit/kafka"),
    ("tests/conformance/test_commits.py",),
    ("tests/integration/runtime/test_failpoints.py",),
    ("tests/simulation",),
)
#: What is about a module most of all, and run before that.
FIRST = {
    "runtime/loop/commits.py": ("tests/unit/runtime/loop/test_commit_path.py",),
    "runtime/loop/transactions.py": ("tests/unit/runtime/loop/test_transactions.py",),
    "runtime/loop/at_least_once.py": ("tests/unit/runtime/loop/test_commit_path.py",),
    "kafka/member/group_member.py": ("tests/unit/kafka/test_member_place.py",),
    "runtime/task/stream_task.py": ("tests/unit/runtime/loop/test_commit_path.py",),
    "runtime/task/queues/pending_offsets.py": ("tests/properties/test_pending_offsets.py",),
    "runtime/loop/rebalances.py": ("tests/unit/runtime/loop/test_rebalances.py",),
    "runtime/loop/closing.py": ("tests/unit/runtime/loop/test_thread_commits.py",),
    "runtime/loop/stream_thread.py": ("tests/unit/runtime/loop/test_thread_commits.py",),
    "state/task_stores.py": ("tests/unit/state/test_task_stores.py",),
    "kafka/data/delivery.py": ("tests/unit/kafka/test_delivery.py",),
}
_TIMEOUT_S = 600
#: Some faults make a loop endless: the tests of a stage take a part of this.
_MOST_CPU_S = 90
SURVIVED = "SURVIVED"


class Tree:
    """A copy of the sources and tests, into which faults are put one at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for part in ("src", "tests", "examples", "docs"):
            shutil.copytree(
                ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", ".*")
            )
        for file in ("pyproject.toml", "README.md", "CHANGELOG.md"):
            shutil.copy(ROOT / file, folder)

    def notices(self, mutant: Mutant, stages: Sequence[Sequence[str]]) -> str:
        """The first test that fails with a fault."""
        path = self._folder / "src" / "millstream" / mutant.module
        sound = path.read_text()
        path.write_text(mutated(mutant, sound))
        try:
            for stage in (mutant.tests, FIRST.get(mutant.module, ()), *stages):
                found = self._run(stage)
                if found is not None:
                    return found
            return SURVIVED
        finally:
            path.write_text(sound)

    def _run(self, tests: Sequence[str]) -> str | None:
        paths = [test for test in tests if (self._folder / test).exists()]
        if not paths:
            return None
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_pytest, args=(self._folder, paths, theirs))
        child.start()
        theirs.close()
        try:
            if not ours.poll(_TIMEOUT_S):
                return f"{' '.join(paths)} hangs"
            return str(failed) if (failed := ours.recv()) else None
        except EOFError:
            return f"{' '.join(paths)} never ends"
        finally:
            child.kill()
            child.join()


class _Failed:
    """Notes the first test that fails."""

    def __init__(self) -> None:
        self.test = ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.test = self.test or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.test = self.test or report.nodeid


def _pytest(folder: Path, paths: Sequence[str], answer: Connection) -> None:
    """Run tests of a tree in this process, which has not imported Millstream before."""
    resource.setrlimit(resource.RLIMIT_CPU, (_MOST_CPU_S, _MOST_CPU_S))
    os.chdir(folder)
    sys.path[:0] = [str(folder / "src"), str(folder / "tests")]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:2])
    silence = os.open(os.devnull, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(silence, stream)
    noted = _Failed()
    options = ["-x", "-q", "-m", "not slow", "-p", "no:cacheprovider"]
    code = pytest.main([*options, *paths], plugins=[noted])
    answer.send("" if code == 0 else noted.test or f"exit code {code}")
    answer.close()
    # Threads that a fault has left behind are not waited for.
    os._exit(0)


def mutated(mutant: Mutant, sound: str) -> str:
    """The text of a module with a fault."""
    for old, new in mutant.changes:
        assert sound.count(old) == 1, f"{mutant.module} has {sound.count(old)} times: {old}"
        sound = sound.replace(old, new)
    return sound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="a part of what the fault breaks")
    parser.add_argument("--skip", type=int, default=0, help="so many of the first ones")
    parser.add_argument("--module", default="", help="a part of the path of the module")
    parser.add_argument("--jobs", type=int, default=2, help="faults tried at a time")
    parser.add_argument("--stages", type=int, default=len(STAGES), help="how many at most")
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
        breaks, noticed = found.get()
        survived += noticed == SURVIVED
        print(f"{breaks:<74} {noticed}", flush=True)  # noqa: T201
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
            found.put((each.breaks, tree.notices(each, stages)))


if __name__ == "__main__":
    sys.exit(main())
