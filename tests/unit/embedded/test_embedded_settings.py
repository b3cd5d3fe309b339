"""Settings of the embedded broker: defaults, user settings, and identity."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

import pytest

from millstream.embedded.broker_home import bootstrap_checkpoint
from millstream.embedded.broker_security import BrokerSecurity
from millstream.embedded.broker_settings import (
    Ports,
    kafka_uuid,
    meta_properties,
    replication,
    server_properties,
)
from millstream.errors import ConfigError


def properties_file(
    properties: Mapping[str, str | int | bool], security: BrokerSecurity | None = None
) -> str:
    security = security or BrokerSecurity()
    ports = Ports(20_001, 20_002, 20_003 if security.is_secured else 20_001)
    return server_properties(ports=ports, log_dir="logs", properties=properties, security=security)


def parsed(
    security: BrokerSecurity | None = None, /, **properties: str | int | bool
) -> dict[str, str]:
    dotted = {name.replace("_", "."): value for name, value in properties.items()}
    return dict(line.split("=", 1) for line in properties_file(dotted, security).splitlines())


def test_the_broker_listens_on_the_loopback_interface_only() -> None:
    """Servers started for tests must not be reachable from other machines."""
    settings = parsed()
    addresses = settings["listeners"] + settings["advertised.listeners"]
    assert addresses.count("//127.0.0.1:") == addresses.count("//") == 3


def test_clients_can_connect_through_a_proxy() -> None:
    """The proxy forwards to the clients' port. The broker connects to itself directly."""
    ports = Ports(20_001, 20_002, 20_003, advertised=20_004)
    text = server_properties(ports=ports, log_dir="logs", properties={}, security=BrokerSecurity())
    settings = dict(line.split("=", 1) for line in text.splitlines())
    own = "DIRECT://127.0.0.1:20003"
    assert settings["advertised.listeners"] == f"PLAINTEXT://127.0.0.1:20004,{own}"
    assert settings["listeners"].startswith(f"PLAINTEXT://127.0.0.1:20001,{own},")
    assert settings["inter.broker.listener.name"] == "DIRECT"
    assert "DIRECT:PLAINTEXT" in settings["listener.security.protocol.map"]
    assert ports.all == [20_001, 20_002, 20_003]


def test_only_the_client_listener_is_reachable_from_other_hosts() -> None:
    """The unsecured and the controller listeners stay on the loopback interface."""
    secured = BrokerSecurity("SSL", {})
    for security, own_port in ((BrokerSecurity(), 20_001), (secured, 20_003)):
        ports = Ports(20_001, 20_002, own_port, host="10.0.0.7")
        text = server_properties(ports=ports, log_dir="logs", properties={}, security=security)
        settings = dict(line.split("=", 1) for line in text.splitlines())
        advertised = settings["advertised.listeners"].split(",")
        assert advertised[0] == f"{security.protocol}://10.0.0.7:20001"
        listeners = settings["listeners"].split(",")
        assert [each for each in listeners if "10.0.0.7" in each] == advertised[:1]
        assert ports.unsecured_host == ("127.0.0.1" if security is secured else "10.0.0.7")
        assert (ports.host_of(20_001), ports.host_of(20_002)) == ("10.0.0.7", "127.0.0.1")


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_the_secured_listener_is_separate_from_that_of_the_broker(protocol: str) -> None:
    """Clients use the secured listener; the broker connects to itself without security."""
    users = {"ann": 'a\\"b'} if protocol.startswith("SASL") else {}
    settings = parsed(BrokerSecurity(protocol, users))
    clients, own = f"{protocol}://127.0.0.1:20001", "PLAINTEXT://127.0.0.1:20003"
    assert settings["advertised.listeners"] == f"{clients},{own}"
    assert settings["inter.broker.listener.name"] == "PLAINTEXT"
    assert f"{protocol}:{protocol}," in settings["listener.security.protocol.map"]
    assert ("ssl.keystore.location" in settings) == protocol.endswith("SSL")
    if users:
        line = settings[f"listener.name.{protocol.lower()}.plain.sasl.jaas.config"]
        # Escaped for JAAS, and again for the properties file.
        assert line.endswith(r'required user_ann\="a\\\\\\"b";')


@pytest.mark.parametrize(
    ("protocol", "users", "message"),
    [
        ("SASL_SLL", {"ann": "x"}, "Did you mean 'SASL_SSL'"),
        ("SASL_SSL", {}, 'users={"alice": "secret"}'),
        ("SSL", {"ann": "x"}, "choose SASL_SSL"),
        ("SASL_SSL", {"ann lee": "x"}, "'ann lee' is not a valid user name"),
    ],
)
def test_invalid_security_settings_are_rejected(
    protocol: str, users: dict[str, str], message: str
) -> None:
    """Before anything starts. The error suggests a valid setting."""
    with pytest.raises(ConfigError, match=re.escape(message)):
        BrokerSecurity(protocol, users)


def test_every_replication_factor_is_one() -> None:
    """With other factors, a single node could not create its internal topics."""
    settings = parsed()
    factors = {name: value for name, value in settings.items() if "replication.factor" in name}
    in_sync = {name: value for name, value in settings.items() if "min.isr" in name}
    assert len(factors) == 4
    assert set(factors.values()) == {"1"}
    assert set(in_sync.values()) == {"1"}


def test_records_with_any_timestamp_are_kept() -> None:
    """Old records are not deleted and future ones not rejected, because tests use artificial
    timestamps."""
    settings = parsed()
    assert settings["log.retention.ms"] == "-1"
    assert int(settings["log.message.timestamp.after.max.ms"]) == 2**63 - 1


def test_properties_override_the_defaults() -> None:
    """Including numbers and booleans."""
    settings = parsed(
        auto_create_topics_enable=True, group_initial_rebalance_delay_ms=250, num_partitions="3"
    )
    assert settings["auto.create.topics.enable"] == "true"
    assert settings["group.initial.rebalance.delay.ms"] == "250"
    assert settings["num.partitions"] == "3"


@pytest.mark.parametrize("name", ["listeners", "log_dirs", "node_id", "process_roles"])
def test_managed_settings_cannot_be_changed(name: str) -> None:
    """These settings are needed to start, stop and restart the broker. The error names them."""
    with pytest.raises(ConfigError, match=f"sets {name.replace('_', '.')} itself"):
        parsed(**{name: "x"})


def test_values_are_escaped_for_java() -> None:
    """A value with a backslash or a line break remains one setting."""
    text = properties_file({"a": "C:\\x\nb=c"})
    assert "a=C:\\\\x\\nb\\=c\n" in text


def test_every_broker_has_its_own_cluster_id() -> None:
    """The readiness check recognizes the broker by its cluster id."""
    one, other = kafka_uuid(), kafka_uuid()
    assert one != other
    assert len(one) == 22
    assert f"cluster.id={one}\n" in meta_properties(one)


def test_nodes_of_a_cluster_share_its_id_and_list_all_controllers() -> None:
    """Each node has its own id and directory, and lists the whole quorum."""
    one, other = meta_properties("c", 1), meta_properties("c", 2)
    assert "node.id=1\n" in one
    assert "node.id=2\n" in other
    assert one.splitlines()[-1] != other.splitlines()[-1]
    text = server_properties(
        ports=Ports(20_001, 20_002, 20_001),
        log_dir="logs",
        properties={},
        security=BrokerSecurity(),
        node_id=2,
        controllers={1: 20_010, 2: 20_002, 3: 20_030},
    )
    settings = dict(line.split("=", 1) for line in text.splitlines())
    assert settings["node.id"] == "2"
    quorum = "1@127.0.0.1:20010,2@127.0.0.1:20002,3@127.0.0.1:20030"
    assert settings["controller.quorum.voters"] == quorum


@pytest.mark.parametrize(
    ("brokers", "replicas", "in_sync"), [(1, "1", "1"), (2, "2", "1"), (3, "3", "2"), (5, "3", "2")]
)
def test_one_of_several_brokers_may_fail(brokers: int, replicas: str, in_sync: str) -> None:
    """All topics, including internal ones, have three replicas, two of which must be in sync."""
    settings = replication(brokers)
    factors = {value for name, value in settings.items() if "replication.factor" in name}
    minimum = {value for name, value in settings.items() if "replication.factor" not in name}
    assert (factors, minimum) == ({replicas}, {in_sync})


def test_the_checkpoint_enables_the_features_of_this_version() -> None:
    """The shipped file is a log of record batches that lists all features of a 4.3 cluster.

    Without it, the broker would start with the metadata version only, without new consumer groups.
    """
    data = bootstrap_checkpoint()
    batches = 0
    position = 0
    while position < len(data):
        (length,) = struct.unpack_from(">i", data, position + 8)
        position += 12 + length
        batches += 1
    assert position == len(data)
    assert batches == 3
    features = ("metadata", "eligible.leader.replicas", "group", "share", "streams", "transaction")
    for feature in features:
        assert f"{feature}.version".encode() in data
