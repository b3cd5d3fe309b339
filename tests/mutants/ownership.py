"""Faults in the ownership of tasks (`runtime/ownership`)."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = ()
