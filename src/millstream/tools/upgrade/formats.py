"""What keys and values are written as, and whether the next version reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from millstream.tools.facts import RepartitionFacts, StoreFacts
from millstream.tools.shapes import Difference, Shape, differences
from millstream.tools.upgrade.findings import Finding, Level

#: The serde of settings that cannot be seen.
UNKNOWN: Final = "default"

_NAMELESS: Final = "<lambda>"
_Facts = StoreFacts | RepartitionFacts


def compare_formats(kind: str, old: _Facts, new: _Facts, remedy: str) -> Iterator[Finding]:
    """What would be read as something else, of a store or a topic.

    Args:
        kind: which of them it is.
        old: what runs at present.
        new: what is to run instead.
        remedy: what to do where it breaks.
    """
    yield from _compared(
        (kind, old.name, "keys", remedy), (old.key, old.key_shape), (new.key, new.key_shape)
    )
    yield from _compared(
        (kind, old.name, "values", remedy),
        (old.value, old.value_shape),
        (new.value, new.value_shape),
    )


def _compared(
    of: tuple[str, str, str, str],
    old: tuple[str, Shape | None],
    new: tuple[str, Shape | None],
) -> Iterator[Finding]:
    kind, name, part, remedy = of
    (was, old_shape), (is_, new_shape) = old, new
    if old_shape is not None and new_shape is not None and _format(was) == _format(is_):
        found = sorted(differences(old_shape, new_shape))
        # Other bytes are another key, whether they can be read or not.
        wrong = found if part == "keys" else [each for each in found if not each.readable]
        if wrong:
            what = f"its {part} are of another shape: {_told(wrong)}"
            yield Finding(Level.BREAKS, kind, name, what, remedy)
        elif found:
            what = f"its {part} are of another shape, which reads the old one: {_told(found)}"
            yield Finding(Level.CHANGES, kind, name, what)
    elif (was == UNKNOWN) != (is_ == UNKNOWN):
        known, which = (is_, "old") if was == UNKNOWN else (was, "new")
        what = f"its {part} are {known} in one version; the serde of the {which} one is not known"
        hint = "Let the program have its StreamsConfig outside of its main part."
        yield Finding(Level.UNKNOWN, kind, name, what, hint)
    elif was != is_:
        what = f"its {part} were written by {was} and would be read by {is_}"
        if kind == "store":
            remedy = f"If {is_} reads what {was} wrote, nothing is to be done. If not: {remedy}"
        yield Finding(Level.BREAKS, kind, name, what, remedy)
    elif _NAMELESS in was:
        what = f"its {part} are written by functions without a name ({was}): they are not compared"
        yield Finding(
            Level.UNKNOWN,
            kind,
            name,
            what,
            "Give the Serde a name=, and another one when what it writes changes.",
        )


def _format(serde: str) -> str:
    return serde.partition("(")[0]


def _told(found: list[Difference]) -> str:
    return "; ".join(each.what for each in found)


def same_origin(kind: str, old: _Facts, new: _Facts) -> Iterator[Finding]:
    """Whether what bears a made-up name is filled as before: it may be another one's by now."""
    if not (old.generated and new.generated) or old.origin == new.origin:
        return
    if not (old.origin and new.origin):
        return  # A document of before this was told.
    what = (
        f"is filled by {_way(new.origin)}, and was by {_way(old.origin)}: its name is made of the "
        "number of operators before it, and may have been another one's"
    )
    remedy = "If the steps mean the same, it goes on; name it for the next time."
    yield Finding(Level.UNKNOWN, kind, old.name, what, remedy)


def _way(steps: tuple[str, ...]) -> str:
    return " → ".join(steps)
