"""Small tables that everybody needs: countries, currencies, feature flags.

A `global_table` is copied to every stream thread, so its topic need not be partitioned like the
stream, and the key to look up may be anything that the record holds. It is read as it is just now,
without regard to time, and must fit beside everything else: take a table for customers.
"""

from __future__ import annotations

from typing import Any

from millstream import StreamsBuilder, Topology
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver


def named() -> Topology:
    """Visits with a country's code in, visits with its name out."""
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
