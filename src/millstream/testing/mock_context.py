"""A context for the unit test of one processor, without topology or driver."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar

from millstream.clock import SystemClock
from millstream.config import StreamsConfig
from millstream.config_fields import did_you_mean
from millstream.errors import IllegalStateError, StreamsError
from millstream.metrics.registry import Scope
from millstream.metrics.user import ContextMetrics
from millstream.processor.punctuation import PunctuationType, Punctuator, checked_interval_ms
from millstream.processor.task_context import CurrentRecord
from millstream.record import FixedKeyRecord, Record, RecordMetadata, TaskId
from millstream.state.builders.store_builder import StoreBuilder
from millstream.state.caches.cache_entries import CacheBudget
from millstream.state.opening.by_kind import open_store
from millstream.state.opening.environment import StoreEnvironment
from millstream.state.storage.rocksdb import RocksDBStorages
from millstream.topology.physical.topology_stores import unlogged
from millstream.unawaited import refuse_deferred

K = TypeVar("K")
V = TypeVar("V")


class CapturedForward(NamedTuple):
    """A record that a processor forwarded.

    Args:
        record: the record.
        child: the only node to get it; None for all children.

    Example:
        >>> context = MockProcessorContext()
        >>> context.forward(Record("a", 1, 0), child="large")
        >>> context.forwarded()
        [CapturedForward(record=Record(key='a', value=1, timestamp=0, headers=()), child='large')]
    """

    record: Record[Any, Any] | FixedKeyRecord[Any, Any]
    child: str | None


class CapturedPunctuator:
    """A schedule that a processor made. Call `punctuator(time_ms)` to let its time come.

    Attributes:
        interval: the time between two calls.
        kind: which clock it follows.
        punctuator: the processor's callback.
        start_ms: the time of the first call, if the processor gave one.
        cancelled: whether it was cancelled.

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
        self.cancelled = False

    def cancel(self) -> None:
        """What the processor calls to end the schedule.

        Example:
            >>> context = MockProcessorContext()
            >>> calls = context.schedule(timedelta(seconds=1), PunctuationType.STREAM_TIME, print)
            >>> calls.cancel()
            >>> calls.cancelled
            True
        """
        self.cancelled = True


class MockProcessorContext(Generic[K, V]):
    """Stands for the context of a processor, and keeps what the processor does with it.

    Nothing happens by itself: forwarded records are kept, punctuators are called by the test, and
    time and place are what the test sets them to (Kafka Streams' `MockProcessorContext`). For a
    processor together with its topology, take the `TopologyTestDriver`.

    Takes records of both kinds, so it serves a `FixedKeyProcessor` as well. A context manager: at
    its end its stores are closed and removed.

    Args:
        config: what the processor finds as its settings; by default an application "mock".
        task_id: what it finds as its task.
        state_dir: where persistent stores live; by default a temporary directory.

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
        self.config = config or StreamsConfig(
            application_id="mock", bootstrap_servers="not-used:9092"
        )
        self.application_id = self.config.application_id
        self.task_id = TaskId(0, 0) if task_id is None else task_id
        self.metrics = ContextMetrics(Scope(SystemClock()))
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
        self._undo = ExitStack()

    def __enter__(self) -> MockProcessorContext[K, V]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # --- for the test ----------------------------------------------------------------------------

    def forwarded(self, child: str | None = None) -> list[CapturedForward]:
        """What the processor forwarded since the beginning or the last `reset_forwards`.

        Args:
            child: only what this child would have got: what was meant for it, and for all.

        Example:
            >>> context = MockProcessorContext()
            >>> context.forward(Record("a", 1, 0), child="large")
            >>> context.forward(Record("b", 2, 0))
            >>> [forward.record.key for forward in context.forwarded("small")]
            ['b']
        """
        return [
            forward for forward in self._forwards if child is None or forward.child in (None, child)
        ]

    def reset_forwards(self) -> None:
        """Forget what was forwarded.

        Example:
            >>> context = MockProcessorContext()
            >>> context.forward(Record("a", 1, 0))
            >>> context.reset_forwards()
            >>> context.forwarded()
            []
        """
        self._forwards.clear()

    def scheduled_punctuators(self) -> list[CapturedPunctuator]:
        """The schedules that the processor made, cancelled ones included.

        Example:
            >>> context = MockProcessorContext()
            >>> _ = context.schedule(timedelta(seconds=1), PunctuationType.WALL_CLOCK_TIME, print)
            >>> [schedule.interval.seconds for schedule in context.scheduled_punctuators()]
            [1]
        """
        return list(self._punctuators)

    @property
    def committed(self) -> bool:
        """Whether the processor asked for a commit."""
        return self._committed

    def reset_commit(self) -> None:
        """Forget that the processor asked for a commit.

        Example:
            >>> context = MockProcessorContext()
            >>> context.commit()
            >>> context.reset_commit()
            >>> context.committed
            False
        """
        self._committed = False

    def set_record_metadata(self, topic: str, partition: int, offset: int) -> None:
        """Say where the record being processed was read.

        Example:
            >>> context = MockProcessorContext()
            >>> context.set_record_metadata("clicks", 0, 42)
            >>> context.record_metadata()
            RecordMetadata(topic='clicks', partition=0, offset=42)
        """
        self._metadata = RecordMetadata(topic, partition, offset)

    def set_current_stream_time_ms(self, time_ms: int) -> None:
        """Say what stream time it is, in milliseconds since the epoch.

        Example:
            >>> context = MockProcessorContext()
            >>> context.set_current_stream_time_ms(60_000)
            >>> context.current_stream_time_ms()
            60000
        """
        self._stream_time_ms = time_ms

    def set_current_system_time_ms(self, time_ms: int) -> None:
        """Say what wall-clock time it is, in milliseconds since the epoch.

        Example:
            >>> context = MockProcessorContext()
            >>> context.set_current_system_time_ms(60_000)
            >>> context.current_system_time_ms()
            60000
        """
        self._system_time_ms = time_ms

    def add_state_store(self, store: StoreBuilder | Any, *, name: str | None = None) -> Any:
        """Give the processor a store.

        Args:
            store: a builder from `Stores`, of which a real store without changelog and cache is
                made, or any object that stands for a store.
            name: under which the processor looks for it; by default the store's own.

        Returns:
            The store.

        Example:
            >>> context = MockProcessorContext()
            >>> in_memory = Stores.in_memory_key_value("visits")
            >>> visits = context.add_state_store(Stores.key_value_builder(in_memory, STRING, LONG))
            >>> visits.put("ann", 3)
            >>> context.get_state_store("visits").get("ann")
            3
        """
        if isinstance(store, StoreBuilder):
            opened = open_store(unlogged(store).resolved(self.config), self._environment())
            self._undo.callback(opened.close)
            store, found = opened.store, store.name
        else:
            found = getattr(store, "name", None)
        key = found if name is None else name
        if not isinstance(key, str):
            raise ValueError("This store has no name of its own: give one with name=...")
        self._stores[key] = store
        return store

    def close(self) -> None:
        """Close the stores and remove what they wrote to a temporary directory.

        Example:
            >>> context = MockProcessorContext()
            >>> folder = context.state_dir
            >>> context.close()
            >>> folder.exists()
            False
        """
        self._undo.close()

    # --- for the processor -----------------------------------------------------------------------

    @property
    def state_dir(self) -> Path:
        """The directory of the task."""
        if self._state_dir is None:
            folder = tempfile.mkdtemp(prefix="millstream-mock-context-")
            remove = partial(shutil.rmtree, folder, ignore_errors=True)
            # For a test that does not close its context.
            atexit.register(remove)
            self._undo.callback(atexit.unregister, remove)
            self._undo.callback(remove)
            self._state_dir = Path(folder)
        return self._state_dir

    def forward(
        self, record: Record[Any, Any] | FixedKeyRecord[Any, Any], child: str | None = None
    ) -> None:
        """Keep a record that the processor forwards.

        Example:
            >>> context = MockProcessorContext()
            >>> context.forward(Record("a", 1, 0))
            >>> context.forwarded()[0].record.value
            1
        """
        if not isinstance(record, Record | FixedKeyRecord):
            raise TypeError(f"forward() takes a Record, but got {type(record).__name__}.")
        self._forwards.append(CapturedForward(record, child))

    def record_metadata(self) -> RecordMetadata | None:
        """What `set_record_metadata` said, None before.

        Example:
            >>> context = MockProcessorContext()
            >>> context.record_metadata()
            >>> context.set_record_metadata("clicks", 0, 42)
            >>> context.record_metadata().offset
            42
        """
        return self._metadata

    def current_stream_time_ms(self) -> int:
        """What `set_current_stream_time_ms` said.

        Raises:
            IllegalStateError: it has not been called.

        Example:
            >>> context = MockProcessorContext()
            >>> context.set_current_stream_time_ms(60_000)
            >>> context.current_stream_time_ms()
            60000
        """
        return _known(self._stream_time_ms, "set_current_stream_time_ms")

    def current_system_time_ms(self) -> int:
        """What `set_current_system_time_ms` said.

        Raises:
            IllegalStateError: it has not been called.

        Example:
            >>> context = MockProcessorContext()
            >>> context.set_current_system_time_ms(60_000)
            >>> context.current_system_time_ms()
            60000
        """
        return _known(self._system_time_ms, "set_current_system_time_ms")

    def get_state_store(self, name: str) -> Any:
        """A store that the test has added.

        Raises:
            StreamsError: there is none of that name.

        Example:
            >>> context = MockProcessorContext()
            >>> visits = context.add_state_store({}, name="visits")
            >>> context.get_state_store("visits") is visits
            True
        """
        if name not in self._stores:
            names = ", ".join(self._stores) or "none at all"
            raise StreamsError(
                f"The test has added no store '{name}', but {names}."
                f"{did_you_mean(name, self._stores)} Add it with add_state_store."
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
        """Keep a schedule that the processor makes.

        Example:
            >>> context = MockProcessorContext()
            >>> _ = context.schedule(timedelta(minutes=1), PunctuationType.WALL_CLOCK_TIME, print)
            >>> context.scheduled_punctuators()[0].kind.name
            'WALL_CLOCK_TIME'
        """
        checked_interval_ms(interval)
        refuse_deferred("schedule()", "callback", callback)
        captured = CapturedPunctuator(interval, kind, callback, start_ms)
        self._punctuators.append(captured)
        return captured

    def commit(self) -> None:
        """Note that the processor asks for a commit.

        Example:
            >>> context = MockProcessorContext()
            >>> context.commit()
            >>> context.committed
            True
        """
        self._committed = True

    # --- inside ----------------------------------------------------------------------------------

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


def _known(time_ms: int | None, setter: str) -> int:
    if time_ms is None:
        raise IllegalStateError(f"The processor asks for a time. Set it first with {setter}().")
    return time_ms
