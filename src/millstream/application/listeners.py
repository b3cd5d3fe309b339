"""The listeners of restorations and standbys, as an application calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millstream.errors import StreamsError
from millstream.runtime.control import RestoreEvent, RestoreStep
from millstream.unawaited import refuse_deferred_methods


class RestoreCalls:
    """Turns restore events into the calls that a listener knows.

    Args:
        listener: as `set_global_state_restore_listener` takes it.
    """

    def __init__(self, listener: Any) -> None:
        refuse_deferred_methods("set_global_state_restore_listener()", listener, "on_")
        self._listener = listener

    def __call__(self, event: RestoreEvent) -> None:
        listener = self._listener
        if event.step is RestoreStep.START:
            listener.on_restore_start(event.place, event.store, event.offset, event.end_offset)
        elif event.step is RestoreStep.BATCH:
            listener.on_batch_restored(event.place, event.store, event.offset, event.records)
        elif event.step is RestoreStep.END:
            listener.on_restore_end(event.place, event.store, event.records)
        elif hasattr(listener, "on_restore_suspended"):
            listener.on_restore_suspended(event.place, event.store, event.records)


class StandbyCalls:
    """Turns what happens to standbys into the calls that a listener knows.

    Args:
        listener: as `set_standby_update_listener` takes it.
    """

    def __init__(self, listener: Any) -> None:
        refuse_deferred_methods("set_standby_update_listener()", listener, "on_")
        self._listener = listener

    def __call__(self, event: RestoreEvent) -> None:
        listener, place, store = self._listener, event.place, event.store
        if event.step is RestoreStep.STANDBY_START:
            listener.on_update_start(place, store, event.offset)
        elif event.step is RestoreStep.STANDBY_BATCH:
            listener.on_batch_loaded(
                place, store, event.task_id, event.offset, event.records, event.end_offset
            )
        else:
            migrated = event.step is RestoreStep.STANDBY_MIGRATED
            reason = "MIGRATED" if migrated else "PROMOTED"
            listener.on_update_suspended(place, store, event.offset, event.end_offset, reason)


def told(listener: Callable[[RestoreEvent], None], event: RestoreEvent) -> StreamsError | None:
    """Tell a restore or standby listener; what it has failed with, if it has."""
    try:
        listener(event)
    except Exception as error:
        whose = "standby" if event.step.is_of_standby else "restore"
        failure = StreamsError(
            f"The {whose} listener failed on '{event.step.value}' of store '{event.store}': "
            f"{type(error).__name__}: {error}. Correct it, or let it catch what it raises.",
            topic=event.place.topic,
            partition=event.place.partition,
        )
        failure.__cause__ = error
        return failure
    return None
