"""Tokens of a user's function, for OAUTHBEARER: one supply for all clients of a process.

A supply asks the function for a new token well before the old one runs out, on a thread that lives
for this call only. As long as the old token is good nobody waits for the new one, and a call that
fails is a line in the log. Without a good token, a function that fails or hangs is an error that
every client is told.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final

from millstream.clock import Clock, SystemClock
from millstream.errors import AccessDeniedError, ConfigError, StreamsError, summary_of
from millstream.kafka.kafka_python import AbstractTokenProvider
from millstream.kafka.settings.client_credentials import (
    CLIENT_ID,
    CLIENT_SECRET,
    ENDPOINT,
    client_credentials,
)
from millstream.unawaited import deferred_advice, is_deferred

_log = logging.getLogger(__name__)

#: The setting that takes the function.
SETTING: Final = "sasl.login.callback.handler.class"

#: Gives a token and its lifetime, and perhaps a principal, and perhaps extensions.
TokenFunction = Callable[[], tuple[Any, ...]]

#: How long a function may take when nobody can log in without it.
FUNCTION_TIMEOUT_S: Final = 20.0
#: How long a client waits for a new token while the old one would do.
_PATIENCE_S: Final = 1.0
#: A new token is asked for after this part of the old one's life: before librdkafka asks for one
#: (0.8), and both libraries log in anew (0.85 to 0.95).
_REFRESH_AFTER: Final = 0.75
#: The least time between a call that failed and the next.
_PAUSE_MS: Final = 1_000
#: A lifetime as long as this one is none, but a time: confluent-kafka's `oauth_cb` has it so.
_EPOCH_FROM_S: Final = 1_000_000_000
#: The principal and the extensions of a function that says nothing of them.
_LEFT_OUT: Final[tuple[Any, ...]] = ("", {})
_WHAT_IT_RETURNS: Final = (
    "a tuple (token, lifetime in seconds), and if need be (..., principal, {extension: value})"
)


@dataclass(frozen=True)
class Token:
    """What a login is made with.

    Args:
        text: the token.
        expires_at_ms: milliseconds since the epoch from when it is good no longer.
        refresh_at_ms: from when another is asked for.
        principal: whom it names, for logs of librdkafka; may be empty.
        extensions: what is sent to the broker beside it.
    """

    text: str = field(repr=False)
    expires_at_ms: int
    refresh_at_ms: int
    principal: str = ""
    extensions: Mapping[str, str] = field(default_factory=dict)


class TokenSupply:
    """Keeps a token that is good. Thread-safe.

    Args:
        function: gives tokens.
        clock: the time, which tokens are compared with.
        timeout_s: how long the function may take when there is no good token.
    """

    def __init__(
        self,
        function: TokenFunction,
        clock: Clock | None = None,
        timeout_s: float = FUNCTION_TIMEOUT_S,
    ) -> None:
        self._function = function
        self._clock = clock or SystemClock()
        self._timeout_s = timeout_s
        self._changed = threading.Condition()
        self._token: Token | None = None
        self._failure: StreamsError | None = None
        self._calling = False
        self._called_at_ms = 0

    @property
    def failure(self) -> StreamsError | None:
        """Why there is no good token; None if there is one, or nobody has asked for one."""
        with self._changed:
            return None if self._good() else self._failure

    def token(self) -> Token:
        """A token that is good for a while.

        Raises:
            AccessDeniedError: the function failed or did not return in time, and there is no good
                token of an earlier call.
            ConfigError: what it returned is no token.
        """
        with self._changed:
            if not self._is_due():
                assert self._token is not None
                return self._token
            if not self._calling and self._may_call():
                self._call()
            patience_s = _PATIENCE_S if self._good() else self._timeout_s
            self._changed.wait_for(lambda: not self._calling, patience_s)
            if self._token is not None and self._good():
                return self._token
            if self._calling:
                self._failure = self._hangs()
            assert self._failure is not None
            # At each call an error of its own, with a traceback of its own.
            failure = copy.copy(self._failure)
            failure.__cause__ = self._failure.__cause__
            raise failure

    def _good(self) -> bool:
        return self._token is not None and self._clock.now_ms() < self._token.expires_at_ms

    def _is_due(self) -> bool:
        return self._token is None or self._clock.now_ms() >= self._token.refresh_at_ms

    def _may_call(self) -> bool:
        return self._failure is None or self._clock.monotonic_ms() >= self._called_at_ms + _PAUSE_MS

    def _call(self) -> None:
        self._calling = True
        self._called_at_ms = self._clock.monotonic_ms()
        threading.Thread(target=self._refresh, name="millstream-token", daemon=True).start()

    def _refresh(self) -> None:
        token: Token | None = None
        failure: StreamsError | None = None
        try:
            token = _checked(self._function(), self._function, self._clock.now_ms())
        except StreamsError as error:
            failure = error
        except BaseException as error:
            # Also SystemExit and the like: nobody else would hear of it on this thread.
            failure = AccessDeniedError(
                f"There is no token to log in with: {function_name(self._function)}, given as "
                f"{SETTING}, raised {summary_of(error)}. Correct it, or what it asks."
            )
            failure.__cause__ = error
        with self._changed:
            self._calling = False
            self._failure = failure
            if token is not None:
                self._token = token
            elif self._good():
                _log.warning("The token is not renewed yet, trying again: %s", failure)
            self._changed.notify_all()

    def _hangs(self) -> StreamsError:
        waited_s = (self._clock.monotonic_ms() - self._called_at_ms) / 1_000
        return AccessDeniedError(
            f"There is no token to log in with: {function_name(self._function)}, given as "
            f"{SETTING}, has not returned for {waited_s:.0f} s. Let it give up by itself, for "
            "example with a timeout for what it asks."
        )


@lru_cache(maxsize=16)
def _shared_supply(function: TokenFunction) -> TokenSupply:
    return TokenSupply(function)


def token_supply(values: Mapping[str, Any]) -> TokenSupply:
    """The supply of the function that the settings name: the same for all clients of a process.

    Args:
        values: the client's settings under Kafka's names.

    Raises:
        ConfigError: there is none, or it is asynchronous.
    """
    function = values.get(SETTING)
    if not callable(function):
        function = client_credentials(values, java_handler=function)
    if function is None:
        raise ConfigError(
            f"sasl.mechanism=OAUTHBEARER needs {SETTING}: a Python function without arguments that "
            f"returns {_WHAT_IT_RETURNS}. Or name an OpenID provider: {ENDPOINT}, "
            f"{CLIENT_ID} and {CLIENT_SECRET}."
        )
    if is_deferred(function):
        raise ConfigError(f"{SETTING}: " + deferred_advice(function_name(function), function))
    try:
        return _shared_supply(function)
    except TypeError:
        # An object that cannot be hashed: each client asks it.
        return TokenSupply(function)


class LibrdkafkaTokens:
    """confluent-kafka's `oauth_cb`, which librdkafka calls on a thread of its own.

    Args:
        supply: where tokens come from.
    """

    def __init__(self, supply: TokenSupply) -> None:
        self.supply = supply

    def __call__(self, _: str) -> tuple[str, float, str, dict[str, str]]:
        token = self.supply.token()
        return token.text, token.expires_at_ms / 1_000, token.principal, dict(token.extensions)


class KafkaPythonTokens(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python is not typed
    """kafka-python's provider of tokens.

    Args:
        supply: where tokens come from.
    """

    def __init__(self, supply: TokenSupply) -> None:
        super().__init__()
        self.supply = supply
        self._extensions: Mapping[str, str] = {}

    def token(self) -> str:
        """A token that is still good for a while."""
        token = self.supply.token()
        self._extensions = token.extensions
        return token.text

    def extensions(self) -> dict[str, str]:
        """Those of the token that was handed out last."""
        return dict(self._extensions)


def function_name(function: object) -> str:
    """What a function calls itself, and of an object its class: its repr may tell a secret."""
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _checked(returned: Any, function: TokenFunction, now_ms: int) -> Token:
    """What the function returned, as a token."""
    # What it returned holds a secret: only its types are told.
    if not isinstance(returned, tuple | list) or not 2 <= len(returned) <= 4:
        raise _no_token(function, f"a {type(returned).__name__}")
    given = tuple(returned)
    text, lifetime, principal, extensions = given + _LEFT_OUT[len(given) - 2 :]
    is_number = isinstance(lifetime, int | float) and not isinstance(lifetime, bool)
    if not isinstance(text, str) or not text or not is_number:
        kinds = ", ".join(type(each).__name__ for each in given)
        raise _no_token(function, f"({kinds})" if text else "an empty token")
    if not isinstance(extensions or {}, Mapping):
        raise _no_token(function, f"extensions of type {type(extensions).__name__}")
    lifetime_ms = int(lifetime * 1_000)
    if lifetime >= _EPOCH_FROM_S:
        lifetime_ms -= now_ms
    if lifetime_ms <= 0:
        raise AccessDeniedError(
            f"The token of {function_name(function)}, given as {SETTING}, ran out "
            f"{-lifetime_ms} ms before it was returned. It must return {_WHAT_IT_RETURNS}."
        )
    return Token(
        text,
        now_ms + lifetime_ms,
        now_ms + int(lifetime_ms * _REFRESH_AFTER),
        str(principal or ""),
        {str(name): str(value) for name, value in (extensions or {}).items()},
    )


def _no_token(function: TokenFunction, instead: str) -> ConfigError:
    return ConfigError(
        f"{function_name(function)}, given as {SETTING}, returned {instead}. It must return "
        f"{_WHAT_IT_RETURNS}."
    )
