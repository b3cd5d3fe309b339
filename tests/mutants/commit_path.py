"""Faults in the path of a commit."""

from __future__ import annotations

from mutants.mutant import Mutant, mutant

_COMMITS = "runtime/loop/commits.py"
_AT_LEAST_ONCE = "runtime/loop/at_least_once.py"
_TRANSACTIONS = "runtime/loop/transactions.py"
_INSISTING = "kafka/cluster/insisting.py"
_TASK = "runtime/task/stream_task.py"
_STORES = "state/task_stores.py"
_CHANGELOG = "state/changelogs/store_changelog.py"
_OVERLAY = "state/storage/overlay.py"
_ROCKSDB = "state/storage/rocksdb.py"
_REBALANCES = "runtime/loop/rebalances.py"
_CLOSING = "runtime/loop/closing.py"
_THREAD = "runtime/loop/stream_thread.py"
_TASKS = "runtime/ownership/tasks.py"
_PENDING = "runtime/task/queues/pending_offsets.py"
_QUEUE = "runtime/task/queues/record_queue.py"
_DELIVERY = "kafka/data/delivery.py"

_PUBLISH = """            self._publication.publish(offsets, whole)
        acked = self._producer.acked_offsets()
"""
_END = """            self._end(needing, offsets, acked, meanwhile)
"""
_FLUSH = "        self._flush(whole)\n        self.commit(offsets, whole)\n"
_FLUSH_SOON = "        self._flush(whole)\n        if not offsets:"
_BEGIN = "return _Offsets(offsets, self._committer.begin_commit(offsets, _COMMIT_TIMEOUT_MS), self)"
_WRITE = """        for task in tasks:
            meanwhile()
            try:
                task.post_commit(offsets, acked)
"""
_DUE = "            if (now_ms < due_ms and not self._commit_wanted) or self._rebalances.under_way:"
_FLUSH_TRANSACTION = "            self._insist(self._producer.flush, deadline)\n"
_SEND_OFFSETS = """            if offsets:
                self._send_offsets(offsets, deadline)
"""
_COMMIT_TRANSACTION = "            self._insist(self._producer.commit_transaction, deadline)\n"

MUTANTS: tuple[Mutant, ...] = (
    # --- the order of a commit ---
    mutant(
        "offsets are committed before the producer is flushed",
        _AT_LEAST_ONCE,
        *(_FLUSH, "        self.commit(offsets, whole)\n        self._flush(whole)\n"),
    ),
    mutant(
        "stores are written before the offsets are committed",
        _COMMITS,
        "        confirmation = None\n",
        "        confirmation = None\n        acked = self._producer.acked_offsets()\n"
        "        for task in needing:\n            task.post_commit(offsets, acked)\n",
    ),
    mutant(
        "acknowledged offsets are looked at before the flush",
        _COMMITS,
        *("        confirmation = None\n", "        acked, confirmation = {}, None\n"),
        *(_PUBLISH, _PUBLISH.partition("\n")[0] + "\n"),
    ),
    mutant(
        "the producer is not flushed",
        *(_AT_LEAST_ONCE, _FLUSH, "        self.commit(offsets, whole)\n"),
    ),
    mutant(
        "the producer is not flushed before offsets are on their way",
        *(_AT_LEAST_ONCE, _FLUSH_SOON, "        if not offsets:"),
    ),
    # --- a commit that the group has not answered ---
    mutant(
        "stores do not wait for the answer",
        _COMMITS,
        "            self._begun = _Begun(confirmation, needing, offsets, acked)\n",
        "            self._begun = _Begun(confirmation, needing, offsets, acked)\n" + _END,
    ),
    mutant(
        "nobody hears of the answer",
        _COMMITS,
        "        if self._begun is not None and self._begun.confirmation.is_there:\n",
        "        if False:\n",
    ),
    mutant(
        "the loop never asks for the answer",
        *(_THREAD, "            self._commits.hear()\n", ""),
    ),
    mutant(
        "an answer is waited for where it is only to be heard of",
        _COMMITS,
        "        if self._begun is not None and self._begun.confirmation.is_there:\n",
        "        if self._begun is not None:\n",
    ),
    mutant(
        "a commit does not wait for the one before",
        _COMMITS,
        "        self._finish(whole)\n        began_ms",
        "        began_ms",
    ),
    mutant(
        "what the group refuses later is not committed any more",
        *(_COMMITS, "                task.commit_failed()\n", "                pass\n"),
    ),
    mutant(
        "tasks that were closed meanwhile are written",
        _COMMITS,
        "            if task.state is TaskState.RUNNING and task.task_id not in corrupted\n",
        "            if task.task_id not in corrupted\n",
    ),
    mutant(
        "a commit goes on when its tasks are dropped",
        *(
            _COMMITS,
            "        self._begun = None\n        self._publication.forget_sent()",
            "        self._publication.forget_sent()",
        ),
    ),
    mutant(
        "tasks are given up with a commit that is not over",
        _COMMITS,
        "return self._publication.is_open or self._begun is not None",
        "return self._publication.is_open",
    ),
    mutant(
        "a task that is rebuilt does not wait for the answer",
        _COMMITS,
        "        try:\n            self._finish(Deadline(self._clock, None), corrupted)\n",
        "        try:\n            pass\n",
    ),
    mutant(
        "offsets that were not answered are not sent again",
        *(
            _AT_LEAST_ONCE,
            "self._guarantee.commit(self._offsets, whole, self._begun)",
            "self._begun.take(None)",
        ),
    ),
    mutant(
        "offsets are begun to be committed and never are",
        _AT_LEAST_ONCE,
        *(_BEGIN, "return None"),
    ),
    mutant(
        "what comes while the group has not answered is written with the commit",
        *(_TASK, "        self.stores.commit_begun()\n", ""),
    ),
    mutant(
        "a commit is written into a state that is thrown away",
        _COMMITS,
        "            if task.state is TaskState.RUNNING and task.task_id not in corrupted\n",
        "            if task.state is TaskState.RUNNING\n",
    ),
    mutant(
        "tasks behind one that cannot be written are not written",
        *(_COMMITS, "                failed = failed or error\n", "                raise\n"),
    ),
    mutant(
        "a commit that a processor asked for is forgotten when it is refused",
        *(_TASK, "        self.processing.engine_task.notes.commit_failed()\n", ""),
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
    # --- which tasks, how often ---
    mutant(
        "caches of the first task only are flushed",
        _COMMITS,
        "        for task in needing:\n            with failures_of(task):\n",
        "        for task in needing[:1]:\n            with failures_of(task):\n",
    ),
    mutant(
        "offsets of the first task only are committed",
        _COMMITS,
        "        for task in needing:\n            offsets",
        "        for task in needing[:1]:\n            offsets",
    ),
    mutant(
        "offsets of the last task only are committed",
        _COMMITS,
        "needing:\n            offsets.update(task.offsets_to_commit())",
        "needing:\n            offsets = task.offsets_to_commit()",
    ),
    mutant(
        "stores of the first task only are written",
        _COMMITS,
        *(_WRITE, _WRITE.replace("in tasks:", "in tasks[:1]:")),
    ),
    mutant(
        "tasks that have nothing to commit are committed",
        _COMMITS,
        "needing = [task for task in tasks if task.commit_needed]",
        "needing = list(tasks)",
    ),
    mutant(
        "no task is ever committed",
        _COMMITS,
        "needing = [task for task in tasks if task.commit_needed]",
        "needing = [task for task in tasks if False]",
    ),
    mutant(
        "the cluster is asked though nothing is to be committed",
        _COMMITS,
        "        if not needing and not self.is_open:\n            return {}\n        confirmation",
        "        confirmation",
    ),
    mutant("commits are not counted", _COMMITS, "        self.total += 1\n", ""),
    # --- what fails ---
    mutant(
        "a flush that was not done in time counts as done",
        _INSISTING,
        "            if deadline.passed:\n                raise\n",
        "            if deadline.passed:\n                return\n",
    ),
    mutant(
        "a flush is tried for one step only",
        _INSISTING,
        "            if deadline.passed:\n                raise\n",
        "            if True:\n                raise\n",
    ),
    mutant(
        "a commit that failed for too long counts as done",
        _INSISTING,
        "whole.passed):\n                raise\n",
        "whole.passed):\n                return None  # type: ignore[return-value]\n",
    ),
    mutant(
        "a commit that failed is not tried again",
        _INSISTING,
        "            if failing.passed or (whole is not None and whole.passed):",
        "            if True:",
    ),
    mutant(
        "the bound of all of a commit is not kept",
        _INSISTING,
        "            if failing.passed or (whole is not None and whole.passed):",
        "            if failing.passed:",
    ),
    mutant(
        "a thread that waits for a flush seems to hang",
        _AT_LEAST_ONCE,
        "in_steps(self._producer.flush, deadline, self._committer.progress)",
        "in_steps(self._producer.flush, deadline, lambda: None)",
    ),
    mutant(
        "a thread that waits for its offsets seems to hang",
        *(_INSISTING, "            on_wait()\n", ""),
    ),
    mutant(
        "a task that is rebuilt does not wait for what it has logged",
        _COMMITS,
        "        if any(task.commit_needed for task in tasks):\n",
        "        if False:\n",
    ),
    mutant(
        "what was sent by tasks that are given up is sent all the same",
        _AT_LEAST_ONCE,
        "        self._producer.purge()",
        "        pass",
    ),
    # --- transactions ---
    mutant(
        "a transaction's offsets are sent before its records are acknowledged",
        _TRANSACTIONS,
        *(_FLUSH_TRANSACTION + _SEND_OFFSETS, _SEND_OFFSETS + _FLUSH_TRANSACTION),
    ),
    mutant(
        "a transaction goes without its offsets",
        *(_TRANSACTIONS, _SEND_OFFSETS, ""),
    ),
    mutant(
        "a transaction is not committed",
        *(_TRANSACTIONS, _COMMIT_TRANSACTION, "            pass\n"),
    ),
    mutant(
        "a transaction is committed though its offsets were refused",
        _TRANSACTIONS,
        "            except RebalanceInProgressError as error:\n",
        "            except RebalanceInProgressError as error:\n                return\n",
    ),
    mutant(
        "a transaction without offsets is left open",
        _COMMITS,
        "        if not needing and not self.is_open:\n            return {}\n        confirmation",
        "        if not needing:\n            return {}\n        confirmation",
    ),
    mutant(
        "a transaction is committed after the broker has aborted it",
        _TRANSACTIONS,
        "whole.remaining_ms(self._transaction_timeout_ms)",
        "whole.remaining_ms(10 * self._transaction_timeout_ms)",
    ),
    mutant(
        "a transaction that is not answered holds the thread up for long",
        _INSISTING,
        "deadline.remaining_ms(_STEP_MS)",
        "deadline.remaining_ms(60_000)",
    ),
    mutant(
        "a thread that waits for its transaction seems to hang",
        _TRANSACTIONS,
        "in_steps(attempt, deadline, self._member.progress)",
        "in_steps(attempt, deadline, lambda: None)",
    ),
    mutant(
        "a transaction in which no offset has moved is not fenced",
        _COMMITS,
        "        if not offsets and self.is_open:\n",
        "        if False:\n",
    ),
    mutant(
        "a transaction that was given up is not aborted",
        _TRANSACTIONS,
        '        """Abort the transaction."""\n        self._producer.purge()\n',
        "        pass\n",
    ),
    mutant(
        "tasks begin before the transactional id is taken over",
        _TRANSACTIONS,
        "            self._beginning.failed(error)\n            return False",
        "            self._beginning.failed(error)\n            return True",
    ),
    mutant(
        "a place in the group that is lost is sent",
        "kafka/member/group_member.py",
        *("        if generation < 0 or not member_id:", "        if False:"),
    ),
    # --- the task: caches ---
    mutant(
        "operators do not hand on what their caches hold back",
        _TASK,
        "                executor.flush(store)\n",
        "",
    ),
    mutant(
        "caches of processors are not flushed",
        _TASK,
        "                self.stores.flush_silently(store)\n",
        "",
    ),
    mutant(
        "caches that a flush has changed again are left",
        _TASK,
        "            if not self.stores.have_changes:\n                break\n",
        "            break\n",
    ),
    mutant(
        "what a circle of stores holds back is not written",
        _TASK,
        "        else:\n            self._write_unsettled()\n",
        "",
    ),
    mutant(
        "what is logged once a commit is not logged",
        _TASK,
        "        self.stores.log_changes()\n",
        "",
    ),
    # --- the task: offsets ---
    mutant("offsets are one too high", _TASK, "CommitOffset(offset, ", "CommitOffset(offset + 1, "),
    mutant("offsets are one too low", _TASK, "CommitOffset(offset, ", "CommitOffset(offset - 1, "),
    mutant(
        "offsets are those of the commit before",
        _TASK,
        "CommitOffset(offset, ",
        "CommitOffset(self.committed.get(place, offset), ",
    ),
    mutant(
        "offsets are those of the partition that is ahead",
        _TASK,
        "            offset = queue.next_offset()\n",
        "            offset = max(q.next_offset() or 0 for q in at_work.group.queues.values())\n",
    ),
    mutant(
        "one partition's offset is left out",
        _TASK,
        "            if offset is not None:\n                topic_id",
        "            if offset is not None and place != min(at_work.group.queues):\n"
        "                topic_id",
    ),
    mutant("offsets have no epoch", _TASK, "metadata.encode(), epoch)", "metadata.encode(), None)"),
    mutant("offsets have no metadata", _TASK, "metadata.encode(), epoch)", '"", epoch)'),
    mutant(
        "what operators remember is not committed",
        _TASK,
        "                    remembered,\n",
        "                    {},\n",
    ),
    mutant(
        "a partition's time is not committed",
        _TASK,
        "                    queue.pending.time,\n",
        "                    -1,\n",
    ),
    mutant(
        "an offset does not say which topic it is of",
        _TASK,
        "frozenset([] if topic_id is None else [topic_id])",
        "frozenset()",
    ),
    # --- the task: after the commit ---
    mutant(
        "stores do not hear what is acknowledged",
        _TASK,
        "known = {place: acked[place] for place in reached if place in acked}",
        "known: dict[TopicPartition, int] = {}",
    ),
    mutant(
        "stores are said to have what was acknowledged of all changelogs",
        _TASK,
        "known = {place: acked[place] for place in reached if place in acked}",
        "known = {place: max(acked.values()) for place in reached if place in acked}",
    ),
    mutant(
        "a source topic that serves as changelog is not known",
        _TASK,
        "            if place in reached and place in offsets:",
        "            if False:",
    ),
    mutant(
        "a store is one ahead of the source topic that serves as its changelog",
        _TASK,
        "known[place] = offsets[place].offset - 1",
        "known[place] = offsets[place].offset",
    ),
    mutant(
        "a store goes back to what was acknowledged long ago",
        _TASK,
        "if (before := reached[place]) is None or offset > before",
        "if (before := reached[place]) is None or offset != before",
    ),
    mutant(
        "a store's first offset is not kept",
        _TASK,
        "if (before := reached[place]) is None or offset > before",
        "if (before := reached[place]) is not None and offset > before",
    ),
    mutant(
        "repartition records are deleted before they are committed",
        _TASK,
        "self.committed[place] = offsets[place].offset",
        "self.committed[place] = offsets[place].offset + 1",
    ),
    mutant(
        "repartition records are never deleted",
        _TASK,
        "                self.committed[place] = offsets[place].offset",
        "                pass",
    ),
    mutant(
        "a committed task is committed again and again",
        _TASK,
        "        self.commit_needed = self.awaits_sent\n        self.processing.engine_task",
        "        self.processing.engine_task",
    ),
    mutant(
        "a commit that was asked for is made again and again",
        _TASK,
        "        self.processing.engine_task.notes.commit_begun()\n",
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
        "            at_work.group.finish_all()\n",
        "            pass\n",
    ),
    mutant(
        "a batch is finished before it is taken through the nodes",
        _TASK,
        "                executor.run(batches)\n",
        "                self.processing.group.finish_all()\n"
        "                executor.run(batches)\n",
    ),
    mutant(
        "records in flight are finished with their batch",
        _TASK,
        "        if flights:\n",
        "        if False:\n",
    ),
    mutant(
        "a commit does not wait for what is in flight",
        _TASK,
        "        return not self._is_landing or self._has_landed()\n",
        "        return True\n",
    ),
    mutant(
        "what a punctuation has caused is in flight at a commit",
        _TASK,
        "            self._is_landing = at_work.lands or at_work.equipment.flights.unplaced > 0\n",
        "            self._is_landing = at_work.lands\n",
    ),
    mutant(
        "what was sent of a task asks for no commit",
        _TASK,
        "            self.commit_needed = self.commit_needed or executor.awaits_sent\n",
        "",
    ),
    mutant(
        "what was sent of a task and not waited for asks for no commit",
        _TASK,
        "        self.commit_needed = self.awaits_sent\n",
        "        self.commit_needed = False\n",
    ),
    mutant(
        "what was sent of a task is not waited for",
        _COMMITS,
        "            self._publication.settle(whole)\n        for task in tasks:",
        "            pass\n        for task in tasks:",
    ),
    # --- stores ---
    mutant(
        "changes in caches are not seen",
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
        "what a circle of stores holds back is named, but not written",
        _STORES,
        "        for cache in changed.values():\n            cache.flush()\n",
        "",
    ),
    mutant(
        "stores do not log what they log once a commit",
        _STORES,
        "            if opened.before_commit is not None:\n                opened.before_commit()",
        "            pass",
    ),
    mutant(
        "stores whose changelog has not moved are not written",
        _STORES,
        "                opened.base.commit(None)\n            else:",
        "                pass\n            else:",
    ),
    mutant(
        "stores do not keep the offset that they stand for",
        _STORES,
        "opened.base.commit(kept)",
        "opened.base.commit(None)",
    ),
    mutant(
        "stores keep an offset that is one ahead",
        _STORES,
        "kept = (partition, offset) if",
        "kept = (partition, offset + 1) if",
    ),
    mutant(
        "stores keep an offset that is one behind",
        _STORES,
        "kept = (partition, offset) if",
        "kept = (partition, offset - 1) if",
    ),
    mutant(
        "one store of several is written",
        _STORES,
        "                restorer.reached = offset\n            self._meters",
        "                restorer.reached = offset\n                break\n"
        "            self._meters",
    ),
    mutant(
        "stores do not know how far they are",
        _STORES,
        "                restorer.reached = offset\n            self._meters",
        "            self._meters",
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
        "                self._warn_of_uncommitted()\n                self._write_checkpoint()\n",
        "                self._warn_of_uncommitted()\n",
    ),
    mutant(
        "an overlay is forgotten instead of written",
        _OVERLAY,
        "write_batch(begun.writes, offset, ",
        "write_batch({}, offset, ",
    ),
    mutant(
        "a store with many writes that wait writes them in the middle of a batch",
        _OVERLAY,
        "        self._bytes += len(key) + (0 if value is None else len(value))\n",
        "        self._bytes += len(key) + (0 if value is None else len(value))\n"
        "        if self._bytes > 100:\n            self.commit(None)\n",
    ),
    mutant(
        "writes that come after a commit has begun are written with it",
        _OVERLAY,
        "begun = self._begun or self._begin()",
        "begun = self._begin()",
    ),
    mutant(
        "a thread whose stores are full does not commit",
        _TASK,
        "            or self.stores.needs_commit\n",
        "",
    ),
    mutant(
        "a task takes records while the stores are full and no commit is possible",
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
        "stores that are committed still count as full",
        _STORES,
        "        self._count_writes()\n        with disk",
        "        with disk",
    ),
    mutant(
        "stores that are closed still count as full",
        _STORES,
        "            self._uncommitted.update(self, 0)\n",
        "",
    ),
    mutant(
        "stores with writes that are not committed are kept for another role",
        _STORES,
        "        if not self.can_be_recycled:\n",
        "        if False:\n",
    ),
    mutant(
        "what was dropped after a commit has begun comes back when it did not come about",
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
        "write_batch(begun.writes, offset, ",
        "write_batch(begun.writes, None, ",
    ),
    mutant(
        "an overlay that is closed is written",
        _OVERLAY,
        "        self._forget()\n        self._storage.close()",
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
        "many changes are not logged",
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
        "many stored changes are not logged",
        _CHANGELOG,
        *("send(store_name, keys, values_of(stored), timestamps)", "pass"),
    ),
    # --- what is in flight ---
    mutant(
        "what is in flight counts as done",
        _PENDING,
        "        return run.offsets[run.done]\n",
        "        return run.offsets[-1]\n",
    ),
    mutant(
        "what is finished stays in flight",
        _PENDING,
        "            self._runs.clear()\n",
        "",
    ),
    mutant(
        "a finished record takes all before it along",
        _PENDING,
        "            if run.offsets[run.done] not in finished:\n                return\n"
        "            finished.remove(run.offsets[run.done])",
        "            finished.discard(run.offsets[run.done])",
    ),
    # --- acknowledgements ---
    mutant(
        "acknowledged offsets are one ahead",
        _DELIVERY,
        "                self._acked[partition] = offset\n",
        "                self._acked[partition] = offset + 1\n",
    ),
    mutant(
        "a record that failed counts as acknowledged",
        _DELIVERY,
        "            else:\n                self._note(error, message)\n\n"
        "        return on_delivery",
        "\n        return on_delivery",
    ),
    mutant(
        "a record that failed is forgotten when somebody watches it",
        _DELIVERY,
        "            self._undecided.append(\n",
        "            _ = (\n",
    ),
    mutant(
        "a commit goes past a record that somebody who watches does not want to lose",
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
        '        return OwnershipChange(f"tasks {names} go to other threads"',
        "        finally:\n            pass\n"
        '        return OwnershipChange(f"tasks {names} go to other threads"',
    ),
    mutant(
        "revoked tasks that could not be committed are closed as if they were",
        _REBALANCES,
        "            if committed:\n",
        "            if True:\n",
    ),
    mutant(
        "revoked tasks are committed without those that stay",
        _REBALANCES,
        "        committing = self._tasks.running\n",
        "        committing = self._tasks.running if tasks is None else tasks\n",
    ),
    mutant(
        "what was sent by lost tasks is sent all the same",
        _REBALANCES,
        "        self._commits.forget_sent()\n",
        "",
    ),
    mutant(
        "lost tasks are closed as if they were committed",
        _REBALANCES,
        "self._tasks.close_active(clean=False)",
        "self._tasks.close_active(clean=True)",
    ),
    mutant(
        "a fenced member keeps its tasks",
        _REBALANCES,
        "                self.drop_work()\n                return False",
        "                return False",
    ),
    mutant(
        "lost tasks go on",
        _REBALANCES,
        "        try:\n            self.drop_work()\n        finally:",
        "        try:\n            pass\n        finally:",
    ),
    mutant(
        "tasks that the new assignment takes away are not committed",
        _REBALANCES,
        "        self._commit_if_needed(self._tasks.outdated(",
        "        print(self._tasks.outdated(",
    ),
    mutant(
        "what is in flight is not waited for before a revocation",
        _REBALANCES,
        "            self._commits.drain(revoked)\n",
        "",
    ),
    mutant(
        "what is in flight is not waited for before tasks start anew",
        _REBALANCES,
        "        self._commits.drain(tasks)\n",
        "",
    ),
    # --- the thread ---
    mutant(
        "commits come at any time",
        _THREAD,
        *(_DUE, "            if self._rebalances.under_way:"),
    ),
    mutant(
        "commits come only when they are asked for",
        _THREAD,
        *(_DUE, "            if not self._commit_wanted or self._rebalances.under_way:"),
    ),
    mutant(
        "commits that are asked for wait for the interval",
        _THREAD,
        *(_DUE, "            if now_ms < due_ms or self._rebalances.under_way:"),
    ),
    mutant(
        "commits are made while the group rebalances",
        _THREAD,
        *(_DUE, "            if now_ms < due_ms and not self._commit_wanted:"),
    ),
    mutant(
        "a commit that the group refused is forgotten",
        _THREAD,
        "            # What was flushed for it has let tasks work.\n"
        "            self._ask_all_for_commits()\n",
        "            self._commit_wanted = False\n",
    ),
    mutant(
        "nothing is committed before closing",
        _CLOSING,
        "            offsets = self._commit_at_last()\n",
        "            offsets: dict[TopicPartition, CommitOffset] = {}\n",
    ),
    mutant(
        "tasks that could not be committed are closed as if they were",
        _CLOSING,
        "lambda: self._tasks.close_all(clean=committed)",
        "lambda: self._tasks.close_all(clean=True)",
    ),
    mutant(
        "what is not committed is sent while closing",
        _CLOSING,
        "lambda: None if committed else self._commits.forget_sent()",
        "lambda: None",
    ),
    mutant(
        "the last commit is tried once",
        _CLOSING,
        "            except RebalanceInProgressError:\n                if deadline.passed:\n"
        "                    raise",
        "            except RebalanceInProgressError:\n                raise",
    ),
    mutant(
        "what was logged is not waited for before a task is rebuilt",
        _THREAD,
        "        self._commits.settle(self._tasks.running, error.task_ids)\n",
        "",
    ),
    # --- the start of a task ---
    mutant(
        "a task starts before it is restored",
        _TASKS,
        "            and not self._restoration.unfinished(task.task_id)\n",
        "",
    ),
)
