"""What a stream can be joined with, and which options belong to which kind of join."""

from __future__ import annotations

from typing import Any, Final, Literal

from millstream.topology.arguments import checked_serdes, wrong_type
from millstream.topology.options.join_windows import JoinWindows

#: How unmatched records are treated: left out, or joined with None on the left or on both sides.
JoinKind = Literal["inner", "left", "outer"]

#: The method for each kind.
JOIN_METHODS: Final = {"inner": "join", "left": "left_join", "outer": "outer_join"}

#: Which options belong to which kind of join, to tell the user where they went wrong.
_OPTIONS: Final = {
    "KStream": (
        "windows",
        "key",
        "value",
        "other_value",
        "store_name",
        "this_store",
        "other_store",
        "logging",
    ),
    "KTable": ("key", "value", "other_value", "grace"),
    "GlobalKTable": ("key_selector",),
}


def check_join_options(operation: str, other: Any, kind: JoinKind, options: dict[str, Any]) -> None:
    """Refuse what the overloads of a join do not know, for those who use no type checker.

    Args:
        operation: the method.
        other: what is to be joined.
        kind: of the join.
        options: what was given for it by name, windows included.

    Raises:
        TypeError: something else is needed.
    """
    what = type(other).__name__
    known = _OPTIONS.get(what)
    if known is None or (kind == "outer" and what != "KStream"):
        takes = "a KStream" if kind == "outer" else "a KStream, a KTable or a GlobalKTable"
        raise wrong_type(f"{operation}() joins a stream with {takes}, but got {what}: {other!r}.")
    unknown = [option for option in options if option not in known]
    if unknown:
        raise wrong_type(
            f"{operation}() with a {what} takes no {', '.join(unknown)}; "
            f"it takes {', '.join(known)}."
        )
    for needed in ("windows", "key_selector"):
        if needed in known and options.get(needed) is None:
            raise wrong_type(f"{operation}() with a {what} needs {needed}=...")
    windows = options.get("windows")
    if windows is not None and not isinstance(windows, JoinWindows):
        raise wrong_type(f"{operation}() takes JoinWindows as its windows, but got {windows!r}.")
    serdes = ("key", "value", "other_value")
    checked_serdes(operation, **{name: options.get(name) for name in serdes})
