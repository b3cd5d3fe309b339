"""Faults in an application and its stream threads (`app`, `application`, `spark`)."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = ()
