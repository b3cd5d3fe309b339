"""All faults, of every area."""

from __future__ import annotations

from mutants import (
    apart,
    application,
    batches,
    changelogs,
    clients,
    commit_path,
    connection,
    dsl,
    ownership,
    shipping,
    storage,
    structured,
    usability,
)
from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *apart.MUTANTS,
    *application.MUTANTS,
    *batches.MUTANTS,
    *changelogs.MUTANTS,
    *clients.MUTANTS,
    *commit_path.MUTANTS,
    *connection.MUTANTS,
    *dsl.MUTANTS,
    *ownership.MUTANTS,
    *shipping.MUTANTS,
    *storage.MUTANTS,
    *structured.MUTANTS,
    *usability.MUTANTS,
)
