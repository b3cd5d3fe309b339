"""The client process of a stream thread: the threads of one driver on one host.

The threads of a client process share a state directory. The leader never assigns a task and its
standby to the same client process. By default, an active task stays on a process that has the
task's state until another process has restored that state.
"""

from __future__ import annotations

import logging
import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millstream.clock import Clock
from millstream.config.streams_config import StreamsConfig
from millstream.runtime.thread_control import ClientJoined
from millstream.state.directories.client_folder import NewProcessId
from millstream.state.directories.disk import Disk
from millstream.state.directories.state_directory import StateDirectory
from millstream.topology.physical.topology import Topology

logger = logging.getLogger(__name__)

#: The environment variable with a host's rack, and the prefix of the variables with its tags. They
#: are not settings, because all hosts share the settings.
RACK_VARIABLE: Final = "MILLSTREAM_CLIENT_RACK"
TAG_VARIABLES: Final = "MILLSTREAM_CLIENT_TAG_"
#: The tag with the host's name, which each host sets if `rack.aware.assignment.tags` contains it.
HOST_TAG: Final = "host"

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class WorkerHost:
    """The host of a stream thread.

    Args:
        name: the name of the host or container.
        boot: the boot id, which distinguishes hosts with the same name and changes with a reboot.
        new_process_id: creates the process id of a client process that has none yet.
    """

    name: str
    boot: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    new_process_id: NewProcessId = uuid.uuid4

    @classmethod
    def here(cls) -> WorkerHost:
        """Return the host of this process."""
        try:
            boot = _BOOT_ID.read_text().strip()
        except OSError:
            # Not on Linux: the name alone identifies the host.
            boot = ""
        return cls(socket.gethostname(), boot, dict(os.environ))

    def settings(self, config: StreamsConfig) -> StreamsConfig:
        """Return the application's settings with the rack and tags of this host."""
        changes: dict[str, object] = {}
        tags = {**self._host_tag(config), **config.client_tags, **self._environment_tags()}
        if tags != config.client_tags:
            changes["client_tags"] = tags
        rack = self.environment.get(RACK_VARIABLE)
        if rack:
            changes["consumer"] = {**config.consumer, "client.rack": rack}
        return config.replace(**changes) if changes else config

    def process_id_of(self, driver: uuid.UUID) -> uuid.UUID:
        """Return the process id for a driver's threads on this host.

        This id is used if no state is on disk.
        """
        return uuid.uuid5(driver, f"{self.name}/{self.boot}")

    def _host_tag(self, config: StreamsConfig) -> dict[str, str]:
        # Only sent if a setting uses it.
        return {HOST_TAG: self.name} if HOST_TAG in config.rack_aware_assignment_tags else {}

    def _environment_tags(self) -> dict[str, str]:
        return {
            name.removeprefix(TAG_VARIABLES).lower(): value
            for name, value in sorted(self.environment.items())
            if name.startswith(TAG_VARIABLES) and name != TAG_VARIABLES and value
        }


@dataclass(frozen=True)
class ThreadIdentity:
    """The identity of a stream thread.

    Args:
        name: `<client id>-StreamThread-<index>`.
        index: the number of the thread, starting at 1.
        driver_id: the process id of the instance's driver. Threads with the same driver id on the
            same host form one client process in the group.
    """

    name: str
    index: int
    driver_id: uuid.UUID

    def transactional_id(self, application_id: str) -> str:
        """Return the id, with which a restarted thread aborts its open transaction."""
        return f"{application_id}-{self.driver_id}-{self.index}"


@dataclass(frozen=True)
class ClientProcess:
    """The process id and the state directory that the threads of one process share."""

    process_id: uuid.UUID
    directory: StateDirectory

    @property
    def joined(self) -> ClientJoined:
        """The report to the driver that the thread has joined this process."""
        folder = self.directory.path if self.directory.is_claimed else None
        return ClientJoined(str(self.process_id), None if folder is None else str(folder))


def join_client(
    topology: Topology,
    config: StreamsConfig,
    identity: ThreadIdentity,
    host: WorkerHost,
    clock: Clock,
    disk: Disk | None,
) -> ClientProcess:
    """Return the client process of a thread, and claim its state directory.

    The directory stays claimed until it is released. Without state on disk, no directory is
    claimed, and the process id is derived from the driver id and the host.

    Raises:
        ConfigError: a store lacks a serde, or the host lacks a variable of `state_dir`.
        LockError: too many instances have threads on this host.
    """
    if not keeps_state_on_disk(topology, config):
        directory = StateDirectory(config.state_dir, config.application_id, disk=disk)
        return ClientProcess(host.process_id_of(identity.driver_id), directory)
    directory = StateDirectory.of_client(
        config.state_dir,
        config.application_id,
        identity.driver_id,
        clock,
        disk,
        new_process_id=host.new_process_id,
    )
    return ClientProcess(directory.process_id(), directory)


def keeps_state_on_disk(topology: Topology, config: StreamsConfig) -> bool:
    """Return whether any store is persistent.

    Raises ConfigError if a store lacks a serde.
    """
    builders = (
        *topology.state_stores.values(),
        *(store.store_builder for store in topology.global_stores.values()),
    )
    return any(builder.resolved(config).persistent for builder in builders)
