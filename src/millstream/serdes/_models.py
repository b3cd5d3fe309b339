"""JSON of models of pydantic."""

from __future__ import annotations

from typing import Any, Protocol, TypeVar, cast

from millstream.serdes._constant import must_be
from millstream.serdes._serde import Serde, WrongValueError

T = TypeVar("T")


class _Model(Protocol):
    """The methods of `pydantic.BaseModel` that read and write JSON."""

    @classmethod
    def model_validate_json(cls, json_data: bytes) -> Any: ...

    @classmethod
    def model_json_schema(cls) -> dict[str, Any]: ...

    def model_dump_json(self, *, by_alias: bool) -> str: ...


def is_model(of: Any) -> bool:
    """Whether a type is a class of pydantic's models, found without an import of pydantic.

    Raises:
        TypeError: it is a model of pydantic 1.
    """
    if not isinstance(of, type) or not any(map(_is_base_model, of.__mro__)):
        return False
    if not hasattr(of, "model_validate_json"):
        raise TypeError(
            f"{of.__qualname__} is a model of pydantic 1. json_of() takes models of pydantic 2: "
            "derive it from pydantic.BaseModel of version 2."
        )
    return True


def _is_base_model(kind: type) -> bool:
    module = kind.__module__
    return kind.__name__ == "BaseModel" and module in ("pydantic.main", "pydantic.v1.main")


class ModelSerde(Serde[T]):
    """The serde of one class of pydantic's models, made by `json_of`.

    Fields are written under their aliases, since models are read by them. Two serdes of one class
    are equal, and a serde pickles as its class.
    """

    def __init__(self, of: type[T]) -> None:
        self._of = of
        super().__init__(self._encode, self._decode, name=f"json_of({of.__qualname__})")

    @property
    def of(self) -> type[T]:
        """The class of its values."""
        return self._of

    def schema(self) -> dict[str, Any] | None:
        """The JSON Schema of its values; None where pydantic finds none."""
        try:
            return cast("type[_Model]", self._of).model_json_schema()
        except Exception:
            return None  # a field of a type that only code can check

    def __reduce__(self) -> tuple[Any, ...]:
        return ModelSerde, (self._of,)

    def __eq__(self, other: object) -> bool:
        return self._of == other._of if isinstance(other, ModelSerde) else NotImplemented

    def __hash__(self) -> int:
        return hash((ModelSerde, self._of))

    def _encode(self, topic: str, value: T) -> bytes:
        must_be(value, (self._of,))
        return cast("_Model", value).model_dump_json(by_alias=True).encode()

    def _decode(self, topic: str, data: bytes) -> T:
        try:
            value: T = cast("type[_Model]", self._of).model_validate_json(data)
        except ValueError as error:
            raise WrongValueError(_problems(error)) from error
        return value


def _problems(error: ValueError) -> str:
    """The text of a `pydantic.ValidationError` in one line, without addresses of its pages."""
    errors = getattr(error, "errors", None)
    if errors is None:
        return f"{type(error).__name__}: {error}"
    return "; ".join(
        f"{'.'.join(map(str, each['loc'])) or 'the whole'}: {each['msg']}"
        for each in errors(include_url=False, include_context=False, include_input=False)
    )
