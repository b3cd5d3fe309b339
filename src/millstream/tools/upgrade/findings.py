"""The findings of a comparison; compares formats and generated names."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from functools import partial
from typing import Final, NamedTuple

from millstream.tools.serde_shapes import Shape, ShapeDifference, differences
from millstream.tools.topology_facts import RepartitionFacts, StoreFacts


class FindingLevel(enum.Enum):
    """The consequence of a difference."""

    STAYS = "stays"
    #: A change without loss.
    CHANGES = "changes"
    #: The programs do not contain enough information.
    UNKNOWN = "unknown"
    #: State or records of the old version are lost or misread, or the new version does not start.
    BREAKS = "breaks"


class UpgradeFinding(NamedTuple):
    level: FindingLevel
    #: One of: store, repartition topic, input, output, sub-topology, application, cluster.
    kind: str
    name: str
    #: The difference, if there is one.
    what: str = ""
    remedy: str = ""


stays = partial(UpgradeFinding, FindingLevel.STAYS)
changes = partial(UpgradeFinding, FindingLevel.CHANGES)
unknown = partial(UpgradeFinding, FindingLevel.UNKNOWN)
breaks = partial(UpgradeFinding, FindingLevel.BREAKS)

#: The default serde of unknown settings.
UNKNOWN: Final = "default"

_LAMBDA: Final = "<lambda>"
_Facts = StoreFacts | RepartitionFacts


class _Part(NamedTuple):
    """The keys or the values of a store or topic, which are compared."""

    kind: str
    name: str
    part: str
    remedy: str


def compare_formats(kind: str, old: _Facts, new: _Facts, remedy: str) -> Iterator[UpgradeFinding]:
    keys = _Part(kind, old.name, "keys", remedy)
    yield from _compare_part(keys, (old.key, old.key_shape), (new.key, new.key_shape))
    values = _Part(kind, old.name, "values", remedy)
    yield from _compare_part(values, (old.value, old.value_shape), (new.value, new.value_shape))


def _compare_part(
    compared: _Part, old: tuple[str, Shape | None], new: tuple[str, Shape | None]
) -> Iterator[UpgradeFinding]:
    kind, name, part, remedy = compared
    (was, old_shape), (is_, new_shape) = old, new
    if old_shape is not None and new_shape is not None and _serde_type(was) == _serde_type(is_):
        found = sorted(differences(old_shape, new_shape))
        # Different bytes are a different key, even if they can be read.
        wrong = found if part == "keys" else [each for each in found if not each.readable]
        if wrong:
            what = f"its {part} have another schema: {_describe(wrong)}"
            yield breaks(kind, name, what, remedy)
        elif found:
            what = f"its {part} have another schema, which can read the old data"
            yield changes(kind, name, f"{what}: {_describe(found)}")
    elif (was == UNKNOWN) != (is_ == UNKNOWN):
        known, which = (is_, "old") if was == UNKNOWN else (was, "new")
        what = f"its {part} are {known} in one version; the serde of the {which} version is unknown"
        hint = "Define the StreamsConfig of the program outside of its main part."
        yield unknown(kind, name, what, hint)
    elif was != is_:
        what = f"its {part} were written by {was} and would be read by {is_}"
        if kind == "store":
            remedy = f"If {is_} can read the data of {was}, do nothing. Otherwise: {remedy}"
        yield breaks(kind, name, what, remedy)
    elif _LAMBDA in was:
        what = f"its {part} use unnamed functions ({was}), which cannot be compared"
        yield unknown(
            kind, name, what, "Pass name= to the Serde, and change it whenever the format changes."
        )


def _serde_type(serde: str) -> str:
    return serde.partition("(")[0]


def _describe(found: list[ShapeDifference]) -> str:
    return "; ".join(each.what for each in found)


def compare_origins(kind: str, old: _Facts, new: _Facts) -> Iterator[UpgradeFinding]:
    """Yield a finding if a generated name may now belong to a different object."""
    if not (old.generated and new.generated) or old.origin == new.origin:
        return
    if not (old.origin and new.origin):
        return  # a document of an older version
    what = (
        f"is filled by {_steps(new.origin)}, and was filled by {_steps(old.origin)}: its generated "
        f"name contains the number of preceding operators, and may have belonged to another {kind}"
    )
    remedy = "If the steps are equivalent, nothing is lost. Name it explicitly for the future."
    yield unknown(kind, old.name, what, remedy)


def _steps(steps: tuple[str, ...]) -> str:
    return " → ".join(steps)
