"""Run the C extension under sanitizers, in a debug build of Python, and measure leaks.

    make sanitize                                # everything; takes about 20 minutes
    make sanitize ARGS="--only address debug"    # some parts
    make sanitize ARGS="--minutes 10"            # longer fuzzing in each part

| Part | Content |
|---|---|
| `address` | AddressSanitizer and UndefinedBehaviorSanitizer: tests, fuzzing, leaks of C memory |
| `debug` | a debug build of Python, with its assertions: tests, fuzzing, references per record |
| `leaks` | memory per record of each function, over a million records, also on a broker |
| `valgrind` | reads of uninitialized memory, in some cases of the fuzz targets |

A part that needs a tool that is not installed is skipped with a message. In a strict run (`CI` or
`MILLSTREAM_STRICT`), this is a failure. The last lines are a table of everything that was run.
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from support.strictness import is_strict

from extension.__main__ import report
from extension.campaign import Campaign
from extension.cases.client_columns import BOOTSTRAP
from extension.cases.targets import CLIENTS, LOCAL
from extension.variants import ROOT, Variant, VariantError, build, debug_python, sanitized
from millstream.testing import EmbeddedKafka

#: The tests of the extension that need neither a broker nor Spark.
TESTS: Final = (
    "tests/unit/test_native.py",
    "tests/unit/test_native_faults.py",
    "tests/unit/state/caches/test_compiled_entries.py",
    "tests/unit/operators/test_compiled_sessions.py",
    "tests/properties/test_pure_and_compiled.py",
)
#: Sanitizers add functions to a library, which this test forbids.
_DESELECTED: Final = (
    "tests/unit/test_native_faults.py::test_other_libraries_cannot_replace_its_functions"
)
_LIBRARY: Final = "_native.abi3.so"
_VALGRIND_CASES: Final = 15


@dataclass
class Run:
    """A run of some parts, and the rows of its table.

    Args:
        bootstrap: a broker with a topic `leaks`.
    """

    folder: Path
    seed: int
    minutes: float
    records: int
    bootstrap: str
    rows: list[tuple[str, str, str]] = field(default_factory=list)
    failed: bool = False

    def add(self, part: str, content: str, ok: bool) -> None:
        self.rows.append((part, content, "ok" if ok else "FAILED"))
        self.failed |= not ok

    # --- parts -----------------------------------------------------------------------------------

    def address(self) -> None:
        variant = sanitized(self.folder / "address")
        self._test("address", variant)
        self._fuzz("address", variant)
        self._leaks_of_c_memory(variant)

    def debug(self) -> None:
        python, folder = debug_python(self.folder), self.folder / "debug"
        build(folder, python=python, flags=["-g", "-O1"])
        variant = Variant(folder, python)
        self._test("debug", variant)
        self._fuzz("debug", variant)
        # References that confluent-kafka, a release build, creates are not counted.
        self._growth("debug", variant, self.records, [])

    def leaks(self) -> None:
        build(self.folder / "release", flags=["-g"])
        broker = ["--bootstrap", self.bootstrap]
        self._growth("leaks", Variant(self.folder / "release"), self.records, broker)

    def valgrind(self) -> None:
        valgrind = shutil.which("valgrind")
        if valgrind is None:
            raise VariantError("There is no valgrind. Install it (on Debian and Ubuntu: valgrind).")
        build(self.folder / "release", flags=["-g"])
        log = self.folder / "valgrind.log"
        options = ["--quiet", f"--log-file={log}", "--num-callers=20", "--error-limit=no"]
        variant = Variant(
            self.folder / "release",
            environment={"PYTHONMALLOC": "malloc"},
            wrapper=[valgrind, *options],
        )
        targets = [target for target in LOCAL if target != "topologies"]
        campaign = Campaign(variant, self.seed, targets)
        campaign.run(0, each=_VALGRIND_CASES)
        report(campaign)
        errors = blocks_of(log.read_text(), r"\n==\d+== \n")
        print("\n\n".join(errors))  # noqa: T201
        cases = sum(campaign.counts.values())
        self.add("valgrind", f"{cases} fuzz cases", not errors and not campaign.failures)

    # --- steps -----------------------------------------------------------------------------------

    def _test(self, part: str, variant: Variant) -> None:
        options = ["-p", "no:cacheprovider", "--noconftest", "-p", "extension.unhurried"]
        ran = subprocess.run(
            variant.command("-m", "pytest", *options, "--deselect", _DESELECTED, *TESTS),
            cwd=ROOT,
            env=variant.variables(),
            stdout=subprocess.PIPE,
            text=True,
        )
        print(ran.stdout, flush=True)  # noqa: T201
        passed = re.search(r"(\d+) passed", ran.stdout)
        self.add(part, f"{passed[1] if passed else 0} unit tests", ran.returncode == 0)

    def _fuzz(self, part: str, variant: Variant) -> None:
        campaign = Campaign(variant, self.seed, LOCAL)
        campaign.run(60 * self.minutes)
        on_broker = Campaign(
            replace(variant, environment={**variant.environment, BOOTSTRAP: self.bootstrap}),
            self.seed,
            [CLIENTS],
        )
        on_broker.run(20 * self.minutes)
        failed = False
        for each in (campaign, on_broker):
            failed |= report(each) != 0
        counts = {**campaign.counts, **on_broker.counts}
        text = f"{sum(counts.values()):,} fuzz cases in {80 * self.minutes / 60:.1f} minutes"
        self.add(part, text, not failed)

    def _growth(self, part: str, variant: Variant, records: int, options: list[str]) -> None:
        ran = subprocess.run(
            variant.command("-m", "extension.leaks", "--records", str(records), *options),
            env=variant.variables(),
            cwd=self.folder,
        )
        self.add(part, f"memory per record over {records:,} records", ran.returncode == 0)

    def _leaks_of_c_memory(self, variant: Variant) -> None:
        """Run some records with LeakSanitizer, and look for blocks that the extension allocated.

        Python's own objects are counted in the debug build instead.
        """
        environment = variant.variables()
        environment["ASAN_OPTIONS"] += ":detect_leaks=1"
        environment["LSAN_OPTIONS"] = "exitcode=0"
        ran = subprocess.run(
            variant.command("-m", "extension.leaks", "--any-growth", "--records", "5000"),
            env=environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
        )
        leaks = blocks_of(ran.stderr, r"\n\n")
        print("\n\n".join(leaks), ran.stderr if ran.returncode else "", sep="")  # noqa: T201
        self.add("address", "leaks of C memory", not leaks and ran.returncode == 0)


def blocks_of(text: str, separator: str) -> list[str]:
    """Return the errors in the log of a tool whose stacks contain the extension."""
    return [block for block in re.split(separator, text) if _LIBRARY in block]


PARTS: Final[dict[str, Callable[[Run], None]]] = {
    "address": Run.address,
    "debug": Run.debug,
    "leaks": Run.leaks,
    "valgrind": Run.valgrind,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=2, help="of fuzzing in each part")
    parser.add_argument("--records", type=int, default=1_000_000, help="of each leak measurement")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedKafka() as kafka:
        kafka.create_topic("leaks", partitions=1)
        run = Run(
            Path(folder),
            arguments.seed,
            arguments.minutes,
            arguments.records,
            kafka.bootstrap_servers,
        )
        print(f"seed {run.seed}", flush=True)  # noqa: T201
        for part in arguments.only:
            started = time.monotonic()
            try:
                PARTS[part](run)
            except VariantError as error:
                run.rows.append((part, "not run", str(error)))
                run.failed |= is_strict()
            print(f"{part}: {time.monotonic() - started:.0f} s\n", flush=True)  # noqa: T201
    for row in run.rows:
        print("{:<10} {:<50} {}".format(*row))  # noqa: T201
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
