"""Which thread of which instance a stream thread is."""

from __future__ import annotations

import uuid
from dataclasses import dataclass


@dataclass(frozen=True)
class ThreadIdentity:
    """Which stream thread of which application instance.

    Args:
        name: `<client id>-StreamThread-<index>`.
        index: from 1.
        process_id: of the instance; threads with the same one share a state directory on a host.
    """

    name: str
    index: int
    process_id: uuid.UUID

    def transactional_id(self, application_id: str) -> str:
        """Under what the thread writes transactions: the next life of it takes them over."""
        return f"{application_id}-{self.process_id}-{self.index}"
