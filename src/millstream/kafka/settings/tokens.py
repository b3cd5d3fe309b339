"""OAUTHBEARER tokens from a user's function, shared by all clients of a process.

A `TokenSupply` calls the function for a new token well before the old one expires, on a temporary
thread. While the old token is valid, clients wait at most 1 s for the new one, and a failed call is
only logged. Without a valid token, every client fails if the function fails or hangs.
"""

from __future__ import annotations

import copy
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, Final

from millstream.async_checks import deferred_advice, is_deferred
from millstream.clock import Clock, SystemClock
from millstream.errors import AccessDeniedError, ConfigError, StreamsError, summary_of
from millstream.kafka.kafka_python import AbstractTokenProvider
from millstream.kafka.settings.client_credentials import (
    CLIENT_ID,
    CLIENT_SECRET,
    ENDPOINT,
    client_credentials,
)

_log = logging.getLogger(__name__)

#: The setting that contains the function.
SETTING: Final = "sasl.login.callback.handler.class"

#: Returns a token and its lifetime, and optionally a principal and extensions.
TokenFunction = Callable[[], tuple[Any, ...]]

#: Timeout of the function while there is no valid token.
FUNCTION_TIMEOUT_S: Final = 20.0
#: How long a client waits for a new token while the old one is valid.
_REFRESH_WAIT_S: Final = 1.0
#: The fraction of a token's lifetime after which a new token is requested: before librdkafka
#: requests one (0.8), and before both libraries log in again (0.85 to 0.95).
_REFRESH_AFTER: Final = 0.75
#: The minimum time between a failed call and the next one.
_PAUSE_MS: Final = 1_000
#: Larger lifetimes are interpreted as a time since the epoch, as in confluent-kafka's `oauth_cb`.
_EPOCH_FROM_S: Final = 1_000_000_000
#: The default principal and extensions.
_DEFAULTS: Final[tuple[Any, ...]] = ("", {})
_RESULT_FORMAT: Final = (
    "a tuple (token, lifetime in seconds), optionally (..., principal, {extension: value})"
)


@dataclass(frozen=True)
class Token:
    """A token for logins."""

    text: str = field(repr=False)
    expires_at_ms: int
    refresh_at_ms: int
    #: For librdkafka's logs; may be empty.
    principal: str = ""
    #: Sent to the broker with the token.
    extensions: Mapping[str, str] = field(default_factory=dict)


class TokenSupply:
    """Provides a valid token. Thread-safe."""

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
        """The failure of the last call, if any.

        None if a token is valid or no token was requested.
        """
        with self._changed:
            return None if self._is_valid() else self._failure

    def token(self) -> Token:
        """Return a valid token.

        Raises AccessDeniedError if the function failed or did not return in time and no earlier
        token is valid, and ConfigError if the function's result is not a token.
        """
        with self._changed:
            if self._token is not None and self._clock.now_ms() < self._token.refresh_at_ms:
                return self._token
            if not self._calling and self._may_call():
                self._calling = True
                self._called_at_ms = self._clock.monotonic_ms()
                threading.Thread(target=self._refresh, name="millstream-token", daemon=True).start()
            wait_s = _REFRESH_WAIT_S if self._is_valid() else self._timeout_s
            self._changed.wait_for(lambda: not self._calling, wait_s)
            if self._token is not None and self._is_valid():
                return self._token
            if self._calling:
                self._failure = self._timeout_error()
            assert self._failure is not None
            # A copy, so each call raises an error with its own traceback.
            failure = copy.copy(self._failure)
            failure.__cause__ = self._failure.__cause__
            raise failure

    def _is_valid(self) -> bool:
        return self._token is not None and self._clock.now_ms() < self._token.expires_at_ms

    def _may_call(self) -> bool:
        return self._failure is None or self._clock.monotonic_ms() >= self._called_at_ms + _PAUSE_MS

    def _refresh(self) -> None:
        token: Token | None = None
        failure: StreamsError | None = None
        try:
            token = _checked(self._function(), self._function, self._clock.now_ms())
        except StreamsError as error:
            failure = error
        except BaseException as error:
            # Also SystemExit and similar exceptions, which would otherwise be lost on this thread.
            failure = AccessDeniedError(
                f"There is no token to log in with: {function_name(self._function)}, configured as "
                f"{SETTING}, raised {summary_of(error)}. Check the function and its token service."
            )
            failure.__cause__ = error
        with self._changed:
            self._calling = False
            self._failure = failure
            if token is not None:
                self._token = token
            elif self._is_valid():
                _log.warning("The token could not be renewed, retrying: %s", failure)
            self._changed.notify_all()

    def _timeout_error(self) -> StreamsError:
        waited_s = (self._clock.monotonic_ms() - self._called_at_ms) / 1_000
        return AccessDeniedError(
            f"There is no token to log in with: {function_name(self._function)}, configured as "
            f"{SETTING}, has not returned for {waited_s:.0f} s. Make sure that it "
            "returns or raises in time, for example with a timeout for its requests."
        )


@lru_cache(maxsize=16)
def _shared_supply(function: TokenFunction) -> TokenSupply:
    return TokenSupply(function)


def token_supply(values: Mapping[str, Any]) -> TokenSupply:
    """Return the supply that all clients of a process share, or raise ConfigError."""
    function = values.get(SETTING)
    if not callable(function):
        function = client_credentials(values, java_handler=function)
    if function is None:
        raise ConfigError(
            f"sasl.mechanism=OAUTHBEARER needs {SETTING}: a Python function without arguments that "
            f"returns {_RESULT_FORMAT}. Or configure an OpenID provider with {ENDPOINT}, "
            f"{CLIENT_ID} and {CLIENT_SECRET}."
        )
    if is_deferred(function):
        raise ConfigError(f"{SETTING}: " + deferred_advice(function_name(function), function))
    try:
        return _shared_supply(function)
    except TypeError:
        # An unhashable object: each client gets its own supply.
        return TokenSupply(function)


class LibrdkafkaTokens:
    """confluent-kafka's `oauth_cb`, which librdkafka calls on its own thread."""

    def __init__(self, supply: TokenSupply) -> None:
        self.supply = supply

    def __call__(self, _: str) -> tuple[str, float, str, dict[str, str]]:
        token = self.supply.token()
        return token.text, token.expires_at_ms / 1_000, token.principal, dict(token.extensions)


class KafkaPythonTokens(AbstractTokenProvider):  # type: ignore[misc]  # untyped
    def __init__(self, supply: TokenSupply) -> None:
        super().__init__()
        self.supply = supply
        self._extensions: Mapping[str, str] = {}

    def token(self) -> str:
        token = self.supply.token()
        self._extensions = token.extensions
        return token.text

    #: The extensions of the token that was returned last.
    def extensions(self) -> dict[str, str]:
        return dict(self._extensions)


def function_name(function: object) -> str:
    """Return the name of a function or of an object's class.

    The repr is not used, because it may contain a secret.
    """
    while isinstance(function, partial):
        function = function.func
    return str(getattr(function, "__qualname__", type(function).__qualname__))


def _checked(returned: Any, function: TokenFunction, now_ms: int) -> Token:
    # The result contains a secret, so messages only name the types of its items.
    if not isinstance(returned, tuple | list) or not 2 <= len(returned) <= 4:
        raise _invalid_token_error(function, f"an invalid value of type {type(returned).__name__}")
    given = tuple(returned)
    text, lifetime, principal, extensions = given + _DEFAULTS[len(given) - 2 :]
    is_number = isinstance(lifetime, int | float) and not isinstance(lifetime, bool)
    if not isinstance(text, str) or not text or not is_number:
        kinds = ", ".join(type(each).__name__ for each in given)
        raise _invalid_token_error(function, f"({kinds})" if text else "an empty token")
    if not isinstance(extensions or {}, Mapping):
        raise _invalid_token_error(function, f"extensions of type {type(extensions).__name__}")
    lifetime_ms = int(lifetime * 1_000)
    if lifetime >= _EPOCH_FROM_S:
        lifetime_ms -= now_ms
    if lifetime_ms <= 0:
        raise AccessDeniedError(
            f"The token of {function_name(function)}, configured as {SETTING}, expired "
            f"{-lifetime_ms} ms before it was returned. The function must return {_RESULT_FORMAT}."
        )
    return Token(
        text,
        now_ms + lifetime_ms,
        now_ms + int(lifetime_ms * _REFRESH_AFTER),
        str(principal or ""),
        {str(name): str(value) for name, value in (extensions or {}).items()},
    )


def _invalid_token_error(function: TokenFunction, instead: str) -> ConfigError:
    return ConfigError(
        f"{function_name(function)}, configured as {SETTING}, returned {instead}. It must return "
        f"{_RESULT_FORMAT}."
    )
