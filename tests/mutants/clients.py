"""Faults in the Kafka clients (`kafka/data`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_TRANSACTIONS = "kafka/data/transactions.py"
_APART = "kafka/data/apart.py"

_APART_TESTS = ("tests/unit/kafka/test_apart_call.py",)
_LATE_ANSWER = ("tests/integration/kafka/test_transactions.py",)

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "an answer about offsets counts for the next transaction",
        _TRANSACTIONS,
        "        self._apart = None\n        if self._must_renew:",
        "        if self._must_renew:",
        tests=_LATE_ANSWER,
    ),
    mutant(
        "a pending coordinator call is ignored when its transaction is given up",
        _TRANSACTIONS,
        "if self._apart is not None and self._apart.is_pending:",
        "if False:",
        tests=_LATE_ANSWER,
    ),
    mutant(
        "a forgotten coordinator call answers for another",
        _APART,
        '''without it."""
        self._pending = None''',
        '''without it."""''',
        tests=_APART_TESTS,
    ),
    mutant(
        "the result of other offsets is returned",
        _APART,
        "if self._pending is not None and self._pending.request != request:",
        "if False:",
        tests=_APART_TESTS,
    ),
    mutant(
        "offsets are sent again while the coordinator works on them",
        _APART,
        "        if self._pending is None:\n            self._pending = _Pending",
        "        if True:\n            self._pending = _Pending",
        tests=_APART_TESTS,
    ),
)
