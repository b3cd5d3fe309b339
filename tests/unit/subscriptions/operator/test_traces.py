"""Tracing of tasks, and their OpenTelemetry spans."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import cloudpickle
import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from support.tasks.subscribed_task import SubscribedTask

from millstream.parallel import OpenTelemetryTracing, ProcessingContext, Retry
from millstream.record import Headers

LONG = timedelta(hours=1)
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


class RecordingTracing:
    """Records its calls. Implements `Tracing` and `TaskTrace`.

    Args:
        fails: the name of the method that raises.
    """

    def __init__(self, fails: str = "") -> None:
        self.calls: list[str] = []
        self._fails = fails

    def _record(self, method: str, details: str = "") -> None:
        self.calls.append(f"{method} {details}".strip())
        if method == self._fails:
            raise RuntimeError(method)

    def trace_for(self, context: ProcessingContext, subscription: str) -> RecordingTracing:
        self._record("trace_for", f"{subscription} {context.offset}")
        return self

    @contextmanager
    def processing(self) -> Iterator[None]:
        self._record("begin")
        try:
            yield
        finally:
            self._record("end")

    def completed(self, outcome: str, error: BaseException | None) -> None:
        self._record("completed", f"{outcome} {error}")

    def retry_headers(self) -> Headers:
        self._record("retry_headers")
        return (("traced", b"on"),)


def work(context: ProcessingContext, task: str) -> None:
    if task == "fails":
        raise ValueError(task)
    if task == "again":
        context.retry()


async def work_async(context: ProcessingContext, task: str) -> None:
    await asyncio.sleep(0)
    work(context, task)


PROCESSORS = pytest.mark.parametrize(
    ("processor", "concurrency"), [(work, 1), (work, 2), (work_async, 2)]
)


@PROCESSORS
def test_each_task_is_traced_from_start_to_end(processor: Any, concurrency: int) -> None:
    tracing = RecordingTracing()
    retry = Retry(backoff=LONG)
    with SubscribedTask(
        processor, concurrency=concurrency, tracing=tracing, retry=retry, on_error="skip"
    ) as sub:
        for count, task in enumerate(("one", "fails", "again"), 1):
            sub.feed(task, headers=(("traced", b"before"), ("other", b"kept")))
            sub.until(lambda count=count: sub.commit() == count, task)  # type: ignore[misc]
        (record,) = sub.written("tasks-retry")
        assert dict(record.headers)["traced"] == b"on"
        assert dict(record.headers)["other"] == b"kept"
    assert tracing.calls == [
        *("trace_for sub 0", "begin", "end", "completed complete None"),
        *("trace_for sub 1", "begin", "end", "completed fail fails"),
        *("trace_for sub 2", "begin", "end", "retry_headers", "completed retry None"),
    ]


def test_trace_of_a_deferred_task_ends_with_its_completion() -> None:
    tracing, pending = RecordingTracing(), []
    with SubscribedTask(
        lambda context, task: pending.append(context.defer_completion()), tracing=tracing
    ) as sub:
        sub.feed("one")
        sub.step()
        assert tracing.calls == ["trace_for sub 0", "begin", "end"]
        pending[0].complete()
        sub.drain()
        assert tracing.calls[-1] == "completed complete None"


@pytest.mark.parametrize("fails", ["trace_for", "begin", "end", "completed", "retry_headers"])
@PROCESSORS
def test_exceptions_of_the_tracing_do_not_affect_tasks(
    processor: Any, concurrency: int, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    tracing = RecordingTracing(fails)
    with SubscribedTask(
        processor, concurrency=concurrency, tracing=tracing, retry=Retry(backoff=LONG)
    ) as sub:
        sub.feed("one", "two", "again")
        sub.until(lambda: sub.commit() == 3, "all are done")
        assert sub.counted("tasks.error") == 0
        assert len(sub.written("tasks-retry")) == 1
    messages = [
        record for record in caplog.records if "of the tracing of subscription" in record.message
    ]
    assert len(messages) == 1, "failures are logged at a limited rate"


EXPORTER = InMemorySpanExporter()


def provider() -> TracerProvider:
    tracer_provider = TracerProvider()
    tracer_provider.add_span_processor(SimpleSpanProcessor(EXPORTER))
    return tracer_provider


def spans_of(processor: Any, concurrency: int, *tasks: str) -> tuple[list[ReadableSpan], Any]:
    EXPORTER.clear()
    with SubscribedTask(
        processor,
        concurrency=concurrency,
        tracing=OpenTelemetryTracing(provider),
        retry=Retry(backoff=LONG),
        on_error="skip",
    ) as sub:
        sub.feed(*tasks, headers=(("traceparent", PARENT.encode()),))
        sub.until(lambda: sub.commit() == len(tasks), "all are done")
        return list(EXPORTER.get_finished_spans()), sub.written("tasks-retry")


@PROCESSORS
def test_span_belongs_to_the_trace_of_its_record_and_is_the_parent_of_its_retry(
    processor: Any, concurrency: int
) -> None:
    spans, retried = spans_of(processor, concurrency, "one", "fails", "again")
    by_outcome = {str((span.attributes or {})["decaton.outcome"]): span for span in spans}
    assert by_outcome.keys() == {"complete", "fail", "retry"}
    for span in spans:
        assert span.name == "decaton"
        assert span.context is not None
        assert span.parent is not None
        assert f"{span.context.trace_id:032x}" == PARENT.split("-")[1]
        assert f"{span.parent.span_id:016x}" == PARENT.split("-")[2]
    assert by_outcome["fail"].status.status_code is trace.StatusCode.ERROR
    assert by_outcome["complete"].status.status_code is trace.StatusCode.UNSET
    context = by_outcome["retry"].context
    assert context is not None
    expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-01"
    assert dict(retried[0].headers)["traceparent"] == expected.encode()
    assert [name for name, _ in retried[0].headers].count("traceparent") == 1


@pytest.mark.parametrize("is_async", [False, True])
def test_span_is_current_while_the_processor_runs(is_async: bool) -> None:
    seen: list[int] = []

    def note(context: ProcessingContext, task: str) -> None:
        seen.append(trace.get_current_span().get_span_context().span_id)

    async def note_async(context: ProcessingContext, task: str) -> None:
        await asyncio.sleep(0.001)
        note(context, task)

    spans, _ = spans_of(note_async if is_async else note, 2, "one", "two", "three")
    assert sorted(seen) == sorted(span.context.span_id for span in spans if span.context)
    assert len(set(seen)) == 3


def test_tracing_can_be_pickled_after_its_use() -> None:
    tracing = OpenTelemetryTracing(provider)
    with SubscribedTask(work, tracing=tracing) as sub:
        sub.feed("one")
        sub.step()
    assert isinstance(pickle.loads(cloudpickle.dumps(tracing)), OpenTelemetryTracing)
