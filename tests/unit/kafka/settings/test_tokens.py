"""`TokenSupply`: renewal of tokens, and errors if there are none."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from support.waiting import wait_for

from millstream.clock import ManualClock
from millstream.errors import AccessDeniedError, ConfigError
from millstream.kafka.settings.tokens import (
    SETTING,
    KafkaPythonTokens,
    LibrdkafkaTokens,
    TokenSupply,
    function_name,
    token_supply,
)

SECRET = "s3cret"


class Tokens:
    """A token function that returns t1, t2, ..., each valid for 100 s, or fails."""

    def __init__(self) -> None:
        self.calls = 0
        self.fails: Exception | None = None
        self.may_return = threading.Event()
        self.may_return.set()

    def __call__(self) -> tuple[Any, ...]:
        self.calls += 1
        assert self.may_return.wait(30)
        if self.fails is not None:
            raise self.fails
        return f"t{self.calls}", 100


@contextmanager
def blocked(tokens: Tokens) -> Iterator[None]:
    tokens.may_return.clear()
    try:
        yield
    finally:
        tokens.may_return.set()


def test_a_token_is_cached_and_renewed_before_it_expires() -> None:
    clock, tokens = ManualClock(), Tokens()
    supply = TokenSupply(tokens, clock)
    assert [supply.token().text, supply.token().text] == ["t1", "t1"]
    clock.advance(74_000)
    assert supply.token().text == "t1"
    clock.advance(2_000)
    assert supply.token().text == "t2"
    assert tokens.calls == 2


def test_the_old_token_is_used_while_renewal_fails(caplog: pytest.LogCaptureFixture) -> None:
    """A failed call is retried, at most once per second, until the token expires."""
    clock, tokens = ManualClock(), Tokens()
    supply = TokenSupply(tokens, clock)
    supply.token()
    tokens.fails = OSError("away")
    clock.advance(80_000)
    assert [supply.token().text, supply.token().text] == ["t1", "t1"]
    assert tokens.calls == 2
    assert "could not be renewed" in caplog.text
    assert supply.failure is None
    clock.advance(20_000)
    with pytest.raises(AccessDeniedError, match=r"Tokens.* raised OSError: away") as first:
        supply.token()
    assert isinstance(first.value.__cause__, OSError)
    with pytest.raises(AccessDeniedError) as second:
        supply.token()
    assert second.value is not first.value
    assert supply.failure is not None
    assert tokens.calls == 3
    tokens.fails = None
    clock.advance(1_000)
    assert supply.token().text == "t4"
    assert supply.failure is None


def test_a_blocked_function_times_out_and_its_late_token_is_used() -> None:
    tokens = Tokens()
    supply = TokenSupply(tokens, timeout_s=0.05)
    with blocked(tokens):
        with pytest.raises(AccessDeniedError, match="has not returned for"):
            supply.token()
        with pytest.raises(AccessDeniedError, match="has not returned for"):
            supply.token()
        assert tokens.calls == 1, "one call at a time"
    wait_for(lambda: supply.failure is None, 10, "token is available")
    assert supply.token().text == "t1"


def test_a_blocked_renewal_does_not_delay_callers_while_the_old_token_is_valid() -> None:
    clock, tokens = ManualClock(), Tokens()
    supply = TokenSupply(tokens, clock)
    supply.token()
    clock.advance(80_000)
    with blocked(tokens):
        assert supply.token().text == "t1"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (SECRET, "returned an invalid value of type str"),
        ((SECRET,), "returned an invalid value of type tuple"),
        ((SECRET, "100"), r"returned \(str, str\)"),
        ((SECRET, True), r"returned \(str, bool\)"),
        (("", 100), "an empty token"),
        ((SECRET, 100, "ann", SECRET), "extensions of type str"),
    ],
)
def test_invalid_tokens_are_rejected(returned: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        TokenSupply(lambda: returned).token()
    assert SECRET not in str(raised.value)


def test_an_expired_token_is_rejected() -> None:
    with pytest.raises(AccessDeniedError, match="expired 5000 ms before"):
        TokenSupply(lambda: (SECRET, -5)).token()


def test_tokens_passed_to_the_libraries() -> None:
    """With principal and extensions. The function may return an expiry time or a lifetime."""
    clock = ManualClock(1_800_000_000_000)
    function: Callable[[], tuple[Any, ...]] = lambda: ("t", 1_800_000_060.0, "ann", {"a": 1})  # noqa: E731
    supply = TokenSupply(function, clock)
    assert LibrdkafkaTokens(supply)("") == ("t", 1_800_000_060.0, "ann", {"a": "1"})
    provider = KafkaPythonTokens(supply)
    assert (provider.token(), provider.extensions()) == ("t", {"a": "1"})
    assert supply.token().refresh_at_ms == 1_800_000_045_000


def test_a_function_has_one_supply() -> None:
    tokens = Tokens()
    assert token_supply({SETTING: tokens}) is token_supply({SETTING: tokens})
    assert token_supply({SETTING: tokens}) is not token_supply({SETTING: Tokens()})
    unhashable = type("U", (), {"__call__": lambda self: ("t", 1), "__hash__": None})()
    assert token_supply({SETTING: unhashable}).token().text == "t"


def test_invalid_token_functions_are_rejected() -> None:
    async def later() -> tuple[str, int]:
        return "t", 1

    for function in (None, "org.example.Handler", later):
        with pytest.raises(ConfigError, match=SETTING):
            token_supply({SETTING: function})


def test_function_names_contain_no_secrets() -> None:
    def fetch(password: str) -> tuple[str, int]:
        return password, 1

    def broken(password: str) -> tuple[str, int]:
        raise OSError("away")

    assert function_name(partial(fetch, SECRET)).endswith("fetch")
    assert function_name(Tokens()) == "Tokens"
    with pytest.raises(AccessDeniedError) as raised:
        TokenSupply(partial(broken, SECRET)).token()
    assert SECRET not in str(raised.value)
    assert SECRET not in repr(TokenSupply(partial(fetch, SECRET)).token())
