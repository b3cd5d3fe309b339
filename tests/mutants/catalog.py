"""The faults of all areas."""

from __future__ import annotations

from mutants import (
    application,
    batches,
    changelogs,
    clients,
    commit_path,
    concurrent,
    connection,
    dataframes,
    dsl,
    shipping,
    storage,
    task_management,
    usability,
)
from mutants.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *concurrent.MUTANTS,
    *application.MUTANTS,
    *batches.MUTANTS,
    *changelogs.MUTANTS,
    *clients.MUTANTS,
    *commit_path.MUTANTS,
    *connection.MUTANTS,
    *dsl.MUTANTS,
    *task_management.MUTANTS,
    *shipping.MUTANTS,
    *storage.MUTANTS,
    *dataframes.MUTANTS,
    *usability.MUTANTS,
)
