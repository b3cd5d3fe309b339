"""Faults in the Kafka clients (`kafka/data`)."""

from __future__ import annotations

from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = ()
