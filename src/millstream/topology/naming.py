"""Names of nodes, stores and internal topics.

One counter numbers processors and stores together, in the order of their declarations. An explicit
name takes a number as well, so that naming one operator does not renumber the others (KIP-307). The
numbers are the same as in Kafka Streams, because they are part of the names of changelog and
repartition topics.
"""

from __future__ import annotations

import re
from typing import Final

from millstream.errors import TopologyError
from millstream.topology.call_site import call_site

#: Kafka's maximum length of topic names, which also limits the names of nodes and stores.
MAX_NAME_LENGTH: Final = 249

_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def checked_name(name: str) -> str:
    """Return the name if it is legal for nodes, stores and topics.

    Raises:
        TopologyError: the name is empty, `.`, `..`, longer than 249 characters, or contains a
            character other than ASCII letters, digits, `.`, `_` and `-`.
    """
    problem = name_problem(name)
    if problem:
        raise TopologyError(problem, declared_at=call_site())
    return name


def checked_node_name(name: str) -> str:
    """Return the name if it is legal for a node of a `Topology`.

    Any non-empty string is legal, because no topic is named after a node of a `Topology`.

    Raises:
        TopologyError: the name is empty or not a string.
    """
    if isinstance(name, str) and name:
        return name
    raise TopologyError(
        f"The name of a node must be a non-empty string, but got {name!r}.", declared_at=call_site()
    )


def name_problem(name: object) -> str:
    """Return why a name is not legal for nodes, stores and topics.

    The result is empty if the name is legal.
    """
    if not isinstance(name, str):
        return f"Names of nodes, stores and topics must be strings, but got {name!r}."
    if not name:
        return "Names of nodes, stores and topics must not be empty."
    if name in (".", ".."):
        return f"Kafka does not allow the name {name!r}."
    if len(name) > MAX_NAME_LENGTH:
        return (
            f"The name {name[:30]!r}… has {len(name)} characters; "
            f"Kafka allows at most {MAX_NAME_LENGTH}."
        )
    if not _LEGAL_NAME.fullmatch(name):
        return (
            f"The name {name!r} contains a character that is not legal in topic names. "
            "Use only ASCII letters, digits, '.', '_' and '-'."
        )
    return ""


class NameGenerator:
    """The counter for generated names.

    The same program always produces the same names.
    """

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def processor(self, prefix: str, explicit: str | None = None) -> str:
        """Return the name of the next node.

        Args:
            explicit: the user's name, which replaces the generated name. The counter advances in
                either case.

        Raises:
            TopologyError: the explicit name is not legal.
        """
        generated = f"{prefix}{self._next_number():010d}"
        return generated if explicit is None else checked_name(explicit)

    def store(self, prefix: str) -> str:
        """Return the name of the next store.

        An example is `KSTREAM-AGGREGATE-STATE-STORE-0000000002`.
        """
        return f"{prefix}STATE-STORE-{self._next_number():010d}"

    def _next_number(self) -> int:
        number = self._next
        self._next += 1
        return number


def suffixed_name(names: NameGenerator, explicit: str | None, suffix: str, prefix: str) -> str:
    """Return the name of a node of an operation that adds several nodes.

    The counter advances even if the user has set a name.

    Raises:
        TopologyError: the name is not legal.
    """
    return names.processor(prefix, None if explicit is None else explicit + suffix)
