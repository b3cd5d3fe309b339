"""How a property of a subscription is declared: a setting, and when a change of it is felt."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from millstream.config_fields import Setting
from millstream.errors import ConfigError

#: The kind of a property that is a rate for each of some topics.
RATES = "rates"


class Applied(Enum):
    """When a change of a property is felt, in words for the reference page."""

    AT_ONCE = "at once"
    NEXT_TASKS = "for tasks that start later"
    NEXT_TIME = "the next time it is needed"
    DRAINED = "partition by partition, each when nothing of it is pending"
    AT_START = "not while running"


@dataclass
class Property(Setting):
    """One property: a `Setting` whose dotted name is Decaton's, and when a change is felt.

    Kinds are those of `Setting`, and "rates": a rate by topic, each within the bounds.
    """

    applied: Applied = Applied.AT_ONCE

    def fresh_default(self) -> Any:
        """The default, copied where it could be changed."""
        return dict(self.default) if self.kind == RATES else super().fresh_default()

    def checked(self, value: Any) -> Any:
        """`value` in its final form.

        Raises:
            ConfigError: it has the wrong type or lies outside the bounds.
        """
        return self._checked_rates(value) if self.kind == RATES else super().checked(value)

    def parsed(self, value: Any) -> Any:
        """`value` as a file gives it, turned into the type of this property."""
        if self.kind != RATES or not isinstance(value, Mapping):
            return super().parsed(value)
        return {topic: self._one(topic).parsed(rate) for topic, rate in value.items()}

    def _checked_rates(self, value: Any) -> dict[str, int]:
        if not isinstance(value, Mapping) or not all(isinstance(topic, str) for topic in value):
            raise ConfigError(
                f"{self.name} is {value!r}, but must be a dictionary of rates by topic. {self.doc}"
            )
        return {topic: self._one(topic).checked(rate) for topic, rate in value.items()}

    def _one(self, topic: str) -> Setting:
        name = f"{self.name}[{topic!r}]"
        return Setting(name, 0, self.doc, "int", self.least, self.most, name=name)


def declared(
    dotted: str,
    default: Any,
    applied: Applied,
    *,
    doc: str,
    kind: str,
    least: int | None = None,
    most: int | None = None,
) -> Any:
    """Declare one property.

    Args:
        dotted: Decaton's name for it, without `decaton.`.
        default: its value when not given; None makes it optional.
        applied: when a change is felt.
        doc: what it means, for the reference page.
        kind: its type (see `Property`).
        least: the smallest value allowed.
        most: the largest value allowed.
    """
    return Property(dotted, default, doc, kind, least, most, applied=applied)
