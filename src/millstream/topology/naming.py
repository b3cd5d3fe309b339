"""How nodes, stores and internal topics get their names.

One counter numbers processors and stores together, in the order of the program. A name given by
the user takes a number as well, so that naming one operator does not renumber the others
(KIP-307). The numbers are Kafka Streams': changelog and repartition topics are named after them.
"""

from __future__ import annotations

import re
from typing import Final

from millstream.errors import TopologyError
from millstream.topology.call_site import call_site

#: What Kafka allows a topic's name to be long, and so whatever becomes part of one.
MAX_NAME_LENGTH: Final = 249

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def checked_name(name: str) -> str:
    """The name itself, if nodes, stores and topics may be called so.

    Raises:
        TopologyError: it is empty, `.`, `..`, longer than 249 characters, or holds a character
            other than ASCII letters, digits, `.`, `_` and `-`.
    """
    problem = name_problem(name)
    if problem:
        raise TopologyError(problem, declared_at=call_site())
    return name


def checked_node_name(name: str) -> str:
    """The name itself, if a node of `Topology` may be called so: no topic is named after it.

    Raises:
        TopologyError: it is empty, or no string.
    """
    if isinstance(name, str) and name:
        return name
    raise TopologyError(
        f"The name of a node is a string that is not empty, but this one is {name!r}.",
        declared_at=call_site(),
    )


def name_problem(name: object) -> str:
    """Why nodes, stores and topics may not be called so; empty if they may."""
    if not isinstance(name, str):
        return f"Names of nodes, stores and topics are strings, but this one is {name!r}."
    if not name:
        return "Names of nodes, stores and topics must not be empty."
    if name in (".", ".."):
        return f"{name!r} is not a name that Kafka allows."
    if len(name) > MAX_NAME_LENGTH:
        return (
            f"The name {name[:30]!r}… has {len(name)} characters; "
            f"Kafka allows at most {MAX_NAME_LENGTH}."
        )
    if not _LEGAL.fullmatch(name):
        return (
            f"The name {name!r} holds a character that topics cannot have. "
            "Use only ASCII letters, digits, '.', '_' and '-'."
        )
    return ""


class Names:
    """The counter from which generated names come. The same program, the same names."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def processor(self, prefix: str, given: str | None = None) -> str:
        """The name of the next node.

        Args:
            prefix: what kind of node it is, for example `KSTREAM-FILTER-`.
            given: the user's name for it, which is taken instead; the number is used up all the
                same.

        Raises:
            TopologyError: the given name is not legal.
        """
        generated = f"{prefix}{self._take():010d}"
        return generated if given is None else checked_name(given)

    def store(self, prefix: str) -> str:
        """The name of the next store, for example `KSTREAM-AGGREGATE-STATE-STORE-0000000002`."""
        return f"{prefix}STATE-STORE-{self._take():010d}"

    def _take(self) -> int:
        number = self._next
        self._next += 1
        return number


def suffixed_name(names: Names, given: str | None, suffix: str, prefix: str) -> str:
    """The name of one of several nodes that an operation becomes.

    Args:
        names: the counter; it moves on in any case.
        given: the user's name for the operation.
        suffix: follows it, for example `-join-this`.
        prefix: begins the name that is generated otherwise.

    Raises:
        TopologyError: the name is not legal.
    """
    return names.processor(prefix, None if given is None else given + suffix)
