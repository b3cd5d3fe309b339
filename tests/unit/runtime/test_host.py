"""Environment variables of a worker host change the settings of its threads."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from millstream.config.streams_config import StreamsConfig
from millstream.runtime.client_process import WorkerHost

DRIVER, OTHER = uuid.UUID(int=1), uuid.UUID(int=2)


def config(**settings: Any) -> StreamsConfig:
    return StreamsConfig(application_id="app", bootstrap_servers="127.0.0.1:1", **settings)


def test_host_without_variables_changes_nothing() -> None:
    configured = config(client_tags={"zone": "a"}, consumer={"client.rack": "a"})
    host = WorkerHost(
        "one", environment={"MILLSTREAM_CLIENT_RACK": "", "MILLSTREAM_CLIENT_TAG_": "a"}
    )
    assert host.settings(configured) is configured


def test_rack_and_tags_of_a_host_override_the_settings() -> None:
    """The settings are the same for all hosts. Only settings for one kind of consumer are not
    overridden."""
    host = WorkerHost(
        "one",
        environment={
            "MILLSTREAM_CLIENT_RACK": "eu-1a",
            "MILLSTREAM_CLIENT_TAG_ZONE": "a",
            "MILLSTREAM_CLIENT_TAG_NODE": "n7",
            "OTHER": "b",
        },
    )
    configured = config(
        client_tags={"zone": "b", "cluster": "c"},
        consumer={"client.rack": "eu-1b", "max.poll.records": 7},
        restore_consumer={"client.rack": "eu-1c"},
    )
    result = host.settings(configured)
    assert result.client_tags == {"zone": "a", "node": "n7", "cluster": "c"}
    assert result.client_settings("main_consumer")["client.rack"] == "eu-1a"
    assert result.client_settings("main_consumer")["max.poll.records"] == 7
    assert result.client_settings("restore_consumer")["client.rack"] == "eu-1c"


@pytest.mark.parametrize(
    ("configured", "expected"),
    [({}, "one"), ({"host": "mine"}, "mine"), ({"zone": "a"}, "one")],
)
def test_host_name_is_a_tag_if_standbys_are_spread_by_host(
    configured: dict[str, str], expected: str
) -> None:
    result = WorkerHost("one").settings(
        config(client_tags=configured, rack_aware_assignment_tags=("host",))
    )
    assert result.client_tags == {**configured, "host": expected}


def test_without_a_folder_a_client_is_a_driver_on_a_host() -> None:
    hosts = [WorkerHost("one", "x"), WorkerHost("one", "y"), WorkerHost("two", "x")]
    ids = {host.process_id_of(driver) for host in hosts for driver in (DRIVER, OTHER)}
    assert len(ids) == 6
    assert WorkerHost("one", "x").process_id_of(DRIVER) in ids


def test_current_host_is_always_the_same() -> None:
    assert WorkerHost.here().process_id_of(DRIVER) == WorkerHost.here().process_id_of(DRIVER)
