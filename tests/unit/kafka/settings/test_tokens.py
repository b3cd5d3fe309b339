"""The supply of tokens: when it asks for new ones, and what it says when there are none."""

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
    """Gives t1, t2, ..., each for 100 s, or what it is told to."""

    def __init__(self) -> None:
        self.calls = 0
        self.fails: Exception | None = None
        self.goes_on = threading.Event()
        self.goes_on.set()

    def __call__(self) -> tuple[Any, ...]:
        self.calls += 1
        assert self.goes_on.wait(30)
        if self.fails is not None:
            raise self.fails
        return f"t{self.calls}", 100


@contextmanager
def hanging(tokens: Tokens) -> Iterator[None]:
    tokens.goes_on.clear()
    try:
        yield
    finally:
        tokens.goes_on.set()


def test_a_token_is_kept_and_renewed_before_it_runs_out() -> None:
    clock, tokens = ManualClock(), Tokens()
    supply = TokenSupply(tokens, clock)
    assert [supply.token().text, supply.token().text] == ["t1", "t1"]
    clock.advance(74_000)
    assert supply.token().text == "t1"
    clock.advance(2_000)
    assert supply.token().text == "t2"
    assert tokens.calls == 2


def test_the_old_token_does_while_there_is_no_new_one(caplog: pytest.LogCaptureFixture) -> None:
    """A call that fails is made again, at most once a second, until the token has run out."""
    clock, tokens = ManualClock(), Tokens()
    supply = TokenSupply(tokens, clock)
    supply.token()
    tokens.fails = OSError("away")
    clock.advance(80_000)
    assert [supply.token().text, supply.token().text] == ["t1", "t1"]
    assert tokens.calls == 2
    assert "not renewed yet" in caplog.text
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


def test_a_function_that_hangs_is_told_and_its_token_is_taken_when_it_comes() -> None:
    tokens = Tokens()
    supply = TokenSupply(tokens, timeout_s=0.05)
    with hanging(tokens):
        with pytest.raises(AccessDeniedError, match="has not returned for"):
            supply.token()
        with pytest.raises(AccessDeniedError, match="has not returned for"):
            supply.token()
        assert tokens.calls == 1, "one call at a time"
    wait_for(lambda: supply.failure is None, 10, "the token is there")
    assert supply.token().text == "t1"


def test_nobody_waits_for_long_while_the_old_token_is_good() -> None:
    clock, tokens = ManualClock(), Tokens()
    supply = TokenSupply(tokens, clock)
    supply.token()
    clock.advance(80_000)
    with hanging(tokens):
        assert supply.token().text == "t1"


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (SECRET, "returned a str"),
        ((SECRET,), "returned a tuple"),
        ((SECRET, "100"), r"returned \(str, str\)"),
        ((SECRET, True), r"returned \(str, bool\)"),
        (("", 100), "an empty token"),
        ((SECRET, 100, "ann", SECRET), "extensions of type str"),
    ],
)
def test_what_is_no_token(returned: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as raised:
        TokenSupply(lambda: returned).token()
    assert SECRET not in str(raised.value)


def test_a_token_that_has_run_out() -> None:
    with pytest.raises(AccessDeniedError, match="ran out 5000 ms before"):
        TokenSupply(lambda: (SECRET, -5)).token()


def test_what_the_libraries_get() -> None:
    """Principal and extensions reach them, and a time in place of a lifetime is understood."""
    clock = ManualClock(1_800_000_000_000)
    function: Callable[[], tuple[Any, ...]] = lambda: ("t", 1_800_000_060.0, "ann", {"a": 1})  # noqa: E731
    supply = TokenSupply(function, clock)
    assert LibrdkafkaTokens(supply)("") == ("t", 1_800_000_060.0, "ann", {"a": "1"})
    provider = KafkaPythonTokens(supply)
    assert (provider.token(), provider.extensions()) == ("t", {"a": "1"})
    assert supply.token().refresh_at_ms == 1_800_000_045_000


def test_one_function_is_one_supply() -> None:
    tokens = Tokens()
    assert token_supply({SETTING: tokens}) is token_supply({SETTING: tokens})
    assert token_supply({SETTING: tokens}) is not token_supply({SETTING: Tokens()})
    unhashable = type("U", (), {"__call__": lambda self: ("t", 1), "__hash__": None})()
    assert token_supply({SETTING: unhashable}).token().text == "t"


def test_functions_that_are_none() -> None:
    async def later() -> tuple[str, int]:
        return "t", 1

    for function in (None, "org.example.Handler", later):
        with pytest.raises(ConfigError, match=SETTING):
            token_supply({SETTING: function})


def test_names_tell_no_secret() -> None:
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
