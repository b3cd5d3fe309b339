"""Faults in the control connection between driver and workers (`spark/connection`)."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = ()
