"""Goal: what a host says of itself holds for its threads, and nothing else changes."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from millstream.config import StreamsConfig
from millstream.runtime.host import Host

DRIVER, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(application_id="app", bootstrap_servers="127.0.0.1:1", **settings)


def test_a_host_that_says_nothing_changes_nothing() -> None:
    given = config(client_tags={"zone": "a"}, consumer={"client.rack": "a"})
    host = Host("one", environment={"MILLSTREAM_CLIENT_RACK": "", "MILLSTREAM_CLIENT_TAG_": "a"})
    assert host.settings(given) is given


def test_a_host_knows_its_rack_and_tags_better_than_the_settings() -> None:
    """They are the same for all hosts. What is said of one kind of consumer alone is left."""
    host = Host(
        "one",
        environment={
            "MILLSTREAM_CLIENT_RACK": "eu-1a",
            "MILLSTREAM_CLIENT_TAG_ZONE": "a",
            "MILLSTREAM_CLIENT_TAG_NODE": "n7",
            "OTHER": "b",
        },
    )
    given = config(
        client_tags={"zone": "b", "cluster": "c"},
        consumer={"client.rack": "eu-1b", "max.poll.records": 7},
        restore_consumer={"client.rack": "eu-1c"},
    )
    here = host.settings(given)
    assert here.client_tags == {"zone": "a", "node": "n7", "cluster": "c"}
    assert here.client_settings("main_consumer")["client.rack"] == "eu-1a"
    assert here.client_settings("main_consumer")["max.poll.records"] == 7
    assert here.client_settings("restore_consumer")["client.rack"] == "eu-1c"


@pytest.mark.parametrize(
    ("given", "told"),
    [({}, "one"), ({"host": "mine"}, "mine"), ({"zone": "a"}, "one")],
)
def test_its_name_is_a_tag_where_copies_are_spread_by_it(given: dict[str, str], told: str) -> None:
    here = Host("one").settings(config(client_tags=given, rack_aware_assignment_tags=("host",)))
    assert here.client_tags == {**given, "host": told}


def test_without_a_folder_a_client_is_a_driver_on_a_host() -> None:
    hosts = [Host("one", "x"), Host("one", "y"), Host("two", "x")]
    ids = {host.process_id_of(driver) for host in hosts for driver in (DRIVER, OTHER)}
    assert len(ids) == 6
    assert Host("one", "x").process_id_of(DRIVER) in ids


def test_this_host_is_the_same_for_all_who_ask() -> None:
    assert Host.here().process_id_of(DRIVER) == Host.here().process_id_of(DRIVER)
