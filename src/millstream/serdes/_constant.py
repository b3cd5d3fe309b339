"""What the ready-made serdes have in common: one object each, however often it is pickled."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from millstream.serdes._serde import Serde, WrongValueError

T = TypeVar("T")

_constants: dict[str, ConstantSerde[Any]] = {}


class ConstantSerde(Serde[T]):
    """A serde which is a constant of `millstream.serdes`.

    Pickling, also into another process, and copying give the constant itself: `is` and `==` hold.
    """

    def __init__(
        self,
        name: str,
        serialize: Callable[[str, T], bytes | None],
        deserialize: Callable[[str, bytes], T | None],
        *,
        immutable: bool,
    ) -> None:
        super().__init__(serialize, deserialize, immutable=immutable, name=name)
        _constants[name] = self

    def __reduce__(self) -> tuple[Any, ...]:
        return (constant_named, (self.name,))


def constant_named(name: str) -> ConstantSerde[Any]:
    """The constant of that name. Pickles refer to this function: its place and name are kept."""
    return _constants[name]


def all_are(kind: type, values: Iterable[object]) -> bool:
    """Whether every value is of exactly this type: 18 ns a record."""
    return set(map(type, values)) <= {kind}


def must_be(value: object, kinds: tuple[type, ...]) -> None:
    """Refuse a value of another type.

    Raises:
        WrongValueError: it says which types are taken.
    """
    if not isinstance(value, kinds):
        raise WrongValueError(f"it takes {' or '.join(kind.__name__ for kind in kinds)}")
