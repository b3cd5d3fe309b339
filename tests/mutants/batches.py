"""Faults in the time limits of a batch (`runtime/task`, `runtime/loop`)."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = ()
