"""Global tables: small tables for all tasks, such as countries, currencies and feature flags.

Every stream thread has a complete copy of a `global_table`. Its topic does not have to be
partitioned like the stream, and the lookup key can be any part of the record. The join uses the
current content of the table, regardless of timestamps. The table must fit on every host, so use a
regular table for large data such as customers.
"""

from __future__ import annotations

from typing import Any

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver


def named() -> Topology:
    """Add the name of the country to visits that contain a country code."""
    builder = StreamsBuilder()
    countries = builder.global_table("countries", key=STRING, value=STRING, store="countries")
    visits = builder.stream("visits", key=STRING, value=JSON)

    def with_country(visit: dict[str, Any], country: str | None) -> dict[str, Any]:
        return {**visit, "country": country or "unknown"}

    visits.left_join(countries, with_country, key_selector=lambda user, visit: visit["code"]).to(
        "named-visits", key=STRING, value=JSON
    )
    return builder.build()


def test_codes_become_names() -> None:
    with TopologyTestDriver(named()) as driver:
        countries = driver.create_input_topic("countries", key=STRING, value=STRING)
        visits = driver.create_input_topic("visits", key=STRING, value=JSON)
        countries.pipe_input("no", "Norway")
        visits.pipe_key_values([("ann", {"code": "no"}), ("bob", {"code": "xx"})])
        found = driver.create_output_topic("named-visits", key=STRING, value=JSON)
        assert [visit["country"] for visit in found.read_values()] == ["Norway", "unknown"]
