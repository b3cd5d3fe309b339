"""Faults in the Kafka clients (`kafka/data`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_TRANSACTIONS = "kafka/data/transactions.py"
_APART = "kafka/data/apart.py"

_INPUTS = "runtime/ownership/inputs.py"
_ADMIN = "kafka/cluster/admin.py"
_CONSUMER = "kafka/data/consumer.py"
_DELIVERY = "kafka/data/delivery.py"

_INPUTS_TESTS = ("tests/unit/runtime/ownership/test_start_offsets.py",)
_UNKNOWN_TESTS = ("tests/unit/kafka/test_unknown_offsets.py",)
_APART_TESTS = ("tests/unit/kafka/test_apart_call.py",)
_DELIVERIES = ("tests/unit/kafka/test_delivery.py",)
_LATE_ANSWER = ("tests/integration/kafka/test_transactions.py",)

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "a record without a key makes the handler decide about its whole batch",
        _DELIVERY,
        "and lacks_key and each.has_key)",
        "and False)",
        tests=_DELIVERIES,
    ),
    mutant(
        "records of several sends are taken for several batches",
        _DELIVERY,
        "partitions.setdefault((each.error.topic,",
        "partitions.setdefault((str(id(each.send_again)),",
        tests=_DELIVERIES,
    ),
    mutant(
        "suspects of a rejected batch share a batch again",
        _DELIVERY,
        "suspect.send_again([suspect.row])\n            self._drain()",
        "suspect.send_again([suspect.row])",
        tests=_DELIVERIES,
    ),
    mutant(
        "a record that is rejected alone is tried again for ever",
        _DELIVERY,
        "        self._sends_alone = True\n",
        "",
        tests=_DELIVERIES,
    ),
    mutant(
        "the handler decides about both suspects of a transaction",
        _DELIVERY,
        "suspects[::2]",
        "suspects",
        tests=_DELIVERIES,
    ),
    mutant(
        "a transaction's failure that is not reported yet is that of the next record",
        _TRANSACTIONS,
        "while not (self._deliveries.failed or deadline.passed):",
        "while False:",
        tests=_LATE_ANSWER,
    ),
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
    mutant(
        "a transaction with a record that failed is aborted by the same client",
        _TRANSACTIONS,
        "if self.why_lost() is not None or self._deliveries.failed:",
        "if self.why_lost() is not None:",
        tests=_LATE_ANSWER,
    ),
    mutant(
        "a partition that was given up while paused is never paused again",
        _INPUTS,
        "        self._paused.difference_update(fetched)\n        self._waiting",
        "        self._waiting",
        tests=_INPUTS_TESTS,
    ),
    mutant(
        "a reset that fails loses polled records",
        _INPUTS,
        "        for place, columns in records.items():",
        "        if self._displaced and self._resetting.is_due:\n"
        "            self._reset_positions()\n"
        "        for place, columns in records.items():",
        tests=_INPUTS_TESTS,
    ),
    mutant(
        "an unknown end is an offset",
        _ADMIN,
        "if answer.offset >= lowest",
        "if answer.offset >= -1_001",
        tests=_UNKNOWN_TESTS,
    ),
    mutant(
        "an unknown end is an offset of the consumer",
        _CONSUMER,
        "if found.offset < lowest:",
        "if found.offset < -1_001:",
        tests=_UNKNOWN_TESTS,
    ),
    mutant(
        "an unknown offset for a time begins at the end",
        _CONSUMER,
        "if offset != OFFSET_END}",
        "if offset >= 0}",
        "timestamps, timeout_ms, lowest=OFFSET_END)",
        "timestamps, timeout_ms, lowest=-1_001)",
        tests=_UNKNOWN_TESTS,
    ),
    # --- rejected batches ---
    mutant(
        "the handler is asked about innocent records of a rejected batch",
        _DELIVERY,
        "                each.code == _REJECTED_WITH_ANOTHER\n",
        "                False\n",
        tests=_DELIVERIES,
    ),
    mutant(
        "innocent records of a transaction are sent again",
        _DELIVERY,
        "        if not self._transactional:\n            self._send_again",
        "        if True:\n            self._send_again",
        tests=_DELIVERIES,
    ),
    mutant(
        "innocent records are sent again though nothing can be committed",
        _DELIVERY,
        "self._failed += len(failed) - number - 1\n                return\n",
        "self._failed += len(failed) - number - 1\n",
        tests=_DELIVERIES,
    ),
    mutant(
        "the failure is that of the first record of a rejected batch",
        _DELIVERY,
        "            self._is_of_another = error.code() == _REJECTED_WITH_ANOTHER\n",
        "            self._is_of_another = False\n",
        tests=_DELIVERIES,
    ),
    mutant(
        "an innocent record that could not be sent again is committed",
        _DELIVERY,
        "            self.fail(error)\n            raise\n",
        "            raise\n",
        tests=_DELIVERIES,
    ),
)
