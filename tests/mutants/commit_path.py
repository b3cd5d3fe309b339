"""Faults in the path of a commit."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_COMMITS = "runtime/loop/commits.py"
_AT_LEAST_ONCE = "runtime/loop/at_least_once.py"
_TRANSACTIONS = "runtime/loop/exactly_once.py"
_INSISTING = "kafka/cluster/retries.py"
_TASK = "runtime/task/stream_task.py"
_STORES = "state/task_stores.py"
_CHANGELOG = "state/changelogs/store_changelog.py"
_OVERLAY = "state/storage/overlay.py"
_ROCKSDB = "state/storage/rocksdb.py"
_REBALANCES = "runtime/loop/rebalances.py"
_CLOSING = "runtime/loop/thread_closer.py"
_THREAD = "runtime/loop/stream_thread.py"
_TASKS = "runtime/task_management/task_manager.py"
_PENDING = "runtime/task/queues/pending_offsets.py"
_QUEUE = "runtime/task/queues/record_queue.py"
_DELIVERY = "kafka/clients/delivery.py"

_PUBLISH = """            self._guarantee.publish(offsets, overall)
        acked = self._producer.acked_offsets()
"""
_END = """            self._write_stores(to_commit, offsets, acked, meanwhile)
"""
_FLUSH = "        self._flush(overall)\n        self._commit(offsets, overall)\n"
_FLUSH_SOON = "        self._flush(overall)\n        if not offsets:"
_BEGIN = "return self._committer.begin_commit(offsets, _COMMIT_TIMEOUT_MS)"
_WRITE = """        for task in tasks:
            meanwhile()
            try:
                task.post_commit(offsets, acked)
"""
_DUE = (
    "            if (now_ms < due_ms and not self._commit_requested) "
    "or self._rebalances.is_rebalancing:"
)
_FLUSH_TRANSACTION = "            self._in_steps(self._producer.flush, deadline)\n"
_SEND_OFFSETS = """            if offsets:
                self._send_offsets(offsets, deadline)
"""
_COMMIT_TRANSACTION = "            self._in_steps(self._producer.commit_transaction, deadline)\n"

MUTANTS: tuple[Mutant, ...] = (
    # --- the order of a commit ---
    mutant(
        "offsets are committed before the producer is flushed",
        _AT_LEAST_ONCE,
        *(_FLUSH, "        self._commit(offsets, overall)\n        self._flush(overall)\n"),
    ),
    mutant(
        "stores are written before the offsets are committed",
        _COMMITS,
        "        response = None\n",
        "        response = None\n        acked = self._producer.acked_offsets()\n"
        "        for task in to_commit:\n            task.post_commit(offsets, acked)\n",
    ),
    mutant(
        "acknowledged offsets are read before the flush",
        _COMMITS,
        *("        response = None\n", "        acked, response = {}, None\n"),
        *(_PUBLISH, _PUBLISH.partition("\n")[0] + "\n"),
    ),
    mutant(
        "the producer is not flushed",
        *(_AT_LEAST_ONCE, _FLUSH, "        self._commit(offsets, overall)\n"),
    ),
    mutant(
        "the producer is not flushed before an asynchronous commit",
        *(_AT_LEAST_ONCE, _FLUSH_SOON, "        if not offsets:"),
    ),
    # --- pending commits ---
    mutant(
        "stores do not wait for the response",
        _COMMITS,
        "            self._pending = _PendingCommit(response, to_commit, offsets, acked)\n",
        "            self._pending = _PendingCommit(response, to_commit, offsets, acked)\n" + _END,
    ),
    mutant(
        "the response is ignored",
        _COMMITS,
        "        if self._pending is not None and self._pending.response.is_done:\n",
        "        if False:\n",
    ),
    mutant(
        "the loop never checks for the response",
        *(_THREAD, "            self._committer.finish_pending()\n", ""),
    ),
    mutant(
        "the loop blocks for the response instead of polling",
        _COMMITS,
        "        if self._pending is not None and self._pending.response.is_done:\n",
        "        if self._pending is not None:\n",
    ),
    mutant(
        "a commit does not wait for the previous one",
        _COMMITS,
        "        self._await_pending(overall)\n        began_ms",
        "        began_ms",
    ),
    mutant(
        "offsets that the group rejects are not committed again",
        *(_COMMITS, "                task.commit_failed()\n", "                pass\n"),
    ),
    mutant(
        "stores of closed tasks are written",
        _COMMITS,
        "            if task.state is TaskState.RUNNING and task.task_id not in corrupted\n",
        "            if task.task_id not in corrupted\n",
    ),
    mutant(
        "a commit continues when its tasks are dropped",
        *(
            _COMMITS,
            "        self._pending = None\n        self._guarantee.discard_uncommitted()",
            "        self._guarantee.discard_uncommitted()",
        ),
    ),
    mutant(
        "tasks are closed during a pending commit",
        _COMMITS,
        "return self._guarantee.in_transaction or self._pending is not None",
        "return self._guarantee.in_transaction",
    ),
    mutant(
        "a recreated task does not wait for the response",
        _COMMITS,
        "        try:\n            self._await_pending(Deadline(self._clock, None), corrupted)\n",
        "        try:\n            pass\n",
    ),
    mutant(
        "offsets without a response are not sent again",
        *(
            _COMMITS,
            "self._guarantee.await_commit(pending.offsets, pending.response, overall)",
            "pending.response.result()",
        ),
    ),
    mutant(
        "an asynchronous commit is never completed",
        _AT_LEAST_ONCE,
        *(_BEGIN, "return None"),
    ),
    mutant(
        "changes during a pending commit are written with it",
        *(_TASK, "        self.stores.on_commit_started()\n", ""),
    ),
    mutant(
        "a commit is written into discarded state",
        _COMMITS,
        "            if task.state is TaskState.RUNNING and task.task_id not in corrupted\n",
        "            if task.state is TaskState.RUNNING\n",
    ),
    mutant(
        "tasks after one that cannot be written are not written",
        *(_COMMITS, "                failed = failed or error\n", "                raise\n"),
    ),
    mutant(
        "a commit requested by a processor is lost when it is rejected",
        *(_TASK, "        self.processing.node_context.commit_state.commit_failed()\n", ""),
    ),
    mutant(
        "caches are not flushed",
        _COMMITS,
        "                task.prepare_commit()",
        "                pass",
    ),
    mutant(
        "stores are not written",
        _COMMITS,
        *("            task.post_commit(offsets, acked)", "            pass"),
    ),
    mutant(
        "offsets are not committed",
        _AT_LEAST_ONCE,
        *("self._committer.commit(offsets, timeout_ms)", "None"),
    ),
    # --- the selection of tasks ---
    mutant(
        "only the caches of the first task are flushed",
        _COMMITS,
        "        for task in to_commit:\n            with task.located_errors():\n",
        "        for task in to_commit[:1]:\n            with task.located_errors():\n",
    ),
    mutant(
        "only the offsets of the first task are committed",
        _COMMITS,
        "        for task in to_commit:\n            offsets",
        "        for task in to_commit[:1]:\n            offsets",
    ),
    mutant(
        "only the offsets of the last task are committed",
        _COMMITS,
        "to_commit:\n            offsets.update(task.offsets_to_commit())",
        "to_commit:\n            offsets = task.offsets_to_commit()",
    ),
    mutant(
        "only the stores of the first task are written",
        _COMMITS,
        *(_WRITE, _WRITE.replace("in tasks:", "in tasks[:1]:")),
    ),
    mutant(
        "tasks with nothing to commit are committed",
        _COMMITS,
        "to_commit = [task for task in tasks if task.commit_needed]",
        "to_commit = list(tasks)",
    ),
    mutant(
        "no task is ever committed",
        _COMMITS,
        "to_commit = [task for task in tasks if task.commit_needed]",
        "to_commit = [task for task in tasks if False]",
    ),
    mutant(
        "a request is sent although there is nothing to commit",
        _COMMITS,
        "        if not to_commit and not self.has_pending_work:\n            return {}\n"
        "        response",
        "        response",
    ),
    mutant("commits are not counted", _COMMITS, "        self.total += 1\n", ""),
    # --- failures ---
    mutant(
        "a flush that timed out counts as done",
        _INSISTING,
        "            if deadline.passed:\n                raise\n",
        "            if deadline.passed:\n                return\n",
    ),
    mutant(
        "a flush is attempted for only one step",
        _INSISTING,
        "            if deadline.passed:\n                raise\n",
        "            if True:\n                raise\n",
    ),
    mutant(
        "a commit that timed out counts as done",
        _INSISTING,
        "overall.passed):\n                raise\n",
        "overall.passed):\n                return None  # type: ignore[return-value]\n",
    ),
    mutant(
        "a failed commit is not retried",
        _INSISTING,
        "            if failing.passed or (overall is not None and overall.passed):",
        "            if True:",
    ),
    mutant(
        "the timeout of a whole commit is ignored",
        _INSISTING,
        "            if failing.passed or (overall is not None and overall.passed):",
        "            if failing.passed:",
    ),
    mutant(
        "a thread that waits for a flush looks stuck",
        _AT_LEAST_ONCE,
        "wait_in_steps(self._producer.flush, deadline, self._committer.progress)",
        "wait_in_steps(self._producer.flush, deadline, lambda: None)",
    ),
    mutant(
        "a thread that waits for its offsets looks stuck",
        *(_INSISTING, "            on_wait()\n", ""),
    ),
    mutant(
        "a recreated task does not wait for its logged changes",
        _COMMITS,
        "        if any(task.commit_needed for task in tasks):\n",
        "        if False:\n",
    ),
    mutant(
        "queued records of closed tasks are still sent",
        _AT_LEAST_ONCE,
        "        self._producer.purge()",
        "        pass",
    ),
    # --- transactions ---
    mutant(
        "offsets are sent before the records of the transaction are acknowledged",
        _TRANSACTIONS,
        *(_FLUSH_TRANSACTION + _SEND_OFFSETS, _SEND_OFFSETS + _FLUSH_TRANSACTION),
    ),
    mutant(
        "a transaction is committed without its offsets",
        *(_TRANSACTIONS, _SEND_OFFSETS, ""),
    ),
    mutant(
        "a transaction is not committed",
        *(_TRANSACTIONS, _COMMIT_TRANSACTION, "            pass\n"),
    ),
    mutant(
        "a transaction is committed although its offsets were rejected",
        _TRANSACTIONS,
        "            except RebalanceInProgressError as error:\n",
        "            except RebalanceInProgressError as error:\n                return\n",
    ),
    mutant(
        "a transaction without offsets is left open",
        _COMMITS,
        "        if not to_commit and not self.has_pending_work:\n            return {}\n"
        "        response",
        "        if not to_commit:\n            return {}\n        response",
    ),
    mutant(
        "a transaction is committed after the broker has aborted it",
        _TRANSACTIONS,
        "overall.remaining_ms(self._transaction_timeout_ms)",
        "overall.remaining_ms(10 * self._transaction_timeout_ms)",
    ),
    mutant(
        "a transaction without a response blocks the thread for long",
        _INSISTING,
        "deadline.remaining_ms(_STEP_MS)",
        "deadline.remaining_ms(60_000)",
    ),
    mutant(
        "a thread that waits for its transaction looks stuck",
        _TRANSACTIONS,
        "wait_in_steps(attempt, deadline, self._member.progress)",
        "wait_in_steps(attempt, deadline, lambda: None)",
    ),
    mutant(
        "a transaction without new offsets is not fenced",
        _COMMITS,
        "        if not offsets and self.has_pending_work:\n",
        "        if False:\n",
    ),
    mutant(
        "a discarded transaction is not aborted",
        _TRANSACTIONS,
        "    def discard_uncommitted(self) -> None:\n        self._producer.purge()\n",
        "    def discard_uncommitted(self) -> None:\n        pass\n",
    ),
    mutant(
        "tasks start before the transactional id is acquired",
        _TRANSACTIONS,
        "            self._init_retry.failed(error)\n            return False",
        "            self._init_retry.failed(error)\n            return True",
    ),
    mutant(
        "the metadata of a lost group membership is sent",
        "kafka/membership/group_member.py",
        *("        if generation < 0 or not member_id:", "        if False:"),
    ),
    # --- the task: caches ---
    mutant(
        "operators do not forward the entries of their caches",
        _TASK,
        "                executor.flush(store)\n",
        "",
    ),
    mutant(
        "caches of processors are not flushed",
        _TASK,
        "                self.stores.flush_cache(store)\n",
        "",
    ),
    mutant(
        "caches that a flush has changed are not flushed again",
        _TASK,
        "            if not self.stores.has_cached_changes:\n                break\n",
        "            break\n",
    ),
    mutant(
        "the caches of a cycle of stores are not written",
        _TASK,
        "        else:\n            self._write_without_forwarding()\n",
        "",
    ),
    mutant(
        "changes that are logged once per commit are not logged",
        _TASK,
        "        self.stores.log_changes()\n",
        "",
    ),
    # --- the task: offsets ---
    mutant("offsets are one too high", _TASK, "CommitOffset(offset, ", "CommitOffset(offset + 1, "),
    mutant("offsets are one too low", _TASK, "CommitOffset(offset, ", "CommitOffset(offset - 1, "),
    mutant(
        "offsets are those of the previous commit",
        _TASK,
        "CommitOffset(offset, ",
        "CommitOffset(self.committed.get(partition, offset), ",
    ),
    mutant(
        "offsets are those of the most advanced partition",
        _TASK,
        "            offset = queue.next_offset()\n",
        "            offset = max("
        "q.next_offset() or 0 for q in processing.group.queues.values())\n",
    ),
    mutant(
        "the offset of one partition is missing",
        _TASK,
        "            if offset is not None:\n                topic_id",
        "            if offset is not None and partition != min(processing.group.queues):\n"
        "                topic_id",
    ),
    mutant("offsets have no epoch", _TASK, "metadata.encode(), epoch)", "metadata.encode(), None)"),
    mutant("offsets have no metadata", _TASK, "metadata.encode(), epoch)", '"", epoch)'),
    mutant(
        "the metadata of operators is not committed",
        _TASK,
        "                    processor_metadata,\n",
        "                    {},\n",
    ),
    mutant(
        "a partition's time is not committed",
        _TASK,
        "                    queue.pending.time,\n",
        "                    -1,\n",
    ),
    mutant(
        "an offset has no topic",
        _TASK,
        "frozenset([] if topic_id is None else [topic_id])",
        "frozenset()",
    ),
    # --- the task: after the commit ---
    mutant(
        "stores do not receive acknowledged offsets",
        _TASK,
        "known = {partition: acked[partition] for partition in reached if partition in acked}",
        "known: dict[TopicPartition, int] = {}",
    ),
    mutant(
        "stores receive the acknowledged offsets of all changelogs",
        _TASK,
        "known = {partition: acked[partition] for partition in reached if partition in acked}",
        "known = {partition: max(acked.values()) for partition in reached if partition in acked}",
    ),
    mutant(
        "source topics used as changelogs are ignored",
        _TASK,
        "            if partition in reached and partition in offsets:",
        "            if False:",
    ),
    mutant(
        "a store is one ahead of the source topic used as its changelog",
        _TASK,
        "known[partition] = offsets[partition].offset - 1",
        "known[partition] = offsets[partition].offset",
    ),
    mutant(
        "a store returns to an old acknowledged offset",
        _TASK,
        "if (before := reached[partition]) is None or offset > before",
        "if (before := reached[partition]) is None or offset != before",
    ),
    mutant(
        "the first offset of a store is not stored",
        _TASK,
        "if (before := reached[partition]) is None or offset > before",
        "if (before := reached[partition]) is not None and offset > before",
    ),
    mutant(
        "repartition records are deleted before they are committed",
        _TASK,
        "self.committed[partition] = offsets[partition].offset",
        "self.committed[partition] = offsets[partition].offset + 1",
    ),
    mutant(
        "repartition records are never deleted",
        _TASK,
        "                self.committed[partition] = offsets[partition].offset",
        "                pass",
    ),
    mutant(
        "a committed task is committed repeatedly",
        _TASK,
        "        self.commit_needed = self.awaits_delivery\n        self.processing.node_context",
        "        self.processing.node_context",
    ),
    mutant(
        "a requested commit is repeated",
        _TASK,
        "        self.processing.node_context.commit_state.on_commit_started()\n",
        "",
    ),
    mutant(
        "a batch needs no commit",
        _TASK,
        "        self.commit_needed = True\n        if batches is None:",
        "        if batches is None:",
    ),
    mutant(
        "a punctuation needs no commit",
        _TASK,
        "        self.commit_needed = self.commit_needed or called\n",
        "",
    ),
    mutant(
        "a batch is never finished",
        _TASK,
        "            processing.group.finish_all()\n",
        "            pass\n",
    ),
    mutant(
        "a batch is finished before the nodes process it",
        _TASK,
        "                executor.run(batches)\n",
        "                self.processing.group.finish_all()\n"
        "                executor.run(batches)\n",
    ),
    mutant(
        "records in flight are finished with their batch",
        _TASK,
        "        if in_flight_records:\n",
        "        if False:\n",
    ),
    mutant(
        "a commit does not wait for records in flight",
        _TASK,
        "        return not self._is_draining or self._is_drained()\n",
        "        return True\n",
    ),
    mutant(
        "records of a punctuation are in flight during a commit",
        _TASK,
        "                or processing.runner_context.in_flight_records.from_punctuations > 0\n",
        "",
    ),
    mutant(
        "acknowledged records of a task do not cause a commit",
        _TASK,
        "            self.commit_needed = self.commit_needed or executor.awaits_delivery\n",
        "",
        tests=("tests/unit/subscriptions/operator/test_send_failures.py",),
    ),
    mutant(
        "pending records of a task do not cause a commit",
        _TASK,
        "        self.commit_needed = self.awaits_delivery\n",
        "        self.commit_needed = False\n",
        tests=("tests/unit/subscriptions/operator/test_send_failures.py",),
    ),
    mutant(
        "the acknowledgment of a task's records is not awaited",
        _COMMITS,
        "            self._guarantee.await_delivery(overall)\n        for task in tasks:",
        "            pass\n        for task in tasks:",
    ),
    # --- stores ---
    mutant(
        "changes in caches are ignored",
        _STORES,
        "return any(cache.dirty for cache in self.caches().values())",
        "return False",
    ),
    mutant(
        "caches without operators are not written",
        _STORES,
        "        if not cache.forwards_changes:\n            cache.flush()\n",
        "",
    ),
    mutant(
        "the caches of a cycle of stores are reported but not written",
        _STORES,
        "        for cache in changed.values():\n            cache.flush()\n",
        "",
    ),
    mutant(
        "stores do not log their changes at a commit",
        _STORES,
        "            if opened.before_commit is not None:\n                opened.before_commit()",
        "            pass",
    ),
    mutant(
        "stores with an unchanged changelog offset are not written",
        _STORES,
        "                opened.base.commit(None)\n            else:",
        "                pass\n            else:",
    ),
    mutant(
        "stores do not store their offset",
        _STORES,
        "opened.base.commit(kept)",
        "opened.base.commit(None)",
    ),
    mutant(
        "stores store an offset that is one ahead",
        _STORES,
        "kept = (partition, offset) if",
        "kept = (partition, offset + 1) if",
    ),
    mutant(
        "stores store an offset that is one behind",
        _STORES,
        "kept = (partition, offset) if",
        "kept = (partition, offset - 1) if",
    ),
    mutant(
        "only one of several stores is written",
        _STORES,
        "                restorer.reached = offset\n            self._metrics",
        "                restorer.reached = offset\n                break\n"
        "            self._metrics",
    ),
    mutant(
        "stores have no position",
        _STORES,
        "                restorer.reached = offset\n            self._metrics",
        "            self._metrics",
    ),
    mutant(
        "the checkpoint is not written in between",
        _STORES,
        "        if moved > _CHECKPOINT_AFTER_OFFSETS:\n            self._write_checkpoint()\n",
        "",
    ),
    mutant(
        "the checkpoint is ahead of the stores",
        _STORES,
        "            partition: restorer.reached\n            for partition",
        "            partition: restorer.reached + 1\n            for partition",
    ),
    mutant(
        "a close without a commit writes the checkpoint",
        _STORES,
        "            if clean and self._stores:\n",
        "            if self._stores:\n",
    ),
    mutant(
        "a close after a commit does not write the checkpoint",
        _STORES,
        "                self._warn_uncommitted()\n                self._write_checkpoint()\n",
        "                self._warn_uncommitted()\n",
    ),
    mutant(
        "an overlay is discarded instead of written",
        _OVERLAY,
        "write_batch(frozen.writes, offset, ",
        "write_batch({}, offset, ",
    ),
    mutant(
        "a store with many uncommitted writes writes them during a batch",
        _OVERLAY,
        "        self._bytes += len(key) + (0 if value is None else len(value))\n",
        "        self._bytes += len(key) + (0 if value is None else len(value))\n"
        "        if self._bytes > 100:\n            self.commit(None)\n",
    ),
    mutant(
        "writes after the start of a commit are written with it",
        _OVERLAY,
        "frozen = self._frozen or self._freeze()",
        "frozen = self._freeze()",
    ),
    mutant(
        "a thread with full stores does not commit",
        _TASK,
        "            or self.stores.needs_commit\n",
        "",
    ),
    mutant(
        "a task takes records although stores are full and no commit is possible",
        _TASK,
        "            and not (self.commit_needed and self.stores.needs_commit)\n",
        "",
    ),
    mutant(
        "writes of a batch are not counted",
        _TASK,
        "        self.stores.after_work()\n        return count\n",
        "        return count\n",
    ),
    mutant(
        "committed stores still count as full",
        _STORES,
        "        self._count_writes()\n        with disk",
        "        with disk",
    ),
    mutant(
        "closed stores still count as full",
        _STORES,
        "            self._uncommitted.update(self, 0)\n",
        "",
    ),
    mutant(
        "stores with uncommitted writes are kept for another role",
        _STORES,
        "        if not self.can_recycle:\n",
        "        if False:\n",
    ),
    mutant(
        "changes discarded during a commit reappear when it fails",
        *(
            _OVERLAY,
            "            for key in [key for key in writes if start <= key < end]:\n"
            "                del writes[key]\n        writes.update",
            "            pass\n        writes.update",
        ),
    ),
    mutant(
        "an overlay is written without its offset",
        _OVERLAY,
        "write_batch(frozen.writes, offset, ",
        "write_batch(frozen.writes, None, ",
    ),
    mutant(
        "a closed overlay is written",
        _OVERLAY,
        "        self._discard_writes()\n        self._storage.close()",
        "        self.commit(None)\n        self._storage.close()",
    ),
    mutant(
        "RocksDB writes data without its offset",
        _ROCKSDB,
        "        if offset is not None:\n            put(_offset_key",
        "        if False:\n            put(_offset_key",
    ),
    # --- changelogs ---
    mutant(
        "single changes are not logged",
        _CHANGELOG,
        "                (key,),\n                (value,),\n",
        "                (),\n                (),\n",
    ),
    mutant(
        "batches of changes are not logged",
        _CHANGELOG,
        "self._writer.log_many(self._store_name, keys, values, timestamps, headers)",
        "pass",
    ),
    mutant(
        "single stored changes are not logged",
        _CHANGELOG,
        *("send(store_name, (key,), (stored,), (timestamp,))", "pass"),
        *("send(store_name, (key,), (value_of(stored),), (timestamp,))", "pass"),
    ),
    mutant(
        "batches of stored changes are not logged",
        _CHANGELOG,
        *("send(store_name, keys, values_of(stored), timestamps)", "pass"),
    ),
    # --- records in flight ---
    mutant(
        "records in flight count as completed",
        _PENDING,
        "        return run.offsets[run.done]\n",
        "        return run.offsets[-1]\n",
    ),
    mutant(
        "completed records stay in flight",
        _PENDING,
        "            self._runs.clear()\n",
        "",
    ),
    mutant(
        "a completed record completes all records before it",
        _PENDING,
        "            if run.offsets[run.done] not in finished:\n                return\n"
        "            finished.remove(run.offsets[run.done])",
        "            finished.discard(run.offsets[run.done])",
    ),
    # --- acknowledgments ---
    mutant(
        "acknowledged offsets are one ahead",
        _DELIVERY,
        "                self._acked[partition] = offset\n",
        "                self._acked[partition] = offset + 1\n",
    ),
    mutant(
        "a failed record counts as acknowledged",
        _DELIVERY,
        "            else:\n                self._note(error, message)\n\n"
        "        return on_delivery",
        "\n        return on_delivery",
    ),
    mutant(
        "a failed record with a handler is ignored",
        _DELIVERY,
        "            self._undecided.append(\n",
        "            _ = (\n",
    ),
    mutant(
        "a commit passes a failed record that its handler keeps",
        _DELIVERY,
        "            if failure is not None:\n",
        "            if False:\n",
    ),
    # --- rebalances ---
    mutant(
        "revoked tasks are not committed",
        _REBALANCES,
        "            committed = self._commit_if_needed(revoked)\n",
        "            committed = True\n",
    ),
    mutant(
        "a revocation is acknowledged before its tasks are committed",
        _REBALANCES,
        "            committed = self._commit_if_needed(revoked)\n",
        "            self._member.acknowledge(event)\n"
        "            committed = self._commit_if_needed(revoked)\n",
    ),
    mutant(
        "a revocation is not acknowledged",
        _REBALANCES,
        "        finally:\n            self._member.acknowledge(event)\n"
        '        return RebalanceResult(f"tasks {names} move to other threads"',
        "        finally:\n            pass\n"
        '        return RebalanceResult(f"tasks {names} move to other threads"',
    ),
    mutant(
        "revoked tasks that could not be committed are closed as clean",
        _REBALANCES,
        "            if committed:\n",
        "            if True:\n",
    ),
    mutant(
        "revoked tasks are committed without the remaining tasks",
        _REBALANCES,
        "        committing = self._tasks.running\n",
        "        committing = self._tasks.running if tasks is None else tasks\n",
    ),
    mutant(
        "queued records of lost tasks are still sent",
        _REBALANCES,
        "        self._committer.discard_uncommitted()\n",
        "",
    ),
    mutant(
        "lost tasks are closed as clean",
        _REBALANCES,
        "self._tasks.close_active(clean=False)",
        "self._tasks.close_active(clean=True)",
    ),
    mutant(
        "a fenced member keeps its tasks",
        _REBALANCES,
        "                self.discard_work()\n                return False",
        "                return False",
    ),
    mutant(
        "lost tasks continue",
        _REBALANCES,
        "        try:\n            self.discard_work()\n        finally:",
        "        try:\n            pass\n        finally:",
    ),
    mutant(
        "tasks that the new assignment removes are not committed",
        _REBALANCES,
        "        self._commit_if_needed(self._tasks.outdated(",
        "        print(self._tasks.outdated(",
    ),
    mutant(
        "a revocation does not wait for records in flight",
        _REBALANCES,
        "            self._committer.drain(revoked)\n",
        "",
    ),
    mutant(
        "a restart of tasks does not wait for records in flight",
        _REBALANCES,
        "        self._committer.drain(tasks)\n",
        "",
    ),
    # --- the thread ---
    mutant(
        "commits happen at any time",
        _THREAD,
        *(_DUE, "            if self._rebalances.is_rebalancing:"),
    ),
    mutant(
        "commits happen only on request",
        _THREAD,
        *(_DUE, "            if not self._commit_requested or self._rebalances.is_rebalancing:"),
    ),
    mutant(
        "requested commits wait for the interval",
        _THREAD,
        *(_DUE, "            if now_ms < due_ms or self._rebalances.is_rebalancing:"),
    ),
    mutant(
        "commits happen during a rebalance",
        _THREAD,
        *(_DUE, "            if now_ms < due_ms and not self._commit_requested:"),
    ),
    mutant(
        "a commit that the group rejected is lost",
        _THREAD,
        "            # The flush made tasks process records, so tasks may have requested commits.\n"
        "            self._check_commit_requests()\n",
        "            self._commit_requested = False\n",
    ),
    mutant(
        "nothing is committed before closing",
        _CLOSING,
        "            offsets = self._final_commit()\n",
        "            offsets: dict[TopicPartition, CommitOffset] = {}\n",
    ),
    mutant(
        "tasks that could not be committed are closed as clean",
        _CLOSING,
        "lambda: self._tasks.close_all(clean=committed)",
        "lambda: self._tasks.close_all(clean=True)",
    ),
    mutant(
        "uncommitted records are sent while closing",
        _CLOSING,
        "lambda: None if committed else self._committer.discard_uncommitted()",
        "lambda: None",
    ),
    mutant(
        "the last commit is attempted only once",
        _CLOSING,
        "            except RebalanceInProgressError:\n                if deadline.passed:\n"
        "                    raise",
        "            except RebalanceInProgressError:\n                raise",
    ),
    mutant(
        "recreating a task does not wait for its logged changes",
        _THREAD,
        "        self._committer.await_delivery(self._tasks.running, error.task_ids)\n",
        "",
    ),
    # --- the start of a task ---
    mutant(
        "a task starts before it is restored",
        _TASKS,
        "            and not self._restoration.has_unfinished(task.task_id)\n",
        "",
    ),
)
