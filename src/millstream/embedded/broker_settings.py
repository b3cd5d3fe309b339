"""The settings of the embedded brokers.

The brokers form a small development cluster that starts quickly.
"""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from millstream.embedded.broker_security import BrokerSecurity
from millstream.errors import ConfigError

LOOPBACK = "127.0.0.1"
FIRST_NODE_ID = 1

# Settings of the broker's identity and addresses, which are not allowed in `properties`.
_OWN = frozenset(
    {
        "advertised.listeners",
        "broker.id",
        "controller.listener.names",
        "controller.quorum.bootstrap.servers",
        "controller.quorum.voters",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "listeners",
        "log.dir",
        "log.dirs",
        "metadata.log.dir",
        "node.id",
        "process.roles",
    }
)

#: The differences from a broker's defaults; `properties` of `EmbeddedKafka` may override them.
DEVELOPMENT_DEFAULTS: Mapping[str, str] = {
    # A misspelled topic name must cause an error, not create a topic.
    "auto.create.topics.enable": "false",
    # Each partition needs files; the defaults are 50.
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    # The first member of a group does not wait for others. Clients may set session timeouts from
    # 1 s, so that lost members are detected quickly.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    # After a crash, the node waits for the end of its previous session. The default is 9 s.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    # Records may have any timestamp and are not deleted.
    "log.retention.ms": "-1",
    "log.message.timestamp.before.max.ms": "9223372036854775807",
    "log.message.timestamp.after.max.ms": "9223372036854775807",
    # The default is 128 MiB, too much for a small heap.
    "log.cleaner.dedupe.buffer.size": "8388608",
}


#: The maximum replication factor: Kafka's recommendation for production. Smaller clusters have
#: fewer replicas.
_MAX_REPLICAS = 3


@dataclass(frozen=True)
class Ports:
    """The ports of one broker.

    Only the clients' port can be on an interface other than loopback.
    """

    clients: int
    controller: int
    #: For the broker itself and for `EmbeddedKafka`, if the clients' listener is secured or behind
    #: a proxy. Otherwise, the same as `clients`.
    unsecured: int
    #: The port that is advertised to clients, if it differs from `clients`.
    advertised: int | None = None
    #: The host for clients, which is also advertised.
    host: str = LOOPBACK

    @property
    def effective_advertised(self) -> int:
        return self.clients if self.advertised is None else self.advertised

    @property
    def unsecured_host(self) -> str:
        """The host of the unsecured port.

        This is the loopback address, unless the clients' port is also unsecured.
        """
        return self.host if self.unsecured == self.clients else LOOPBACK

    @property
    def all(self) -> list[int]:
        return sorted({self.clients, self.controller, self.unsecured})

    def host_of(self, port: int) -> str:
        """Return the address on which the broker listens at a port."""
        return self.host if port == self.clients else LOOPBACK


def replication(brokers: int) -> Mapping[str, str]:
    """Return the replication settings.

    There are up to three replicas. With two or more, writes continue if one of them fails.
    """
    replicas = str(min(brokers, _MAX_REPLICAS))
    in_sync = str(max(1, min(brokers, _MAX_REPLICAS) - 1))
    return {
        "default.replication.factor": replicas,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        "min.insync.replicas": in_sync,
    }


def server_properties(
    *,
    ports: Ports,
    log_dir: str,
    properties: Mapping[str, str | int | bool],
    security: BrokerSecurity,
    node_id: int = FIRST_NODE_ID,
    controllers: Mapping[int, int] | None = None,
) -> str:
    """Return a broker's server.properties.

    Raises ConfigError for forbidden `properties`.
    """
    controllers = controllers or {node_id: ports.controller}
    rejected = sorted(_OWN.intersection(properties))
    if rejected:
        raise ConfigError(
            f"EmbeddedKafka sets {', '.join(rejected)} itself. Entries in `properties` cannot "
            "override this: remove them (the port is a separate argument)."
        )
    own = "PLAINTEXT" if ports.advertised is None else "DIRECT"
    clients = (ports.host, ports.clients)
    listeners = {security.protocol: clients, own: (ports.unsecured_host, ports.unsecured)}
    by_proxy = (
        {}
        if ports.advertised is None
        else {security.protocol: (ports.host, ports.effective_advertised)}
    )
    protocols = {security.protocol: security.protocol, own: "PLAINTEXT"}
    settings = {
        "process.roles": "broker,controller",
        "node.id": str(node_id),
        "controller.quorum.voters": ",".join(
            f"{voter}@{LOOPBACK}:{port}" for voter, port in controllers.items()
        ),
        "listeners": _addresses({**listeners, "CONTROLLER": (LOOPBACK, ports.controller)}),
        "advertised.listeners": _addresses(listeners | by_proxy),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": ",".join(
            f"{name}:{protocol}"
            for name, protocol in {**protocols, "CONTROLLER": "PLAINTEXT"}.items()
        ),
        "inter.broker.listener.name": own,
        "log.dirs": log_dir,
        **DEVELOPMENT_DEFAULTS,
        **replication(len(controllers)),
        **security.server_properties(),
        **{name: _text(value) for name, value in properties.items()},
    }
    return "".join(f"{_escaped(name)}={_escaped(value)}\n" for name, value in settings.items())


def meta_properties(cluster_id: str, node_id: int = FIRST_NODE_ID) -> str:
    """Return the meta.properties that format a folder as the log directory of a node."""
    return f"version=1\nnode.id={node_id}\ncluster.id={cluster_id}\ndirectory.id={kafka_uuid()}\n"


def logging_properties() -> str:
    """Return Log4j's settings: warnings and errors on standard output."""
    return (
        "status=error\n"
        "appender.out.type=Console\n"
        "appender.out.name=out\n"
        "appender.out.layout.type=PatternLayout\n"
        "appender.out.layout.pattern=%d{HH:mm:ss.SSS} %p %c{1} %m%n\n"
        "rootLogger.level=WARN\n"
        "rootLogger.appenderRef.out.ref=out\n"
    )


def _addresses(listeners: Mapping[str, tuple[str, int]]) -> str:
    return ",".join(f"{name}://{host}:{port}" for name, (host, port) in listeners.items())


def _text(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escaped(text: str) -> str:
    # Settings only need these of the escapes in Java's properties files.
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("=", "\\=")


def kafka_uuid() -> str:
    """Create a UUID in Kafka's format.

    The format is unpadded URL-safe base64, without a leading dash.
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
