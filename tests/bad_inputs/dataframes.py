"""Stores asked for as DataFrames that they cannot be."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import millstream.lake
from bad_inputs.case import Case, Family, Outcome, Refused, ms, serdes
from bad_inputs.nulls import TEXT
from millstream.errors import ConfigError, UnknownStateStoreError
from millstream.lake.options import plan_of_options

lake: Any = millstream.lake
#: In place of a session: all of these are refused before one is used.
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


def case(id: str, what: str, do: Any, outcome: Outcome) -> Case:
    return Case(id, what, do, outcome)


def refused(*told: str) -> Refused:
    return Refused(ConfigError, told)


def asked(store: str, **arguments: Any) -> Any:
    """A store of an application that is not started."""

    def do() -> Any:
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

    return do


def read(**arguments: Any) -> Any:
    given = {"key": serdes.STRING, "value": serdes.LONG, **arguments}
    return lambda: lake.read_store(NO_SESSION, CONFIG, "counts", **given)


def options(**changed: Any) -> Any:
    """The options of `spark.read.format("millstream")`, of which None are left out."""
    given = {name: value for name, value in {**OPTIONS, **changed}.items() if value is not None}
    return lambda: plan_of_options(given)


FAMILY = Family(
    "Stores as DataFrames",
    "Refused where the DataFrame is made; options of the data source in Spark's `load()`, as part "
    "of its `AnalysisException`.",
    [
        case(
            "frame-unknown-store",
            "a store that the topology has not",
            asked("cuonts"),
            Refused(UnknownStateStoreError, ["cuonts", "Did you mean 'counts'"]),
        ),
        case(
            "frame-unlogged",
            "a store without a changelog",
            asked("unlogged"),
            refused("logging is off", "source='owners'"),
        ),
        case(
            "frame-lru",
            "a store that forgets keys without telling its changelog",
            asked("recent"),
            refused("forgets keys", "source='owners'"),
        ),
        case(
            "frame-source",
            "a source that there is not",
            asked("counts", source="owner"),
            refused("'owner'", "'changelog' or 'owners'"),
        ),
        case(
            "frame-as-of",
            "versions of a store that keeps none",
            asked("counts", as_of=WHEN),
            refused("keeps no versions", "as_of"),
        ),
        case(
            "frame-owners-as-of",
            "the past, of the owners",
            asked("counts", source="owners", as_of=WHEN),
            refused("as it is now", "changelog"),
        ),
        case(
            "frame-no-serde",
            "no serde",
            read(key="STRING"),
            refused("key= needs a Serde", "'STRING'"),
        ),
        case("frame-kind", "a kind that there is not", read(kind="table"), refused("'table'")),
        case(
            "frame-no-retention",
            "a window store without its times",
            read(kind="window", window_size=timedelta(minutes=1)),
            refused("window store", "retention="),
        ),
        case(
            "frame-option-missing",
            "an option that is missing",
            options(value_serde=None),
            refused("needs the option value_serde"),
        ),
        case(
            "frame-option-unknown",
            "an option that there is not",
            options(stroe="counts"),
            refused("no option 'stroe'", "Did you mean 'store'"),
        ),
        case(
            "frame-option-serde",
            "a serde by a name that none has",
            options(key_serde="STRNG"),
            refused("'STRNG'", "Did you mean 'STRING'", "module:attribute"),
        ),
        case(
            "frame-option-module",
            "a serde of a module that is not there",
            options(key_serde="nowhere:SERDE"),
            refused(
                "'nowhere:SERDE'",
                "cannot be imported",
                "searches where the driver searched when millstream.lake.register(spark)",
            ),
        ),
        case(
            "frame-option-main",
            "a serde of the main program",
            options(key_serde="__main__:MY_SERDE"),
            refused("'__main__:MY_SERDE'", "nothing of a notebook", "read_store()"),
        ),
        case(
            "frame-option-owners",
            "the owners, from elsewhere",
            options(source="owners"),
            refused("streams.dataframe(store, source='owners')", "server_port"),
        ),
        case(
            "frame-option-time",
            "a time that is none",
            options(kind="versioned", history_retention_ms="1000", as_of="yesterday"),
            refused("as_of", "'yesterday'", "2026-01-31T12:00:00Z"),
        ),
    ],
)
