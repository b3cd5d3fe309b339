"""What follows when tasks have ended: nothing, a retry, a dead letter, or the end of the thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Final

from millstream.errors import StreamsError
from millstream.operators.apart.subscription.outgoing import UNREAD, Outgoing
from millstream.operators.batch import Batch
from millstream.operators.operator import Output
from millstream.subscriptions.complaints import Complaints
from millstream.subscriptions.context import ProcessingContext, no_retry_topic
from millstream.subscriptions.metrics import PartitionMetrics
from millstream.subscriptions.plan import SubscriptionPart

_NS_IN_MS: Final = 1_000_000
_ONE_MORE: Final = "The processor asked for one more retry."


class Settling:
    """Decides what follows when tasks of a partition have ended.

    Args:
        part: what the subscription does with the topic.
        outgoing: writes retries and dead letters.
        metrics: of the partition.
        complaints: told of what is passed over.
        failed: leaves a record out that has failed, or raises.
    """

    def __init__(
        self,
        part: SubscriptionPart,
        outgoing: Outgoing,
        metrics: PartitionMetrics,
        complaints: Complaints,
        failed: Callable[[Batch, int, Exception], None],
    ) -> None:
        self._part = part
        self._outgoing = outgoing
        self._metrics = metrics
        self._complaints = complaints
        self._failed = failed

    def settle(self, done: Sequence[ProcessingContext], output: Output) -> list[ProcessingContext]:
        """Write what has to be written of tasks that have ended; those of which something was.

        Raises:
            ProcessingError: a task has failed, which ends the thread.
        """
        self._measure(done)
        retried: list[ProcessingContext] = []
        unread: list[ProcessingContext] = []
        for context in done:
            if context.outcome == UNREAD:
                unread.append(context)
            elif context.outcome == "retry" and self._part.retries is None:
                context.error = no_retry_topic()
                self._fail(context, retried)
            elif context.outcome == "retry":
                retried.append(context)
            elif context.outcome != "complete":
                self._fail(context, retried)
        self._metrics.count("tasks.processed", len(done) - len(unread))
        for context in unread:
            self._bury(context, output)
        return [*unread, *(self._retry(retried, output) if retried else ())]

    def _measure(self, done: Sequence[ProcessingContext]) -> None:
        now_ns = perf_counter_ns()
        measure_all = self._metrics.measure_all
        read = [each for each in done if each.outcome != UNREAD]
        measure_all("tasks.process.duration", [each.took_ns / _NS_IN_MS for each in read])
        measure_all(
            "tasks.complete.duration", [(now_ns - each.taken_ns) / _NS_IN_MS for each in read]
        )

    def _bury(self, context: ProcessingContext, output: Output) -> None:
        error = context.error or StreamsError(_ONE_MORE)
        self._outgoing.bury(context, error, output)
        self._metrics.count("tasks.dead")

    def _fail(self, context: ProcessingContext, retried: list[ProcessingContext]) -> None:
        error = context.error
        assert error is not None
        self._metrics.count("tasks.error")
        if not isinstance(error, Exception):
            raise error
        if self._part.plan.on_error == "retry":
            retried.append(context)
        elif self._part.plan.on_error == "skip":
            self._complaints.tell(context.describe(), error)
        else:
            self._failed(context.batch, context.index, error)

    def _retry(
        self, contexts: Sequence[ProcessingContext], output: Output
    ) -> list[ProcessingContext]:
        last = self._outgoing.retry(contexts, output)
        self._count_retries(contexts, set(last))
        policy = self._part.plan.retry
        assert policy is not None
        passed_over: set[int] = set()
        for index in last:
            context = contexts[index]
            if policy.after_last == "dead_letter":
                self._bury(context, output)
                continue
            error = context.error or StreamsError(_ONE_MORE)
            passed_over.add(index)
            if policy.after_last == "fail":
                assert isinstance(error, Exception)
                self._failed(context.batch, context.index, error)
            else:
                self._complaints.tell(f"{context.describe()}, tried for the last time", error)
        return [context for index, context in enumerate(contexts) if index not in passed_over]

    def _count_retries(self, contexts: Sequence[ProcessingContext], last: set[int]) -> None:
        counts = [
            context.metadata.retry_count + 1
            for index, context in enumerate(contexts)
            if index not in last
        ]
        self._metrics.count("retry.queued.tasks", len(counts))
        self._metrics.measure_all("retry.task.retries", counts)
