"""Tests of the topology with a working and an unreachable service."""

from __future__ import annotations

import pytest
from async_enrichment import enriched
from async_enrichment_demo import SlowService, country_of

from millstream.errors import StreamsError
from millstream.serdes import JSON, STRING
from millstream.testing import TopologyTestDriver


def test_each_visit_gets_the_country_of_its_customer_in_order() -> None:
    with SlowService() as service, TopologyTestDriver(enriched(service.address, 10)) as driver:
        visits = driver.create_input_topic("visits", key=STRING, value=JSON)
        places = driver.create_output_topic("places", key=STRING, value=JSON)
        for number in range(40):
            visits.pipe_input(f"customer-{number % 4}", {"visit": number})
        found = places.read_key_values()
    assert len(found) == 40
    for customer in {customer for customer, _ in found}:
        of_one = [visit for name, visit in found if name == customer]
        assert {visit["country"] for visit in of_one} == {country_of(customer)}
        assert [visit["visit"] for visit in of_one] == sorted(visit["visit"] for visit in of_one)


def test_an_unreachable_service_is_reported_with_the_record() -> None:
    # Nothing listens on port 1.
    with TopologyTestDriver(enriched("127.0.0.1:1", 10)) as driver:
        visits = driver.create_input_topic("visits", key=STRING, value=JSON)
        with pytest.raises(StreamsError, match=r"visits.*partition 0.*offset 0"):
            visits.pipe_input("customer-1", {"visit": 1})
