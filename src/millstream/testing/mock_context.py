"""A processor context for unit tests of a single processor.

It needs no topology or driver.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from millstream.async_checks import reject_deferred
from millstream.clock import SystemClock
from millstream.config.fields import did_you_mean
from millstream.config.streams_config import StreamsConfig
from millstream.errors import IllegalStateError, StreamsError
from millstream.metrics.registry import MetricsScope
from millstream.metrics.user import ContextMetrics
from millstream.processor.punctuation import PunctuationType, Punctuator, checked_interval_ms
from millstream.processor.task_context import CurrentRecord
from millstream.record import FixedKeyRecord, Record, RecordMetadata, TaskId
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.opening.open_store import StoreEnvironment
from millstream.state.opening.store_layers import open_store
from millstream.state.storage.rocksdb import RocksDBStorages
from millstream.topology.physical.topology import without_logging_or_caching

K = TypeVar("K")
V = TypeVar("V")


class CapturedForward(NamedTuple):
    """A record that a processor forwarded.

    Args:
        child: the child to which the record was forwarded; None for all children.

    Example:
        >>> context = MockProcessorContext()
        >>> context.forward(Record("a", 1, 0), child="large")
        >>> context.forwarded()
        [CapturedForward(record=Record(key='a', value=1, timestamp=0, headers=()), child='large')]
    """

    record: Record[Any, Any] | FixedKeyRecord[Any, Any]
    child: str | None


class CapturedPunctuator:
    """A punctuation that a processor scheduled.

    Call `punctuator(time_ms)` to trigger it.

    Attributes:
        interval: the time between two calls.
        kind: the clock of the punctuation.
        punctuator: the processor's callback.
        start_ms: the time of the first call, if the processor specified one.
        cancelled: whether the punctuation was canceled.

    Example:
        >>> context = MockProcessorContext()
        >>> calls = context.schedule(timedelta(seconds=1), PunctuationType.STREAM_TIME, print)
        >>> [schedule] = context.scheduled_punctuators()
        >>> schedule.punctuator(1_000)
        1000
    """

    def __init__(
        self,
        interval: timedelta,
        kind: PunctuationType,
        punctuator: Punctuator,
        start_ms: int | None,
    ) -> None:
        self.interval = interval
        self.kind = kind
        self.punctuator = punctuator
        self.start_ms = start_ms
        self.cancelled: bool = False

    def cancel(self) -> None:
        """Cancel the punctuation; called by the processor.

        Example:
            >>> calls = context.schedule(timedelta(seconds=1), PunctuationType.STREAM_TIME, print)
            >>> calls.cancel()
            >>> calls.cancelled
            True
        """
        self.cancelled = True


class MockProcessorContext(Generic[K, V]):
    """A processor context that captures the calls of a processor.

    Forwarded records are captured, punctuators are called by the test, and the test sets the time
    and the record metadata (Kafka Streams' `MockProcessorContext`). To test a processor together
    with its topology, use `TopologyTestDriver`.

    The context accepts both kinds of records, so it also works with a `FixedKeyProcessor`. If it is
    used as a context manager, it closes and removes its stores at the end. The examples of the
    methods use a new `context`.

    Args:
        config: the settings; by default those of an application named "mock".
        task_id: the id of the task; by default `0_0`.
        state_dir: the directory of persistent stores; by default a temporary directory.

    Example:
        >>> class Double(Processor[str, int, str, int]):
        ...     def process(self, record):
        ...         self.context.forward(record.with_value(record.value * 2))
        >>> context = MockProcessorContext()
        >>> processor = Double()
        >>> processor.init(context)
        >>> processor.process(Record("a", 21, 0))
        >>> context.forwarded()[0].record.value
        42
    """

    __test__ = False

    def __init__(
        self,
        *,
        config: StreamsConfig | None = None,
        task_id: TaskId | None = None,
        state_dir: Path | None = None,
    ) -> None:
        self.config: StreamsConfig = config or StreamsConfig(
            application_id="mock", bootstrap_servers="not-used:9092"
        )
        self.application_id: str = self.config.application_id
        self.task_id: TaskId = TaskId(0, 0) if task_id is None else task_id
        self.metrics: ContextMetrics = ContextMetrics(MetricsScope(SystemClock()))
        self._state_dir = state_dir
        self._forwards: list[CapturedForward] = []
        self._punctuators: list[CapturedPunctuator] = []
        self._committed = False
        self._metadata: RecordMetadata | None = None
        self._stream_time_ms: int | None = None
        self._system_time_ms: int | None = None
        self._stores: dict[str, Any] = {}
        self._record = CurrentRecord()
        self._record.timestamp = 0
        self._cleanup = ExitStack()

    def __enter__(self) -> MockProcessorContext[K, V]:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- for the test ----------------------------------------------------------------------------

    def forwarded(self, child: str | None = None) -> list[CapturedForward]:
        """Return the records forwarded so far, or since the last `reset_forwards`.

        Args:
            child: only return the records for this child: those forwarded to it or to all children.

        Example:
            >>> context.forward(Record("a", 1, 0), child="large")
            >>> context.forward(Record("b", 2, 0))
            >>> [forward.record.key for forward in context.forwarded("small")]
            ['b']
        """
        return [
            forward for forward in self._forwards if child is None or forward.child in (None, child)
        ]

    def reset_forwards(self) -> None:
        """Clear the captured records.

        Example:
            >>> context.forward(Record("a", 1, 0))
            >>> context.reset_forwards()
            >>> context.forwarded()
            []
        """
        self._forwards.clear()

    def scheduled_punctuators(self) -> list[CapturedPunctuator]:
        """Return the punctuations that the processor scheduled, including canceled ones.

        Example:
            >>> _ = context.schedule(timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME, print)
            >>> [schedule.interval.seconds for schedule in context.scheduled_punctuators()]
            [1]
        """
        return list(self._punctuators)

    @property
    def committed(self) -> bool:
        """Whether the processor requested a commit."""
        return self._committed

    def reset_commit(self) -> None:
        """Reset `committed`.

        Example:
            >>> context.commit()
            >>> context.reset_commit()
            >>> context.committed
            False
        """
        self._committed = False

    def set_record_metadata(self, topic: str, partition: int, offset: int) -> None:
        """Set the topic, partition and offset of the current record.

        Example:
            >>> context.set_record_metadata("clicks", 0, 42)
            >>> context.record_metadata()
            RecordMetadata(topic='clicks', partition=0, offset=42)
        """
        self._metadata = RecordMetadata(topic, partition, offset)

    def set_current_stream_time_ms(self, time_ms: int) -> None:
        """Set the stream time, in milliseconds since the epoch.

        Example:
            >>> context.set_current_stream_time_ms(60_000)
            >>> context.current_stream_time_ms()
            60000
        """
        self._stream_time_ms = time_ms

    def set_current_system_time_ms(self, time_ms: int) -> None:
        """Set the wall-clock time, in milliseconds since the epoch.

        Example:
            >>> context.set_current_system_time_ms(60_000)
            >>> context.current_system_time_ms()
            60000
        """
        self._system_time_ms = time_ms

    def add_state_store(self, store: StoreBuilder | Any, *, name: str | None = None) -> Any:
        """Add a store for the processor.

        Args:
            store: a builder from `Stores`, which creates a real store without a changelog or cache,
                or any object to use instead of a store.
            name: the name by which the processor gets the store; by default the store's own
                name.

        Returns:
            The store.

        Example:
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = context.add_state_store(Stores.key_value_builder(in_memory, STRING, LONG))
            >>> visits.put("ann", 3)
            >>> context.get_state_store("visits").get("ann")
            3
        """
        if isinstance(store, StoreBuilder):
            opened = open_store(
                without_logging_or_caching(store).resolved(self.config), self._environment()
            )
            self._cleanup.callback(opened.close)
            store, found = opened.store, store.name
        else:
            found = getattr(store, "name", None)
        key = found if name is None else name
        if not isinstance(key, str):
            raise ValueError("The store has no name. Pass one with name=...")
        self._stores[key] = store
        return store

    def close(self) -> None:
        """Close the stores and remove their temporary directory.

        Example:
            >>> folder = context.state_dir
            >>> context.close()
            >>> folder.exists()
            False
        """
        self._cleanup.close()

    # --- for the processor -----------------------------------------------------------------------

    @property
    def state_dir(self) -> Path:
        """The state directory of the task."""
        if self._state_dir is None:
            folder = tempfile.mkdtemp(prefix="millstream-mock-context-")
            remove = partial(shutil.rmtree, folder, ignore_errors=True)
            # Remove the directory even if the test does not close its context.
            atexit.register(remove)
            self._cleanup.callback(atexit.unregister, remove)
            self._cleanup.callback(remove)
            self._state_dir = Path(folder)
        return self._state_dir

    def forward(
        self, record: Record[Any, Any] | FixedKeyRecord[Any, Any], child: str | None = None
    ) -> None:
        """Capture a record that the processor forwards.

        Example:
            >>> context.forward(Record("a", 1, 0))
            >>> context.forwarded()[0].record.value
            1
        """
        if not isinstance(record, Record | FixedKeyRecord):
            raise TypeError(f"forward() takes a Record, but got {type(record).__name__}.")
        self._forwards.append(CapturedForward(record, child))

    def record_metadata(self) -> RecordMetadata | None:
        """Return the values set by `set_record_metadata`; None before that.

        Example:
            >>> context.record_metadata()
            >>> context.set_record_metadata("clicks", 0, 42)
            >>> context.record_metadata().offset
            42
        """
        return self._metadata

    def current_stream_time_ms(self) -> int:
        """Return the time set by `set_current_stream_time_ms`.

        Raises:
            IllegalStateError: the time has not been set.

        Example:
            >>> context.set_current_stream_time_ms(60_000)
            >>> context.current_stream_time_ms()
            60000
        """
        return _required_time(self._stream_time_ms, "set_current_stream_time_ms")

    def current_system_time_ms(self) -> int:
        """Return the time set by `set_current_system_time_ms`.

        Raises:
            IllegalStateError: the time has not been set.

        Example:
            >>> context.set_current_system_time_ms(60_000)
            >>> context.current_system_time_ms()
            60000
        """
        return _required_time(self._system_time_ms, "set_current_system_time_ms")

    def get_state_store(self, name: str) -> Any:
        """Return a store that the test added.

        Raises:
            StreamsError: there is no store with that name.

        Example:
            >>> visits = context.add_state_store({}, name="visits")
            >>> context.get_state_store("visits") is visits
            True
        """
        if name not in self._stores:
            names = ", ".join(self._stores) or "none"
            raise StreamsError(
                f"There is no store '{name}'. The stores of the context: {names}."
                f"{did_you_mean(name, self._stores)} Add the store with add_state_store."
            )
        return self._stores[name]

    def schedule(
        self,
        interval: timedelta,
        kind: PunctuationType,
        callback: Punctuator,
        *,
        start_ms: int | None = None,
    ) -> CapturedPunctuator:
        """Capture a punctuation that the processor schedules.

        Example:
            >>> _ = context.schedule(timedelta(minutes=1), PunctuationType.WALL_CLOCK_TIME, print)
            >>> context.scheduled_punctuators()[0].kind.name
            'WALL_CLOCK_TIME'
        """
        checked_interval_ms(interval)
        reject_deferred("schedule()", "callback", callback)
        captured = CapturedPunctuator(interval, kind, callback, start_ms)
        self._punctuators.append(captured)
        return captured

    def commit(self) -> None:
        """Record that the processor requests a commit.

        Example:
            >>> context.commit()
            >>> context.committed
            True
        """
        self._committed = True

    # --- internals -------------------------------------------------------------------------------

    def _environment(self) -> StoreEnvironment:
        return StoreEnvironment(
            task_id=self.task_id,
            directory=self.state_dir,
            topic="mock-changelog",
            restored_from=None,
            writer=None,
            context=self._record,
            budget=CacheBudget(0),
            recent_max_bytes=64 << 20,
            storages=RocksDBStorages(),
            dropped=lambda count, why, store: None,
        )


def _required_time(time_ms: int | None, setter: str) -> int:
    if time_ms is None:
        raise IllegalStateError(f"The time has not been set. Set it first with {setter}().")
    return time_ms
