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
        driver_id: of the instance: the process id of its driver. Threads with the same one that run
            on one host are one client of the group's leader.
    """

    name: str
    index: int
    driver_id: uuid.UUID

    def transactional_id(self, application_id: str) -> str:
        """Under what the thread writes transactions: the next life of it takes them over, on
        whichever host."""
        return f"{application_id}-{self.driver_id}-{self.index}"
