"""A fault of the package, as a change of its source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One fault.

    Args:
        breaks: the consequence of the fault, a short sentence that is unique.
        module: the file, relative to `src/millstream`.
        changes: pairs of a text that occurs exactly once in the file, and its replacement.
        tests: the tests that run first, relative to the root.
    """

    breaks: str
    module: str
    changes: tuple[tuple[str, str], ...]
    tests: tuple[str, ...] = ()


def mutant(breaks: str, module: str, *texts: str, tests: tuple[str, ...] = ()) -> Mutant:
    return Mutant(breaks, module, tuple(zip(texts[::2], texts[1::2], strict=True)), tests)
