"""The child process of the fuzzer.

It reads cases from stdin, one literal per line: a target, and either the name of a case or a trace.
It answers each with a line: the list of faults. The first line is an empty list if the extension
is available.
"""

from __future__ import annotations

import ast
import gc
import logging
import os
import sys
import traceback

from extension.cases.targets import TARGETS, trace_of
from extension.cases.values import Trace
from millstream.native import extension


def faults(target: str, case: str | Trace) -> list[str]:
    """Run a case; an exception is a fault, too."""
    trace = trace_of(target, case) if isinstance(case, str) else case
    try:
        return TARGETS[target].run(trace)
    except Exception:
        return [traceback.format_exc()]


def main() -> None:
    # User code and sanitizers may print.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    logging.disable()
    # Collections, which some cases force, must not visit the objects of all imported modules.
    gc.freeze()
    found = extension()
    print([found] if isinstance(found, str) else [], file=answers, flush=True)
    for line in sys.stdin:
        print(faults(*ast.literal_eval(line)), file=answers, flush=True)


if __name__ == "__main__":
    main()
