"""Serdes of the engine's own envelopes, around what the serde of the user's values writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from millstream.serdes._serde import Serde

T = TypeVar("T")


class WrapperSerde(Serde[T]):
    """A serde around another one, which may be left open until the config is known.

    Args:
        inner: the serde inside; None for the config's default, put in by `around`.
    """

    def __init__(
        self,
        inner: Serde[Any] | None,
        serialize: Callable[[str, T], bytes | None],
        deserialize: Callable[[str, bytes], T | None],
        *,
        name: str,
    ) -> None:
        self.inner = inner
        super().__init__(serialize, deserialize, name=name)

    def around(self, inner: Serde[Any]) -> WrapperSerde[T]:
        """The same around that serde."""
        raise NotImplementedError
