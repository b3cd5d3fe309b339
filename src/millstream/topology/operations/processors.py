"""Operations that the user wrote as a class: the Processor API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millstream.topology.operations.operation import Operation


@dataclass(frozen=True)
class Process(Operation):
    """Runs a `Processor` or a `FixedKeyProcessor`.

    Args:
        supplier: gives a fresh one at each call.
        fixed_key: whether it is a `FixedKeyProcessor`.
    """

    supplier: Callable[[], Any]
    fixed_key: bool = False
