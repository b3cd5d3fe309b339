"""Faults in the Kafka clients (`kafka/clients`)."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_TRANSACTIONS = "kafka/clients/transactional_producer.py"
_APART = "kafka/clients/transactional_producer.py"

_INPUTS = "runtime/task_management/task_inputs.py"
_ADMIN = "kafka/cluster/admin.py"
_CONSUMER = "kafka/clients/record_consumer.py"
_DELIVERY = "kafka/clients/delivery.py"

_INPUTS_TESTS = ("tests/unit/runtime/task_management/test_start_offsets.py",)
_UNKNOWN_TESTS = ("tests/unit/kafka/test_unknown_offsets.py",)
_APART_TESTS = ("tests/unit/kafka/test_background_calls.py",)
_DELIVERIES = ("tests/unit/kafka/test_delivery.py",)
_LATE_ANSWER = ("tests/integration/kafka/test_transactions.py",)

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "a record without a key passes its whole batch to the handler",
        _DELIVERY,
        "and lacks_key and each.has_key)",
        "and False)",
        tests=_DELIVERIES,
    ),
    mutant(
        "records of several sends are treated as several batches",
        _DELIVERY,
        "partitions.setdefault((each.error.topic,",
        "partitions.setdefault((str(id(each.send_again)),",
        tests=_DELIVERIES,
    ),
    mutant(
        "candidates of a rejected batch are sent in one batch again",
        _DELIVERY,
        "candidate.send_again([candidate.row])\n            self._drain()",
        "candidate.send_again([candidate.row])",
        tests=_DELIVERIES,
    ),
    mutant(
        "a record that is rejected alone is retried forever",
        _DELIVERY,
        "        self._sends_alone = True\n",
        "",
        tests=_DELIVERIES,
    ),
    mutant(
        "the handler decides about both candidates of a transaction",
        _DELIVERY,
        "candidates[::2]",
        "candidates",
        tests=_DELIVERIES,
    ),
    mutant(
        "an unreported failure of a transaction is assigned to the next record",
        _TRANSACTIONS,
        "while not (self._deliveries.failed or deadline.passed):",
        "while False:",
        tests=_LATE_ANSWER,
    ),
    mutant(
        "a response about offsets counts for the next transaction",
        _TRANSACTIONS,
        "        self._background_call = None\n        if self._must_renew:",
        "        if self._must_renew:",
        tests=_LATE_ANSWER,
    ),
    mutant(
        "aborting a transaction ignores its pending coordinator call",
        _TRANSACTIONS,
        "if self._background_call is not None and self._background_call.is_pending:",
        "if False:",
        tests=_LATE_ANSWER,
    ),
    mutant(
        "a discarded coordinator call provides the result of another",
        _APART,
        '''has ended."""
        self._pending = None''',
        '''has ended."""''',
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
        "offsets are sent again while the coordinator processes them",
        _APART,
        "        if self._pending is None:\n            self._pending = _Pending",
        "        if True:\n            self._pending = _Pending",
        tests=_APART_TESTS,
    ),
    mutant(
        "a transaction with a failed record is aborted by the same client",
        _TRANSACTIONS,
        "if self.why_lost() is not None or self._deliveries.failed:",
        "if self.why_lost() is not None:",
        tests=_LATE_ANSWER,
    ),
    mutant(
        "a partition that was unassigned while paused is never paused again",
        _INPUTS,
        "        self._paused.difference_update(fetched)\n        self._with_records",
        "        self._with_records",
        tests=_INPUTS_TESTS,
    ),
    mutant(
        "a failed reset loses polled records",
        _INPUTS,
        "        for partition, columns in records.items():",
        "        if self._out_of_range and self._reset_retry.is_due:\n"
        "            self._reset_positions()\n"
        "        for partition, columns in records.items():",
        tests=_INPUTS_TESTS,
    ),
    mutant(
        "an unknown end is an offset",
        _ADMIN,
        "if result.offset >= lowest",
        "if result.offset >= -1_001",
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
        "an unknown offset for a time starts at the end",
        _CONSUMER,
        "if offset != OFFSET_END}",
        "if offset >= 0}",
        "timestamps, timeout_ms, lowest=OFFSET_END)",
        "timestamps, timeout_ms, lowest=-1_001)",
        tests=_UNKNOWN_TESTS,
    ),
    # --- rejected batches ---
    mutant(
        "the handler is called for unaffected records of a rejected batch",
        _DELIVERY,
        "                each.code == _REJECTED_WITH_ANOTHER\n",
        "                False\n",
        tests=_DELIVERIES,
    ),
    mutant(
        "unaffected records of a transaction are sent again",
        _DELIVERY,
        "        if not self._transactional:\n            self._send_again",
        "        if True:\n            self._send_again",
        tests=_DELIVERIES,
    ),
    mutant(
        "unaffected records are sent again although nothing can be committed",
        _DELIVERY,
        "self.failed += len(failed) - number - 1\n                return\n",
        "self.failed += len(failed) - number - 1\n",
        tests=_DELIVERIES,
    ),
    mutant(
        "the failure is assigned to the first record of a rejected batch",
        _DELIVERY,
        "            self._is_of_another = error.code() == _REJECTED_WITH_ANOTHER\n",
        "            self._is_of_another = False\n",
        tests=_DELIVERIES,
    ),
    mutant(
        "an unsent unaffected record is committed",
        _DELIVERY,
        "            self.fail(error)\n            raise\n",
        "            raise\n",
        tests=_DELIVERIES,
    ),
)
