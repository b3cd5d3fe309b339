"""Faults in DataFrame stages (`structured`)."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = ()
