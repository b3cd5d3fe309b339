"""The store and the key that stand in a path, for all paths that have them."""

from __future__ import annotations

from typing import Any, Final

from millstream.server.forms import KEY_FORMS, key_of
from millstream.server.parameters import Parameter, in_path
from millstream.server.routing import Asked
from millstream.state.queries.codec import StoreCodec

STORE: Final = in_path("store", "The store's name.")
KEY: Final = in_path("key", "The key; it may have slashes.")
KEY_AS: Final = Parameter(
    "key_as",
    "How keys are written in this URL: as a text that the store's serde of keys understands (a "
    "number, a UUID, JSON for serdes of objects), as JSON, or as base64 of the serialized key.",
    default="text",
    choices=KEY_FORMS,
)


def given_key(asked: Asked, codec: StoreCodec, name: str = "key") -> Any:
    """The key that a request gives under this name.

    Raises:
        HttpError: it is none of the store's.
    """
    return key_of(asked.values[name], asked.values["key_as"], codec.key_serde, codec.topic)
