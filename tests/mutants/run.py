"""Does a test notice each fault of `commit_path`?

    make mutants ARGS="--only flush"

Puts one fault after another into a copy of the tree and runs the tests that should see it, quick
ones first. A table tells which test noticed each; the process ends with 1 if a fault survived.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

from mutants.commit_path import MUTANTS, Mutant

ROOT = Path(__file__).parents[2]
#: What is run for a fault, until something fails. All of it is in `make test`.
STAGES: tuple[tuple[str, ...], ...] = (
    (
        "tests/unit/runtime/test_commit_path.py",
        "tests/unit/runtime/test_commits.py",
        "tests/unit/runtime/test_pending_offsets.py",
        "tests/unit/runtime/test_rebalances.py",
        "tests/unit/runtime/test_thread.py",
        "tests/unit/state/test_task_stores.py",
    ),
    ("tests/unit/runtime", "tests/unit/state", "tests/unit/kafka"),
    ("tests/conformance/test_commits.py",),
    ("tests/integration/test_failpoints.py",),
    ("tests/simulation",),
)
_TIMEOUT_S = 600
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)
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
            for stage in stages:
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
        command = [sys.executable, "-m", "pytest", "-x", "-rfE", "-m", "not slow", "-p"]
        try:
            done = subprocess.run(
                [*command, "no:cacheprovider", *paths],
                cwd=self._folder,
                env=os.environ | {"PYTHONPATH": str(self._folder / "src")},
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"{' '.join(paths)} hangs"
        if done.returncode == 0:
            return None
        failed = _FAILED.search(done.stdout)
        return failed[1] if failed else f"exit code {done.returncode}: {done.stdout[-300:]}"


def mutated(mutant: Mutant, sound: str) -> str:
    """The text of a module with a fault."""
    for old, new in mutant.changes:
        assert sound.count(old) == 1, f"{mutant.module} has {sound.count(old)} times: {old}"
        sound = sound.replace(old, new)
    return sound


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--only", default="", help="a part of what the fault breaks")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--stages", type=int, default=len(STAGES), help="how many at most")
    arguments = parser.parse_args()
    chosen = [each for each in MUTANTS if arguments.only in each.breaks]
    stages = STAGES[: arguments.stages]
    results: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(arguments.jobs) as pool:
        trees: Queue[Tree] = Queue()
        for number in range(arguments.jobs):
            trees.put(Tree(Path(folder) / str(number)))

        def check(mutant: Mutant) -> tuple[Mutant, str]:
            tree = trees.get()
            try:
                return mutant, tree.notices(mutant, stages)
            finally:
                trees.put(tree)

        for mutant, noticed in pool.map(check, chosen):
            results[mutant.breaks] = noticed
            print(f"{mutant.breaks:<74} {noticed}", flush=True)  # noqa: T201
    survived = [breaks for breaks, noticed in results.items() if noticed == SURVIVED]
    print(f"{len(results)} mutants, {len(survived)} survived")  # noqa: T201
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
