"""Whether an application can be asked for its state now."""

from __future__ import annotations

from typing import Final

from millstream.errors import IllegalStateError, StreamsNotStartedError, StreamsStoppedError
from millstream.runtime.states import ClientState

_LIVE: Final = frozenset({ClientState.RUNNING, ClientState.REBALANCING})


def check_is_live(state: ClientState) -> None:
    """Whether views and metadata can be asked for.

    Args:
        state: of the application.

    Raises:
        StreamsNotStartedError: not yet.
        IllegalStateError: not any more.
    """
    _check_started(state)
    if state not in _LIVE:
        raise IllegalStateError(f"KafkaStreams is not running. State is {state.name}.")


def check_takes_requests(state: ClientState) -> None:
    """Whether requests are answered. Follows Kafka Streams, where these raise something else.

    Args:
        state: of the application.

    Raises:
        StreamsNotStartedError: not yet.
        StreamsStoppedError: not any more.
    """
    _check_started(state)
    if state not in _LIVE:
        raise StreamsStoppedError(
            f"The application is {state.name}: it answers no queries any more."
        )


def _check_started(state: ClientState) -> None:
    if state is ClientState.CREATED:
        raise StreamsNotStartedError(
            "The application has not been started; ask again after calling start()."
        )
