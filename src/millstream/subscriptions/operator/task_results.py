"""Handling of task results: completion, retry, dead letter, or thread failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import perf_counter_ns
from typing import Final

from millstream.errors import StreamsError
from millstream.operators.operator import Output
from millstream.operators.record_batch import Batch
from millstream.subscriptions.operator.outgoing_tasks import UNREADABLE, OutgoingTasks
from millstream.subscriptions.processing_context import ProcessingContext, no_retry_topic
from millstream.subscriptions.rate_limited_log import RateLimitedLog
from millstream.subscriptions.subscription_metrics import PartitionMetrics
from millstream.subscriptions.subscription_plan import SubscriptionPart

_NS_IN_MS: Final = 1_000_000
_RETRY_REQUESTED: Final = "The processor requested another retry."


@dataclass(frozen=True, eq=False)
class TaskResultHandler:
    """Handles the results of the tasks of a partition."""

    part: SubscriptionPart
    outgoing: OutgoingTasks
    metrics: PartitionMetrics
    log: RateLimitedLog
    #: Handles a failed record: skips it or raises.
    failed: Callable[[Batch, int, Exception], None]

    def handle(self, done: Sequence[ProcessingContext], output: Output) -> list[ProcessingContext]:
        """Handle finished tasks and return those for which a record was written.

        Raises:
            ProcessingError: a task has failed and `on_error` is "fail".
        """
        self._measure(done)
        retried: list[ProcessingContext] = []
        unreadable: list[ProcessingContext] = []
        for context in done:
            if context.outcome == UNREADABLE:
                unreadable.append(context)
            elif context.outcome == "retry" and self.part.retries is None:
                context.error = no_retry_topic()
                self._fail(context, retried)
            elif context.outcome == "retry":
                retried.append(context)
            elif context.outcome != "complete":
                self._fail(context, retried)
        self.metrics.count("tasks.processed", len(done) - len(unreadable))
        for context in unreadable:
            self._write_dead_letter(context, output)
        return [*unreadable, *(self._retry(retried, output) if retried else ())]

    def _measure(self, done: Sequence[ProcessingContext]) -> None:
        now_ns = perf_counter_ns()
        measure_all = self.metrics.measure_all
        read = [each for each in done if each.outcome != UNREADABLE]
        measure_all("tasks.process.duration", [each.took_ns / _NS_IN_MS for each in read])
        measure_all(
            "tasks.complete.duration", [(now_ns - each.taken_ns) / _NS_IN_MS for each in read]
        )

    def _write_dead_letter(self, context: ProcessingContext, output: Output) -> None:
        error = context.error or StreamsError(_RETRY_REQUESTED)
        self.outgoing.write_dead_letter(context, error, output)
        self.metrics.count("tasks.dead")

    def _fail(self, context: ProcessingContext, retried: list[ProcessingContext]) -> None:
        error = context.error
        assert error is not None
        self.metrics.count("tasks.error")
        if not isinstance(error, Exception):
            raise error
        if self.part.plan.on_error == "retry":
            retried.append(context)
        elif self.part.plan.on_error == "skip":
            self.log.warning(context.describe(), error)
        else:
            self.failed(context.batch, context.index, error)

    def _retry(
        self, contexts: Sequence[ProcessingContext], output: Output
    ) -> list[ProcessingContext]:
        last = self.outgoing.retry(contexts, output)
        self._count_retries(contexts, set(last))
        policy = self.part.plan.retry
        assert policy is not None
        dropped: set[int] = set()
        for index in last:
            context = contexts[index]
            if policy.after_last == "dead_letter":
                self._write_dead_letter(context, output)
                continue
            error = context.error or StreamsError(_RETRY_REQUESTED)
            dropped.add(index)
            if policy.after_last == "fail":
                assert isinstance(error, Exception)
                self.failed(context.batch, context.index, error)
            else:
                self.log.warning(f"The last attempt failed for {context.describe()}", error)
        return [context for index, context in enumerate(contexts) if index not in dropped]

    def _count_retries(self, contexts: Sequence[ProcessingContext], last: set[int]) -> None:
        counts = [
            context.metadata.retry_count + 1
            for index, context in enumerate(contexts)
            if index not in last
        ]
        self.metrics.count("retry.queued.tasks", len(counts))
        self.metrics.measure_all("retry.task.retries", counts)
