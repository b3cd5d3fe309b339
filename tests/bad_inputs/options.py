"""Windows, buffers and stores that make no sense."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bad_inputs.case import Accepted, Case, Family, Outcome, Refused, ms, serdes, started
from bad_inputs.nulls import TEXT, both, other
from millstream.errors import ConfigError, IllegalStateError, TopologyError

SECOND, MINUTE, NOTHING = timedelta(seconds=1), timedelta(minutes=1), timedelta(0)
PLAIN = ms.Stores.in_memory_key_value("plain")


def refused(*told: str) -> Refused:
    return Refused(ConfigError, told)


def case(id: str, what: str, do: Any, outcome: Outcome) -> Case:
    return Case(id, what, do, outcome)


def counted(windows: Any, **options: Any) -> Any:
    """An aggregation in windows, as far as it is checked."""
    return started(
        lambda b: b.stream("in", **TEXT).group_by_key().windowed_by(windows).count(**options)
    )


def suppressed(buffer: Any) -> Any:
    return lambda: ms.Suppressed.until_window_closes(buffer)


def cached_versions() -> Any:
    store = ms.Stores.persistent_versioned("kept", MINUTE)
    return ms.Stores.versioned_builder(store, key=serdes.STRING, value=serdes.STRING).with_caching(
        True
    )


def joined(windows: Any, **options: Any) -> Any:
    return started(
        lambda b: b.stream("in", **TEXT).join(other(b), both, windows, **options).to("out")
    )


def count_in(store: Any) -> Any:
    return started(lambda b: b.stream("in", **TEXT).group_by_key().count(store=store))


def suppressed_table() -> Any:
    return started(
        lambda b: (
            b.table("in", **TEXT)
            .suppress(ms.Suppressed.until_window_closes(ms.BufferConfig.unbounded()))
            .to_stream()
            .to("out")
        )
    )


FAMILY = Family(
    "Windows, buffers and stores",
    "Refused in the line that makes them.",
    [
        case("zero-size", "windows of no length", lambda: ms.TimeWindows(NOTHING), refused("size")),
        case(
            "negative-size",
            "windows of negative length",
            lambda: ms.TimeWindows(-SECOND),
            refused("size"),
        ),
        case(
            "number-size",
            "a number in place of a timedelta",
            lambda: ms.TimeWindows(1000),
            refused("timedelta", "1000"),
        ),
        case(
            "micro-size",
            "windows shorter than a millisecond",
            lambda: ms.TimeWindows(timedelta(microseconds=10)),
            refused("size"),
        ),
        case(
            "zero-advance",
            "windows that do not advance",
            lambda: ms.TimeWindows(SECOND, advance=NOTHING),
            refused("advance"),
        ),
        case(
            "far-advance",
            "windows with gaps between them",
            lambda: ms.TimeWindows(SECOND, advance=MINUTE),
            refused("leave out the records"),
        ),
        case(
            "negative-grace",
            "a negative grace",
            lambda: ms.TimeWindows(SECOND, grace=-SECOND),
            refused("grace"),
        ),
        case(
            "zero-gap",
            "sessions without a gap hold the records of one millisecond",
            lambda: ms.SessionWindows(NOTHING) and None,
            Accepted(),
        ),
        case(
            "negative-sliding",
            "a negative time difference",
            lambda: ms.SlidingWindows(-SECOND),
            refused("time_difference"),
        ),
        case(
            "negative-join",
            "a negative window of a join",
            lambda: ms.JoinWindows(-SECOND),
            refused("time_difference", "at least 0"),
        ),
        case(
            "reversed-join",
            "a window of a join that ends before it begins",
            lambda: ms.JoinWindows(SECOND, after=-MINUTE),
            refused("ends before it begins"),
        ),
        case(
            "unlimited-start",
            "unlimited windows from before 1970",
            lambda: ms.UnlimitedWindows(start_ms=-1),
            refused("start_ms=-1"),
        ),
        case(
            "window-times",
            "a window that ends before it starts",
            lambda: ms.Window(5, 3),
            Refused(ValueError, ["cannot end at 3", "starts at 5"]),
        ),
        case(
            "window-negative",
            "a window from before 1970",
            lambda: ms.Window(-5, 3),
            Refused(ValueError, "negative time"),
        ),
        case(
            "short-retention",
            "windows that are kept too shortly",
            counted(ms.TimeWindows(MINUTE), store=ms.Materialized("kept", retention=SECOND)),
            Refused(TopologyError, ["1000 ms", "60000 ms"]),
        ),
        case(
            "plain-for-windows",
            "a key-value store for windows",
            counted(ms.TimeWindows(MINUTE), store=PLAIN),
            Refused(TopologyError, "must be from a WindowStoreSupplier"),
        ),
        case(
            "other-size",
            "a window store of another size",
            counted(
                ms.TimeWindows(MINUTE),
                store=ms.Stores.in_memory_window("kept", timedelta(hours=1), SECOND),
            ),
            Refused(TopologyError, "1000"),
        ),
        case(
            "session-store",
            "a window store for sessions",
            counted(
                ms.SessionWindows(MINUTE), store=ms.Stores.in_memory_window("kept", MINUTE, SECOND)
            ),
            Refused(TopologyError, "must be from a SessionStoreSupplier"),
        ),
        case(
            "no-windows",
            "a number as windows",
            started(lambda b: b.stream("in", **TEXT).group_by_key().windowed_by(5)),
            Refused(TypeError, "5"),
        ),
        case(
            "join-span",
            "a timedelta as the windows of a join",
            joined(SECOND),
            Refused(TypeError, "JoinWindows"),
        ),
        case(
            "join-store",
            "a key-value store for a join of streams",
            joined(ms.JoinWindows(SECOND), this_store=PLAIN),
            Refused(TypeError, "window store"),
        ),
        case(
            "retention",
            "a store that keeps windows shorter than they are",
            lambda: ms.Stores.persistent_window("kept", SECOND, MINUTE),
            refused("shorter"),
        ),
        case(
            "lru",
            "a store of no entries",
            lambda: ms.Stores.lru_map("kept", 0),
            refused("at least one"),
        ),
        case(
            "store-name",
            "a slash in a store's name",
            lambda: ms.Stores.persistent_key_value("a/b"),
            refused("'a/b'", "letters"),
        ),
        case(
            "store-empty",
            "a store without a name",
            lambda: ms.Stores.persistent_key_value(""),
            refused("name of a store"),
        ),
        case(
            "store-serde",
            "a type as a store's serde",
            lambda: ms.Stores.key_value_builder(PLAIN, key=str, value=str),
            refused("Serde", "STRING"),
        ),
        case(
            "supplier",
            "a window store's supplier for a key-value store",
            lambda: ms.Stores.key_value_builder(
                ms.Stores.in_memory_window("kept", MINUTE, SECOND),
                key=serdes.STRING,
                value=serdes.STRING,
            ),
            refused("key_value_builder()"),
        ),
        case(
            "cached-versions",
            "a versioned store with a cache",
            cached_versions,
            Refused(IllegalStateError, "cannot be cached"),
        ),
        case(
            "history",
            "a versioned store with a negative history",
            lambda: ms.Stores.persistent_versioned("kept", -SECOND),
            refused("history"),
        ),
        case(
            "kind",
            "an unknown kind of store",
            lambda: ms.Materialized("kept", kind="disk"),
            Refused(TopologyError, ["'disk'", "rocksdb"]),
        ),
        case(
            "both",
            "a supplier and a name",
            lambda: ms.Materialized("kept", supplier=PLAIN),
            Refused(TopologyError, "not both"),
        ),
        case("store-number", "a number as a store", count_in(5), Refused(TypeError, "5")),
        case(
            "buffer",
            "a buffer of no records",
            lambda: ms.BufferConfig.max_records(-1),
            refused("-1", "0 or more"),
        ),
        case(
            "early",
            "final results from a buffer that emits early",
            suppressed(ms.BufferConfig.max_records(5)),
            refused("final results only"),
        ),
        case(
            "no-windows-to-close",
            "final results of a table without windows",
            suppressed_table(),
            Refused(TopologyError, "window"),
        ),
        case(
            "suppressed",
            "a number as what to suppress",
            started(lambda b: b.table("in", **TEXT).suppress(5)),
            Refused(TypeError, "5"),
        ),
    ],
)
