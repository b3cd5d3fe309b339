"""Which client of the group's leader a stream thread is of.

A client is what shares a folder of state: the threads of one driver on one host. The leader never
gives a task and a copy of it to the same client, and moves no task away from a client that has its
state while another one has not.
"""

from __future__ import annotations

import logging
import uuid
from dataclasses import dataclass

from millstream.clock import Clock
from millstream.config import StreamsConfig
from millstream.runtime.control import ClientJoined
from millstream.runtime.host import Host
from millstream.runtime.thread_identity import ThreadIdentity
from millstream.state.directories.disk import Disk
from millstream.state.directories.state_directory import StateDirectory
from millstream.topology.physical.topology import Topology

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Client:
    """The client that a thread is of.

    Args:
        process_id: by which the group's leader knows it.
        directory: where its state is.
        host: where it is.
    """

    process_id: uuid.UUID
    directory: StateDirectory
    host: Host

    @property
    def joined(self) -> ClientJoined:
        """What the driver is told."""
        folder = self.directory.path if self.directory.is_claimed else None
        return ClientJoined(str(self.process_id), None if folder is None else str(folder))


def join_client(
    topology: Topology,
    config: StreamsConfig,
    identity: ThreadIdentity,
    host: Host,
    clock: Clock,
    disk: Disk | None,
) -> Client:
    """The client of a thread, whose folder is claimed until the directory is released.

    Without any state on disk there is no folder, and the client is known by its driver and host.

    Args:
        topology: what to compute.
        config: settings.
        identity: which thread it is.
        host: where it runs.
        clock: for waiting until others have found their folders.
        disk: what the state directory is on, by default this host's.

    Raises:
        ConfigError: a store lacks a serde, or the host lacks a variable of `state_dir`.
        LockError: too many instances have threads on this host.
    """
    if not keeps_state_on_disk(topology, config):
        directory = StateDirectory(config.state_dir, config.application_id, disk=disk)
        process_id = host.process_id_of(identity.driver_id)
        return Client(process_id, directory, host)
    directory = StateDirectory.of_client(
        config.state_dir,
        config.application_id,
        identity.driver_id,
        clock,
        disk,
        new_process_id=host.new_process_id,
    )
    return Client(directory.process_id(), directory, host)


def keeps_state_on_disk(topology: Topology, config: StreamsConfig) -> bool:
    """Whether any store outlives its process, so that a state directory is needed.

    Raises:
        ConfigError: a store lacks a serde.
    """
    builders = (
        *topology.state_stores.values(),
        *(store.store_builder for store in topology.global_stores.values()),
    )
    return any(builder.resolved(config).persistent for builder in builders)
