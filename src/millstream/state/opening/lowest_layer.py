"""The lowest writable layer of a store: RocksDB below uncommitted writes, or memory."""

from __future__ import annotations

import logging

from millstream.state.opening.environment import StoreEnvironment
from millstream.state.storage.bytes_store import CommittableStore, Storage
from millstream.state.storage.memory import MemoryStore
from millstream.state.storage.overlay import OverlayStore

logger = logging.getLogger(__name__)


def open_base(name: str, persistent: bool, environment: StoreEnvironment) -> CommittableStore:
    """The lowest writable layer of a store.

    Args:
        name: the store's name.
        persistent: whether the data survives its process.
        environment: of its task.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
    """
    return open_overlay(name, environment) if persistent else MemoryStore()


def open_overlay(name: str, environment: StoreEnvironment) -> OverlayStore:
    """The lowest writable layer of a persistent store; see `open_base`."""
    return OverlayStore(open_storage(name, environment), environment.write_check)


def open_storage(name: str, environment: StoreEnvironment) -> Storage:
    """What keeps the committed data of a persistent store; emptied if it cannot be trusted.

    Args:
        name: the store's name.
        environment: of its task.

    Raises:
        TaskCorruptedError: what is on disk cannot be read.
    """
    place = (name, environment.directory / "rocksdb" / name, environment.task_id)
    storage = environment.storages.open(*place)
    storage.on_failure = environment.failures.note
    why = _why_not_trusted(storage, environment)
    if why is None:
        return storage
    logger.info(
        "task %s: store %s is rebuilt from its changelog: %s", environment.task_id, name, why
    )
    storage.close()
    environment.storages.destroy(*place)
    storage = environment.storages.open(*place)
    storage.on_failure = environment.failures.note
    return storage


def _why_not_trusted(storage: Storage, environment: StoreEnvironment) -> str | None:
    if environment.restored_from is None:
        return None
    if storage.committed_offset(environment.restored_from) is None and not storage.is_empty():
        # Restoring above it would keep keys whose deletion has left the compacted changelog.
        return f"it holds data, but not how far it got in {environment.restored_from}"
    return None
