"""Faults in topologies and their operators (`topology`, `operators`)."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = ()
