"""What a stream thread knows of the host where it runs."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from millstream.config import StreamsConfig
from millstream.state.directories.process_id import NewProcessId

#: The variables by which a host says what it is: the settings are the same for all hosts.
RACK_VARIABLE: Final = "MILLSTREAM_CLIENT_RACK"
TAG_VARIABLES: Final = "MILLSTREAM_CLIENT_TAG_"
#: The tag that each host knows by itself.
HOST_TAG: Final = "host"

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


@dataclass(frozen=True)
class Host:
    """A host as its threads see it.

    Args:
        name: its host name; in a container the container's.
        boot: tells hosts of one name apart; another one after a reboot.
        environment: its variables.
        new_process_id: makes the process id of a client that has none yet.
    """

    name: str
    boot: str = ""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    new_process_id: NewProcessId = uuid.uuid4

    @classmethod
    def here(cls) -> Host:
        """The one on which this process runs."""
        try:
            boot = _BOOT_ID.read_text().strip()
        except OSError:
            # Another system than Linux: there the name has to do.
            boot = ""
        return cls(socket.gethostname(), boot, dict(os.environ))

    def settings(self, config: StreamsConfig) -> StreamsConfig:
        """The settings as they hold on this host, which knows its own rack and tags best.

        Args:
            config: those of the application.
        """
        changes: dict[str, object] = {}
        tags = {**self._known_tags(config), **config.client_tags, **self._given_tags()}
        if tags != config.client_tags:
            changes["client_tags"] = tags
        rack = self.environment.get(RACK_VARIABLE)
        if rack:
            changes["consumer"] = {**config.consumer, "client.rack": rack}
        return config.replace(**changes) if changes else config

    def process_id_of(self, driver: uuid.UUID) -> uuid.UUID:
        """The process id of a driver's threads here that keep nothing on disk."""
        return uuid.uuid5(driver, f"{self.name}/{self.boot}")

    def _known_tags(self, config: StreamsConfig) -> dict[str, str]:
        # Sent only where somebody asks for it.
        return {HOST_TAG: self.name} if HOST_TAG in config.rack_aware_assignment_tags else {}

    def _given_tags(self) -> dict[str, str]:
        return {
            name.removeprefix(TAG_VARIABLES).lower(): value
            for name, value in sorted(self.environment.items())
            if name.startswith(TAG_VARIABLES) and name != TAG_VARIABLES and value
        }
