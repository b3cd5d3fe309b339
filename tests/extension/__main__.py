"""Fuzz the C extension: compare it with Python, and run misbehaving code inside it.

    make fuzz-native ARGS="--minutes 60"                 # all targets that need no broker
    make fuzz-native ARGS="--clients --minutes 10"       # reading and writing, on a broker
    make fuzz-native ARGS="--case 42/loops/17"           # a case of an earlier run again

Cases run in child processes, so that a crash is reported with its case. A table lists the number of
cases. For a failing case, its name, its fault and its reduced trace are printed, and the exit code
is 1.
"""

from __future__ import annotations

import argparse
import os
import pprint
import random
import sys
from contextlib import ExitStack
from typing import Final

from extension.campaign import Campaign
from extension.cases.client_columns import BOOTSTRAP
from extension.cases.targets import CLIENTS, LOCAL, trace_of
from extension.variants import Variant, VariantError
from millstream.testing import EmbeddedKafka

#: The maximum length of a line of a fault; the trace contains the data.
_MAX_CHARS: Final = 1_000


def report(campaign: Campaign) -> int:
    """Print failures and the number of cases; return the exit code."""
    for failure in campaign.failures:
        print(f"\nFAILED: {failure.case}")  # noqa: T201
        for fault in failure.faults:
            print(*(line[:_MAX_CHARS] for line in fault.splitlines()), sep="\n")  # noqa: T201
        if failure.reduced is None:
            print("The case does not fail alone. The failure depends on earlier cases of the run.")  # noqa: T201
        else:
            print(f"Reduced trace:\n{pprint.pformat(failure.reduced, width=100)}")  # noqa: T201
        print(f'Repeat it with: make fuzz-native ARGS="--case {failure.case}"')  # noqa: T201
    for target, count in campaign.counts.items():
        print(f"{target:<12} {count:>10,} cases")  # noqa: T201
    return 1 if campaign.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--minutes", type=float, default=5)
    parser.add_argument("--only", nargs="*", choices=LOCAL, default=LOCAL, help="targets to run")
    parser.add_argument("--clients", action="store_true", help="run the target that needs a broker")
    parser.add_argument("--case", help="a case to run again: seed/target/number")
    arguments = parser.parse_args()
    targets, seed = arguments.only, arguments.seed
    if arguments.case:
        first, target, _ = arguments.case.split("/")
        targets, seed = [target], int(first)
    elif arguments.clients:
        targets = [CLIENTS]
    with ExitStack() as stack:
        if CLIENTS in targets:
            os.environ[BOOTSTRAP] = stack.enter_context(EmbeddedKafka()).bootstrap_servers
        campaign = Campaign(Variant(), seed, targets)
        print(f"seed {seed}, targets {', '.join(targets)}", flush=True)  # noqa: T201
        try:
            if arguments.case:
                print(pprint.pformat(trace_of(targets[0], arguments.case), width=100))  # noqa: T201
                campaign.run_case(targets[0], arguments.case)
            else:
                campaign.run(60 * arguments.minutes)
        except VariantError as error:
            print(f"The C extension cannot be fuzzed: {error}", file=sys.stderr)  # noqa: T201
            return 2
        return report(campaign)


if __name__ == "__main__":
    sys.exit(main())
