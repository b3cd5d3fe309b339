"""`async def` instead of a plain function: rejected at its declaration, or an error at run time.

The results of such functions are not awaited: records would be committed without an effect.
"""

from __future__ import annotations

import functools
import re
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from millstream import (
    KafkaStreams,
    KStream,
    KTable,
    Materialized,
    Processor,
    SessionWindows,
    Stores,
    StreamsBuilder,
    StreamsConfig,
    TimeWindows,
    Topology,
)
from millstream.async_checks import is_asynchronous, is_generator, is_unawaited
from millstream.errors import ConfigError, ProcessingError, StreamsError, TopologyError
from millstream.operators.record_batch import Batch
from millstream.operators.stateless import FilterOperator
from millstream.processor.handlers import LogAndContinueProcessingExceptionHandler
from millstream.processor.processor import FixedKeyProcessor
from millstream.processor.punctuation import PunctuationType
from millstream.serdes import LONG, STRING, Serde
from millstream.testing import MockProcessorContext, TopologyTestDriver

LOCATION = r"declared at \S*test_asynchronous_functions\.py:\d+\)$"
SECOND = timedelta(seconds=1)
ADVICE = r"is asynchronous\. Its result is not awaited, .* asyncio\.run\(\.\.\.\) there"


async def later(*arguments: Any) -> Any:
    """A function that uses an asynchronous client."""


async def several(*arguments: Any) -> AsyncIterator[int]:
    """An asynchronous generator, as for `flat_map`."""
    yield 1


class CallableObject:
    """A callable object."""

    async def __call__(self, *arguments: Any) -> None: ...

    async def method(self, *arguments: Any) -> None: ...

    @classmethod
    async def class_method(cls, *arguments: Any) -> None: ...

    @staticmethod
    async def static_method(*arguments: Any) -> None: ...


def run_to_end(function: Callable[..., Coroutine[Any, Any, Any]]) -> Callable[..., None]:
    """A decorator that runs a coroutine to its end, as the error message advises."""

    @functools.wraps(function)
    def run(*arguments: Any) -> None:
        function(*arguments).close()

    return run


@pytest.mark.parametrize(
    "function",
    [
        later,
        several,
        functools.partial(later, 1),
        functools.partial(functools.partial(several, 1), 2),
        CallableObject(),
        functools.partial(CallableObject()),
        CallableObject().method,
        CallableObject.class_method,
        CallableObject.static_method,
    ],
)
def test_asynchronous_functions_are_recognized(function: object) -> None:
    assert is_asynchronous(function)


@pytest.mark.parametrize(
    "function", [None, 5, len, str, lambda: later(), run_to_end(later), CallableObject]
)
def test_plain_functions_are_not_asynchronous(function: object) -> None:
    """A wrapper that runs the coroutine is plain."""
    assert not is_asynchronous(function)


def builder() -> Any:
    return StreamsBuilder()


def nodes() -> Any:
    return Topology()


def stream(topic: str = "in", streams_builder: StreamsBuilder | None = None) -> Any:
    result: KStream[str, str] = (streams_builder or StreamsBuilder()).stream(
        topic, key=STRING, value=STRING
    )
    return result


def table(topic: str = "changes", streams_builder: StreamsBuilder | None = None) -> Any:
    result: KTable[str, str] = (streams_builder or StreamsBuilder()).table(
        topic, key=STRING, value=STRING
    )
    return result


def grouped() -> Any:
    return stream().group_by_key()


def grouped_table() -> Any:
    return table().group_by(lambda key, value: (value, key))


def sessions() -> Any:
    return grouped().windowed_by(SessionWindows(SECOND))


def minutes() -> Any:
    return grouped().windowed_by(TimeWindows(SECOND))


def join(kind: str, **options: Any) -> Any:
    shared = StreamsBuilder()
    arguments = {"joiner": lambda one, other: one, **options}
    if kind == "global":
        other = shared.global_table("all", key=STRING, value=STRING)
        return stream("left", shared).join(other, **arguments)
    if kind == "foreign key":
        return table("left", shared).join(table("right", shared), **arguments)
    return stream("left", shared).join(table("right", shared), **arguments)


def plain(*arguments: Any) -> Any:
    return arguments


#: The functions of a topology, with the names of their parameters.
DECLARED: dict[str, tuple[str, Callable[[], Any]]] = {
    "filter": ("predicate", lambda: stream().filter(later)),
    "filter_not": ("predicate", lambda: stream().filter_not(later)),
    "peek": ("action", lambda: stream().peek(later)),
    "for_each": ("action", lambda: stream().for_each(later)),
    "map": ("mapper", lambda: stream().map(later)),
    "map_values": ("mapper", lambda: stream().map_values(later)),
    "flat_map": ("mapper", lambda: stream().flat_map(several)),
    "flat_map_values": ("mapper", lambda: stream().flat_map_values(several)),
    "select_key": ("mapper", lambda: stream().select_key(later)),
    "group_by": ("selector", lambda: stream().group_by(later)),
    "split": ("predicate", lambda: stream().split().branch(later)),
    "branch": ("predicate", lambda: stream().branch(later)),
    "chain": ("chain", lambda: stream().split().branch(plain, chain=later)),
    "chain of the rest": ("chain", lambda: stream().split().default_branch(chain=later)),
    "to": ("topic", lambda: stream().to(later)),
    "partitioner": ("partitioner", lambda: stream().to("out", partitioner=later)),
    "repartition": ("partitioner", lambda: stream().repartition(partitioner=later)),
    "reduce": ("reducer", lambda: grouped().reduce(later)),
    "aggregate": ("aggregator", lambda: grouped().aggregate(int, later)),
    "initializer": ("initializer", lambda: grouped().aggregate(later, plain)),
    "windowed aggregate": ("aggregator", lambda: minutes().aggregate(int, later)),
    "windowed reduce": ("reducer", lambda: minutes().reduce(later)),
    "session merger": ("session_merger", lambda: sessions().aggregate(int, plain, later)),
    "cogroup": ("aggregator", lambda: grouped().cogroup(later)),
    "table filter": ("predicate", lambda: table().filter(later)),
    "table map_values": ("mapper", lambda: table().map_values(later)),
    "table group_by": ("selector", lambda: table().group_by(later)),
    "adder": ("adder", lambda: grouped_table().reduce(later, plain)),
    "subtractor": ("subtractor", lambda: grouped_table().reduce(plain, later)),
    "joiner": ("joiner", lambda: join("table", joiner=later)),
    "foreign key": ("foreign_key", lambda: join("foreign key", foreign_key=later)),
    "key of a global table": ("key_selector", lambda: join("global", key_selector=later)),
    "transformer supplier": ("supplier", lambda: table().transform_values(later)),
    "extractor of a stream": (
        "timestamp_extractor",
        lambda: builder().stream("in", timestamp_extractor=later),
    ),
    "extractor of a table": (
        "timestamp_extractor",
        lambda: builder().table("in", timestamp_extractor=later),
    ),
    "extractor of a source": (
        "timestamp_extractor",
        lambda: nodes().add_source("s", "in", timestamp_extractor=later),
    ),
    "topic of a sink": (
        "topic",
        lambda: nodes().add_source("s", "in").add_sink("k", later, "s"),
    ),
    "partitioner of a sink": (
        "partitioner",
        lambda: nodes().add_source("s", "in").add_sink("k", "out", "s", partitioner=later),
    ),
}


@pytest.mark.parametrize("case", DECLARED)
def test_asynchronous_function_is_rejected_at_its_declaration(case: str) -> None:
    parameter, program = DECLARED[case]
    with pytest.raises(
        TypeError, match=rf"plain function as its {parameter}\. .*{ADVICE}"
    ) as raised:
        program()
    assert re.search(LOCATION, str(raised.value)), raised.value


def yields(*arguments: Any) -> Iterator[Any]:
    """A generator function instead of a plain function."""
    yield arguments


GENERATOR_MESSAGE = (
    r"yields is a generator function, because of its yield\. The generator that it returns"
)
MAY_YIELD = {"flat_map", "flat_map_values"}


@pytest.mark.parametrize("case", sorted(set(DECLARED) - MAY_YIELD))
def test_generator_functions_are_rejected_in_the_same_places(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(globals(), "later", yields)
    parameter, program = DECLARED[case]
    with pytest.raises(
        TypeError, match=rf"plain function as its {parameter}\. {GENERATOR_MESSAGE}"
    ) as raised:
        program()
    assert re.search(LOCATION, str(raised.value)), raised.value


@pytest.mark.parametrize("case", sorted(MAY_YIELD))
def test_flat_mappers_may_yield(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "several", yields)
    DECLARED[case][1]()


@pytest.mark.parametrize(
    "function", [functools.partial(yields, 1), SimpleNamespace(method=yields).method]
)
def test_generator_functions_are_recognized(function: object) -> None:
    assert is_generator(function)
    assert not is_generator(lambda: yields())


@pytest.mark.parametrize("method", ["init", "process", "close"])
def test_processor_that_yields_is_rejected(method: str) -> None:
    """No record may be lost in a process() that yields instead of forwarding."""
    kind = type("Yielding", (Processor,), {"process": plain, method: yields})
    for supplier in (kind, lambda: kind()):
        with pytest.raises(TopologyError, match=rf"Yielding\.{method} is a generator function"):
            stream().process(supplier)


@pytest.mark.parametrize("name", ["default_timestamp_extractor", "processing_exception_handler"])
def test_settings_that_yield_are_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: {GENERATOR_MESSAGE}"):
        config(**{name: yields})


def test_serdes_and_callbacks_that_yield_are_rejected() -> None:
    with pytest.raises(TypeError, match=GENERATOR_MESSAGE):
        Serde(yields, plain)  # type: ignore[arg-type]
    context: Any = MockProcessorContext()
    with pytest.raises(TypeError, match=GENERATOR_MESSAGE):
        context.schedule(SECOND, PunctuationType.STREAM_TIME, yields)
    with pytest.raises(TypeError, match=GENERATOR_MESSAGE):
        stream().map_async(yields, concurrency=1)


class Asynchronous(Processor[Any, Any, Any, Any]):
    """A processor with an asynchronous `process`."""

    async def process(self, record: Any) -> None:  # type: ignore[override]
        self.context.forward(record)


class AsynchronousInit(Processor[Any, Any, Any, Any]):
    async def init(self, context: Any) -> None:  # type: ignore[override]
        super().init(context)

    def process(self, record: Any) -> None: ...


class AsynchronousClose(Processor[Any, Any, Any, Any]):
    def process(self, record: Any) -> None: ...

    async def close(self) -> None: ...  # type: ignore[override]


class AsynchronousValues(FixedKeyProcessor[Any, Any, Any]):
    async def process(self, record: Any) -> None: ...  # type: ignore[override]


IN_MEMORY = Stores.key_value_builder(Stores.in_memory_key_value("copy"), STRING, STRING)

PROCESSORS: dict[str, tuple[str, Callable[[], Any]]] = {
    "class": (r"Asynchronous\.process", lambda: stream().process(Asynchronous)),
    "function": (r"Asynchronous\.process", lambda: stream().process(lambda: Asynchronous())),
    "init": (r"AsynchronousInit\.init", lambda: stream().process(AsynchronousInit)),
    "close": (r"AsynchronousClose\.close", lambda: stream().process(AsynchronousClose)),
    "values": (r"Values\.process", lambda: stream().process_values(AsynchronousValues)),
    "supplier": ("The processor supplier later", lambda: stream().process(later)),
    "node": (
        r"Asynchronous\.process",
        lambda: Topology().add_source("s", "in").add_processor("p", Asynchronous, "s"),
    ),
    "global store": (
        r"Asynchronous\.process",
        lambda: StreamsBuilder().add_global_store(IN_MEMORY, "all", Asynchronous),
    ),
}


@pytest.mark.parametrize("case", PROCESSORS)
def test_asynchronous_processor_is_rejected_at_its_declaration(case: str) -> None:
    """Also if the class is only known to its supplier function."""
    method, program = PROCESSORS[case]
    with pytest.raises(TopologyError, match=f"{method} {ADVICE}") as raised:
        program()
    assert re.search(LOCATION, str(raised.value)), raised.value


class AsynchronousTransformer:
    async def transform(self, key: Any, value: Any) -> Any: ...


def test_transformer_class_is_rejected_at_its_declaration() -> None:
    with pytest.raises(TypeError, match=rf"AsynchronousTransformer\.transform {ADVICE}") as raised:
        table().transform_values(AsynchronousTransformer)
    assert re.search(LOCATION, str(raised.value)), raised.value


def test_transformer_of_a_supplier_is_rejected_at_its_creation() -> None:
    builder = StreamsBuilder()
    table(streams_builder=builder).transform_values(
        lambda: AsynchronousTransformer(), store=Materialized("loud", value=STRING)
    )
    with (
        pytest.raises(StreamsError, match=rf"AsynchronousTransformer\.transform {ADVICE}"),
        TopologyTestDriver(builder.build()),
    ):
        pass


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(application_id="app", bootstrap_servers="not-used:9092", **settings)


@pytest.mark.parametrize(
    "name",
    [
        "default_timestamp_extractor",
        "deserialization_exception_handler",
        "processing_exception_handler",
    ],
)
def test_asynchronous_settings_are_rejected(name: str) -> None:
    with pytest.raises(ConfigError, match=f"^{name}: later {ADVICE}"):
        config(**{name: later})


def test_asynchronous_serde_is_rejected() -> None:
    with pytest.raises(TypeError, match=rf"plain function as its serialize\. later {ADVICE}"):
        Serde(later, plain)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=rf"plain function as its deserialize\. later {ADVICE}"):
        Serde(plain, later)


def test_mock_context_rejects_an_asynchronous_punctuator() -> None:
    context: Any = MockProcessorContext()
    with pytest.raises(TypeError, match=rf"plain function as its callback\. later {ADVICE}"):
        context.schedule(SECOND, PunctuationType.STREAM_TIME, later)


@pytest.mark.parametrize(
    ("setter", "callback"),
    [
        ("set_state_listener", later),
        ("set_uncaught_exception_handler", later),
        ("set_global_state_restore_listener", SimpleNamespace(on_restore_start=later)),
        ("set_standby_update_listener", SimpleNamespace(on_update_start=later)),
    ],
)
def test_asynchronous_callbacks_of_an_application_are_rejected(setter: str, callback: Any) -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=STRING, value=STRING).to("out")
    streams = KafkaStreams(builder.build(), config())
    with pytest.raises(TypeError, match=rf"{setter}\(\) needs a plain function.*{ADVICE}"):
        getattr(streams, setter)(callback)
    streams.close()


# ---- functions that are only recognized when they are called


def result_of(declare: Callable[[Any], Any], **settings: Any) -> list[Any]:
    """Return the output values of a stream's operations, for the values 1 and 2."""
    builder = StreamsBuilder()
    out = declare(builder.stream("in", key=STRING, value=LONG))
    if out is not None:
        out.to("out", key=STRING, value=LONG)
    with TopologyTestDriver(builder.build(), config(**settings)) as driver:
        driver.create_input_topic("in", key=STRING, value=LONG).pipe_key_values(
            [("k", 1), ("k", 2)]
        )
        if out is None:
            return []
        return driver.create_output_topic("out", key=STRING, value=LONG).read_values()


class ReturnsCoroutine(Processor[Any, Any, Any, Any]):
    def process(self, record: Any) -> Any:
        self.context.forward(record)
        return later(record)


class ReturnsCoroutineInInit(Processor[Any, Any, Any, Any]):
    def init(self, context: Any) -> Any:
        super().init(context)
        return later(context)

    def process(self, record: Any) -> None: ...


class SchedulesCoroutine(Processor[Any, Any, Any, Any]):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(SECOND, PunctuationType.STREAM_TIME, lambda time_ms: later(time_ms))

    def process(self, record: Any) -> None: ...


class SchedulesAsyncFunction(SchedulesCoroutine):
    def init(self, context: Any) -> None:
        context.schedule(SECOND, PunctuationType.STREAM_TIME, later)


#: Plain functions that return a coroutine.
AT_RUN_TIME: dict[str, Callable[[Any], Any]] = {
    "for_each": lambda s: s.for_each(lambda k, v: later(v)),
    "for_each, the second one": lambda s: s.for_each(lambda k, v: later(v) if v == 2 else None),
    "peek": lambda s: s.peek(lambda k, v: later(v)),
    "map_values": lambda s: s.map_values(lambda v: later(v)),
    "filter": lambda s: s.filter(lambda k, v: later(v)),
    "branch": lambda s: s.branch(lambda k, v: later(v))[0],
    "flat_map_values": lambda s: s.flat_map_values(lambda v: several(v)),
    "table filter": lambda s: s.to_table().filter(lambda k, v: later(v)).to_stream(),
    "process": lambda s: s.process(ReturnsCoroutine),
    "punctuator": lambda s: s.process(SchedulesCoroutine),
    "punctuator, declared": lambda s: s.process(SchedulesAsyncFunction),
    "init": lambda s: s.process(ReturnsCoroutineInInit),
}


@pytest.mark.parametrize("case", AT_RUN_TIME)
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_coroutine_is_an_error_and_no_result(case: str) -> None:
    """A lambda hides an asynchronous function until it is called."""
    with pytest.raises(StreamsError, match=r"later|several") as raised:
        result_of(AT_RUN_TIME[case])
    assert re.search(ADVICE, str(raised.value))


class ReturnsGenerator(ReturnsCoroutine):
    def process(self, record: Any) -> Any:
        return yields(record)


class SchedulesGenerator(Processor[Any, Any, Any, Any]):
    def init(self, context: Any) -> None:
        super().init(context)
        context.schedule(SECOND, PunctuationType.STREAM_TIME, lambda time_ms: yields(time_ms))

    def process(self, record: Any) -> None: ...


#: Plain functions that return a generator instead of an effect or a condition.
GENERATORS: dict[str, Callable[[Any], Any]] = {
    "for_each": lambda s: s.for_each(lambda k, v: yields(v)),
    "peek, the second one": lambda s: s.peek(lambda k, v: yields(v) if v == 2 else None),
    "filter": lambda s: s.filter(lambda k, v: yields(v)),
    "filter, the second one": lambda s: s.filter(lambda k, v: yields(v) if v == 2 else False),
    "filter_not": lambda s: s.filter_not(lambda k, v: yields(v)),
    "branch": lambda s: s.branch(lambda k, v: yields(v))[0],
    "table filter": lambda s: s.to_table().filter(lambda k, v: yields(v)).to_stream(),
    "process": lambda s: s.process(ReturnsGenerator),
    "punctuator": lambda s: s.process(SchedulesGenerator),
}


@pytest.mark.parametrize("case", GENERATORS)
def test_generator_is_an_error_and_no_result(case: str) -> None:
    """A lambda hides a generator function until it is called."""
    with pytest.raises(StreamsError, match=GENERATOR_MESSAGE):
        result_of(GENERATORS[case])


def test_generator_among_the_results_of_a_batch_is_detected() -> None:
    """The first result of a predicate does not define the types of the others."""

    def failed(batch: Batch, index: int, error: Exception) -> None:
        raise error

    operator = FilterOperator(lambda k, v: yields(v) if v == 3 else True)
    context: Any = SimpleNamespace(failed=failed)
    operator.context = context
    nowhere: Any = None
    batch = Batch(["k"] * 4, [1, 2, 3, 4], [0] * 4, range(4), nowhere)
    with pytest.raises(TypeError, match=GENERATOR_MESSAGE):
        operator.process(batch, nowhere)


def test_handler_can_skip_records_with_a_coroutine() -> None:
    """They count as failures of user code."""
    handler = LogAndContinueProcessingExceptionHandler()

    def peeked(stream: Any) -> Any:
        return stream.peek(lambda k, v: later(v) if v == 1 else "any result is ignored")

    assert result_of(peeked, processing_exception_handler=handler) == [2]
    with pytest.raises(ProcessingError):
        result_of(peeked)


@pytest.mark.parametrize("value", [None, 1, "text", b"", [], (1,), {}, object(), iter([1])])
def test_values_are_not_mistaken_for_coroutines(value: object) -> None:
    assert not is_unawaited(value)
