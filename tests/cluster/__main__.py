"""What `make cluster` runs: the tests of this folder in a world of hosts, or why they cannot be."""

import sys
from pathlib import Path

from support.cluster.world import hindrance, run_inside

_TESTS = str(Path(__file__).parent)


def _main() -> int:
    reason = hindrance()
    if reason is not None:
        print(f"0 passed, 0 failed: the cluster is skipped, {reason}")  # noqa: T201
        return 0
    return run_inside(sys.executable, "-m", "pytest", "-m", "slow", _TESTS, *sys.argv[1:])


if __name__ == "__main__":
    sys.exit(_main())
