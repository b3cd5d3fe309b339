"""Hints for methods of Faust, Quix Streams, pandas and Java's Kafka Streams."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NoReturn

_GROUP = "group the stream first: stream.group_by_key()"
_WINDOWS = "stream.group_by_key().windowed_by(TimeWindows(timedelta(minutes=5)))"
_MAP = "use stream.map_values(lambda value: ...) for new values, stream.filter() to drop records"
_FOLD = "fold values with .reduce(lambda total, value: ...) or .aggregate(initializer, aggregator)"
_QUERY = "read rows with streams.store(name), after giving the table store=name"


def _hints(*rows: tuple[str, str]) -> Mapping[str, str]:
    """Return the hint for each name. The names of a row are separated by spaces."""
    return {name: hint for names, hint in rows for name in names.split()}


STREAM_HINTS: Final = _hints(
    ("count reduce aggregate cogroup", f"{_GROUP}.{{name}}(...)"),
    ("agg sum min max mean collect", f"{_GROUP}, then {_FOLD}"),
    (
        "windowed_by windowedBy window tumbling_window hopping_window sliding_window "
        "session_window tumbling hopping rolling resample",
        f"windows need a grouped stream: {_WINDOWS}",
    ),
    (
        "apply transform assign set drop rename fillna columns loc",
        f"{_MAP}, and stream.process() for stateful operations",
    ),
    ("transform_values transformValues", "use stream.process_values()"),
    ("where query", "use stream.filter(lambda key, value: ...)"),
    ("update foreach tap", "use stream.peek() or stream.for_each()"),
    ("explode flatten", "use stream.flat_map_values()"),
    ("to_topic sink send forward", "use stream.to(topic)"),
    ("through", "use stream.repartition(), or stream.to(topic) and builder.stream(topic)"),
    ("groupby groupBy", "use stream.group_by(selector, key=..., value=...)"),
    (
        "take batch map_partitions",
        "use stream.map_batches() for Arrow record batches, or a ProcessorSubscription with a "
        "BatchingProcessor for lists",
    ),
    (
        "items events noack_take",
        "a stream cannot be iterated: use stream.for_each(), .map_values() or .process()",
    ),
    (
        "join_asof join_lookup join_interval",
        "use stream.join(): with a table, a global table, or a stream and JoinWindows",
    ),
    ("concat", "use stream.merge(other)"),
)

TABLE_HINTS: Final = _hints(
    (
        "count reduce aggregate agg sum min max mean cogroup",
        "group the table first: table.group_by(lambda key, value: (key, value), key=..., "
        "value=...).count()",
    ),
    ("get keys values items all range setdefault", _QUERY),
    ("apply transform assign", "use table.map_values()"),
    ("tumbling hopping windowed_by", f"only streams have windows: {_WINDOWS}"),
    (
        "to peek for_each foreach print process process_values merge map flat_map flat_map_values "
        "map_async map_batches branch split select_key repartition to_topic sink forEach flatMap "
        "through",
        "use table.to_stream(), which has the methods of streams",
    ),
)

GROUP_HINTS: Final = _hints(
    ("sum min max mean agg apply fold", _FOLD),
    (
        "window tumbling_window hopping_window sliding_window session_window",
        "use .windowed_by(TimeWindows(...)), SlidingWindows or SessionWindows",
    ),
    (
        "to to_stream map_values filter",
        "aggregate it first: .count(), .reduce() and .aggregate() return a table",
    ),
)

GLOBAL_TABLE_HINTS: Final = _hints(
    (
        "to_stream to filter map_values join left_join group_by peek",
        "a global table can only be joined: stream.join(global_table, ...). For other operations "
        "use builder.table(topic)",
    ),
    ("get keys values items", _QUERY),
)

BUILDER_HINTS: Final = _hints(
    ("topic dataframe channel from_topic read", "use builder.stream(topic)"),
    ("Table GlobalTable", "use builder.table() or builder.global_table()"),
    ("agent", "use builder.stream(topic).for_each(), .map_async(), or a ProcessorSubscription"),
    (
        "timer crontab task",
        "schedule a punctuation in a Processor: context.schedule(interval, kind, callback)",
    ),
    ("run main start", "use KafkaStreams(builder.build(), config).run()"),
)

_NO_COLUMNS = (
    "{kind} objects have no columns: read a field of each record with "
    "stream.map_values(lambda value: value[{key!r}])."
)
_NO_LOOP = (
    "{kind} objects cannot be iterated: use for_each(), map_values() or process() with a function "
    "that takes one record."
)
_NO_ROWS = "{kind} objects only describe a table and have no rows: " + _QUERY + "."


class Hinted:
    """Adds hints to the errors for methods and operators of other libraries.

    A mixin. Its methods are hidden from type checkers, which therefore still report missing names.
    """

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            if hasattr(type(self), name):
                # A property of a subclass raised an AttributeError: raise the original error again.
                object.__getattribute__(self, name)
            raise AttributeError(_advice(type(self), name), name=name, obj=self)


class HintedStream(Hinted):
    """A mixin that also adds a hint to the error for `stream["column"]`."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getitem__(self, key: Any) -> NoReturn:
            kind = type(self).__name__
            raise TypeError(
                (_NO_LOOP if type(key) is int else _NO_COLUMNS).format(kind=kind, key=key)
            )


class HintedTable(Hinted):
    """A mixin that also adds a hint to the error for `table[key]`."""

    __slots__ = ()

    if not TYPE_CHECKING:

        def __getitem__(self, key: Any) -> NoReturn:
            raise TypeError(_NO_ROWS.format(kind=type(self).__name__))


def _advice(kind: type, name: str) -> str:
    problem = f"{kind.__name__!r} object has no attribute {name!r}"
    if name.startswith("_"):
        return problem
    snake_case = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    if name in (hints := _hints_for(kind)):
        return f"{problem}: {hints[name].format(name=name)}"
    if snake_case != name and hasattr(kind, snake_case):
        return f"{problem}: in Python the name is {snake_case}()"
    return problem


def _hints_for(kind: type) -> Mapping[str, str]:
    if issubclass(kind, HintedStream):
        return STREAM_HINTS
    if issubclass(kind, HintedTable):
        return TABLE_HINTS
    others = {"StreamsBuilder": BUILDER_HINTS, "GlobalKTable": GLOBAL_TABLE_HINTS}
    return others.get(kind.__name__, GROUP_HINTS)
