"""Invalid requests for stores as DataFrames."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import millstream.lake
from bad_inputs.case import Case, Family, Outcome, Raises, ms, serdes
from bad_inputs.nulls import TEXT
from millstream.errors import ConfigError, UnknownStateStoreError
from millstream.lake.options import plan_from_options

lake: Any = millstream.lake
#: A placeholder: all of these cases fail before a session is used.
NO_SESSION: Any = "no session"
WHEN = datetime(2026, 1, 2, tzinfo=UTC)
CONFIG = ms.StreamsConfig(application_id="shop", bootstrap_servers="localhost:1")
OPTIONS = {
    "application_id": "shop",
    "bootstrap_servers": "localhost:1",
    "store": "counts",
    "key_serde": "STRING",
    "value_serde": "LONG",
}


def case(id: str, description: str, run: Any, outcome: Outcome) -> Case:
    return Case(id, description, run, outcome)


def raises(*parts: str) -> Raises:
    return Raises(ConfigError, parts)


def request(store: str, **arguments: Any) -> Any:
    """Request a store of an application that is not started."""

    def run() -> Any:
        builder = ms.StreamsBuilder()
        grouped = builder.stream("in", **TEXT).group_by_key()
        grouped.count(store="counts")
        unlogged = ms.Materialized("unlogged", key=serdes.STRING, value=serdes.LONG, logging=False)
        grouped.count(store=unlogged)
        lru = ms.Materialized(
            supplier=ms.Stores.lru_map("recent", 3), key=serdes.STRING, value=serdes.LONG
        )
        grouped.count(store=lru)
        streams = ms.KafkaStreams(builder.build(), CONFIG, NO_SESSION)
        return streams.dataframe(store, **arguments)

    return run


def read(**arguments: Any) -> Any:
    given = {"key": serdes.STRING, "value": serdes.LONG, **arguments}
    return lambda: lake.read_store(NO_SESSION, CONFIG, "counts", **given)


def options(**changed: Any) -> Any:
    """Plan with options of `spark.read.format("millstream")`; None removes an option."""
    given = {name: value for name, value in {**OPTIONS, **changed}.items() if value is not None}
    return lambda: plan_from_options(given)


FAMILY = Family(
    "Stores as DataFrames",
    "Rejected when the DataFrame is created; options of the data source are rejected by Spark's "
    "`load()`, as part of its `AnalysisException`.",
    [
        case(
            "frame-unknown-store",
            "an unknown store",
            request("cuonts"),
            Raises(UnknownStateStoreError, ["cuonts", "Did you mean 'counts'"]),
        ),
        case(
            "frame-unlogged",
            "a store without a changelog",
            request("unlogged"),
            raises("logging is disabled", "source='owners'"),
        ),
        case(
            "frame-lru",
            "a store that evicts keys without deleting them from its changelog",
            request("recent"),
            raises("evicts keys", "source='owners'"),
        ),
        case(
            "frame-source",
            "an unknown source",
            request("counts", source="owner"),
            raises("'owner'", "'changelog' or 'owners'"),
        ),
        case(
            "frame-as-of",
            "versions of a store without versions",
            request("counts", as_of=WHEN),
            raises("has no versions", "as_of"),
        ),
        case(
            "frame-owners-as-of",
            "a past position with source='owners'",
            request("counts", source="owners", as_of=WHEN),
            raises("current content", "changelog"),
        ),
        case(
            "frame-no-serde",
            "no serde",
            read(key="STRING"),
            raises("key= must be a Serde", "'STRING'"),
        ),
        case("frame-kind", "an unknown kind", read(kind="table"), raises("'table'")),
        case(
            "frame-no-retention",
            "a window store without its window size and retention",
            read(kind="window", window_size=timedelta(minutes=1)),
            raises("window store", "retention="),
        ),
        case(
            "frame-option-missing",
            "a missing option",
            options(value_serde=None),
            raises("requires the option value_serde"),
        ),
        case(
            "frame-option-unknown",
            "an unknown option",
            options(stroe="counts"),
            raises("no option 'stroe'", "Did you mean 'store'"),
        ),
        case(
            "frame-option-serde",
            "an unknown name of a serde",
            options(key_serde="STRNG"),
            raises("'STRNG'", "Did you mean 'STRING'", "module:attribute"),
        ),
        case(
            "frame-option-module",
            "a serde of a module that does not exist",
            options(key_serde="nowhere:SERDE"),
            raises(
                "'nowhere:SERDE'",
                "cannot import it",
                "the sys.path that the driver had when it called millstream.lake.register(spark)",
            ),
        ),
        case(
            "frame-option-main",
            "a serde of the main program",
            options(key_serde="__main__:MY_SERDE"),
            raises("'__main__:MY_SERDE'", "no objects from a notebook", "read_store()"),
        ),
        case(
            "frame-option-owners",
            "source='owners' in another program",
            options(source="owners"),
            raises("streams.dataframe(store, source='owners')", "server_port"),
        ),
        case(
            "frame-option-time",
            "an invalid time",
            options(kind="versioned", history_retention_ms="1000", as_of="yesterday"),
            raises("as_of", "'yesterday'", "2026-01-31T12:00:00Z"),
        ),
    ],
)
