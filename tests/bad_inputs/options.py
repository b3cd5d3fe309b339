"""Invalid windows, buffers and stores."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from bad_inputs.case import Accepted, Case, Family, Outcome, Raises, check_start, ms, serdes
from bad_inputs.nulls import TEXT, both, other
from millstream.errors import ConfigError, IllegalStateError, TopologyError

SECOND, MINUTE, NOTHING = timedelta(seconds=1), timedelta(minutes=1), timedelta(0)
PLAIN = ms.Stores.in_memory_key_value("plain")


def raises(*parts: str) -> Raises:
    return Raises(ConfigError, parts)


def case(id: str, description: str, run: Any, outcome: Outcome) -> Case:
    return Case(id, description, run, outcome)


def counted(windows: Any, **options: Any) -> Any:
    """Build and check a windowed aggregation."""
    return check_start(
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
    return check_start(
        lambda b: b.stream("in", **TEXT).join(other(b), both, windows, **options).to("out")
    )


def count_in(store: Any) -> Any:
    return check_start(lambda b: b.stream("in", **TEXT).group_by_key().count(store=store))


def suppressed_table() -> Any:
    return check_start(
        lambda b: (
            b.table("in", **TEXT)
            .suppress(ms.Suppressed.until_window_closes(ms.BufferConfig.unbounded()))
            .to_stream()
            .to("out")
        )
    )


FAMILY = Family(
    "Windows, buffers and stores",
    "Rejected at the line that creates them.",
    [
        case(
            "zero-size", "windows of length zero", lambda: ms.TimeWindows(NOTHING), raises("size")
        ),
        case(
            "negative-size",
            "windows of negative length",
            lambda: ms.TimeWindows(-SECOND),
            raises("size"),
        ),
        case(
            "number-size",
            "a number instead of a timedelta",
            lambda: ms.TimeWindows(1000),
            raises("timedelta", "1000"),
        ),
        case(
            "micro-size",
            "windows shorter than a millisecond",
            lambda: ms.TimeWindows(timedelta(microseconds=10)),
            raises("size"),
        ),
        case(
            "zero-advance",
            "windows that do not advance",
            lambda: ms.TimeWindows(SECOND, advance=NOTHING),
            raises("advance"),
        ),
        case(
            "far-advance",
            "windows with gaps between them",
            lambda: ms.TimeWindows(SECOND, advance=MINUTE),
            raises("skip the records"),
        ),
        case(
            "negative-grace",
            "a negative grace",
            lambda: ms.TimeWindows(SECOND, grace=-SECOND),
            raises("grace"),
        ),
        case(
            "zero-gap",
            "sessions with a gap of zero, which contain the records of one millisecond",
            lambda: ms.SessionWindows(NOTHING) and None,
            Accepted(),
        ),
        case(
            "negative-sliding",
            "a negative time difference",
            lambda: ms.SlidingWindows(-SECOND),
            raises("time_difference"),
        ),
        case(
            "negative-join",
            "a negative join window",
            lambda: ms.JoinWindows(-SECOND),
            raises("time_difference", "at least 0"),
        ),
        case(
            "reversed-join",
            "a join window that ends before it starts",
            lambda: ms.JoinWindows(SECOND, after=-MINUTE),
            raises("ends before it begins"),
        ),
        case(
            "unlimited-start",
            "unlimited windows that start before 1970",
            lambda: ms.UnlimitedWindows(start_ms=-1),
            raises("start_ms=-1"),
        ),
        case(
            "window-times",
            "a window that ends before it starts",
            lambda: ms.Window(5, 3),
            Raises(ValueError, ["cannot end at 3", "starts at 5"]),
        ),
        case(
            "window-negative",
            "a window that starts before 1970",
            lambda: ms.Window(-5, 3),
            Raises(ValueError, "negative time"),
        ),
        case(
            "short-retention",
            "windows with too short a retention",
            counted(ms.TimeWindows(MINUTE), store=ms.Materialized("kept", retention=SECOND)),
            Raises(TopologyError, ["1000 ms", "60000 ms"]),
        ),
        case(
            "plain-for-windows",
            "a key-value store for windows",
            counted(ms.TimeWindows(MINUTE), store=PLAIN),
            Raises(TopologyError, "needs a WindowStoreSupplier"),
        ),
        case(
            "other-size",
            "a window store of another size",
            counted(
                ms.TimeWindows(MINUTE),
                store=ms.Stores.in_memory_window("kept", timedelta(hours=1), SECOND),
            ),
            Raises(TopologyError, "1000"),
        ),
        case(
            "session-store",
            "a window store for sessions",
            counted(
                ms.SessionWindows(MINUTE), store=ms.Stores.in_memory_window("kept", MINUTE, SECOND)
            ),
            Raises(TopologyError, "needs a SessionStoreSupplier"),
        ),
        case(
            "no-windows",
            "a number instead of windows",
            check_start(lambda b: b.stream("in", **TEXT).group_by_key().windowed_by(5)),
            Raises(TypeError, "5"),
        ),
        case(
            "join-span",
            "a timedelta as a join window",
            joined(SECOND),
            Raises(TypeError, "JoinWindows"),
        ),
        case(
            "join-store",
            "a key-value store for a join of streams",
            joined(ms.JoinWindows(SECOND), this_store=PLAIN),
            Raises(TypeError, "window store"),
        ),
        case(
            "retention",
            "a window store with a retention below the window size",
            lambda: ms.Stores.persistent_window("kept", SECOND, MINUTE),
            raises("shorter"),
        ),
        case(
            "lru",
            "a store of zero entries",
            lambda: ms.Stores.lru_map("kept", 0),
            raises("at least 1"),
        ),
        case(
            "store-name",
            "a slash in a store's name",
            lambda: ms.Stores.persistent_key_value("a/b"),
            raises("'a/b'", "letters"),
        ),
        case(
            "store-empty",
            "a store without a name",
            lambda: ms.Stores.persistent_key_value(""),
            raises("is not a valid store name"),
        ),
        case(
            "store-serde",
            "a type as a store's serde",
            lambda: ms.Stores.key_value_builder(PLAIN, key=str, value=str),
            raises("Serde", "STRING"),
        ),
        case(
            "supplier",
            "a window store's supplier for a key-value store",
            lambda: ms.Stores.key_value_builder(
                ms.Stores.in_memory_window("kept", MINUTE, SECOND),
                key=serdes.STRING,
                value=serdes.STRING,
            ),
            raises("key_value_builder()"),
        ),
        case(
            "cached-versions",
            "a versioned store with a cache",
            cached_versions,
            Raises(IllegalStateError, "cannot be cached"),
        ),
        case(
            "history",
            "a versioned store with a negative history retention",
            lambda: ms.Stores.persistent_versioned("kept", -SECOND),
            raises("history"),
        ),
        case(
            "kind",
            "an unknown kind of store",
            lambda: ms.Materialized("kept", kind="disk"),
            Raises(TopologyError, ["'disk'", "rocksdb"]),
        ),
        case(
            "both",
            "both a supplier and a name",
            lambda: ms.Materialized("kept", supplier=PLAIN),
            Raises(TopologyError, "not both"),
        ),
        case("store-number", "a number as a store", count_in(5), Raises(TypeError, "5")),
        case(
            "buffer",
            "a buffer of -1 records",
            lambda: ms.BufferConfig.max_records(-1),
            raises("-1", "at least 0"),
        ),
        case(
            "early",
            "final results from a buffer that emits early",
            suppressed(ms.BufferConfig.max_records(5)),
            raises("final results only"),
        ),
        case(
            "no-windows-to-close",
            "final results of a table without windows",
            suppressed_table(),
            Raises(TopologyError, "window"),
        ),
        case(
            "suppressed",
            "a number instead of Suppressed",
            check_start(lambda b: b.table("in", **TEXT).suppress(5)),
            Raises(TypeError, "5"),
        ),
    ],
)
