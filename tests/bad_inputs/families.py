"""All kinds of bad input, in the order of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bad_inputs import (
    batch_functions,
    dataframes,
    deserialization,
    functions,
    headers,
    lake,
    nulls,
    options,
    processors,
    serialization,
    server,
    settings,
    subscriptions,
    times,
    topologies,
)
from bad_inputs.case import Family

FAMILIES: Final[Sequence[Family]] = (
    deserialization.FAMILY,
    serialization.FAMILY,
    nulls.KEYS,
    nulls.VALUES,
    times.FAMILY,
    headers.FAMILY,
    functions.RAISES,
    functions.SHAPES,
    batch_functions.ASYNC,
    batch_functions.BATCHES,
    batch_functions.DATAFRAMES,
    lake.LAKE,
    processors.PROCESSORS,
    processors.HANDLERS,
    settings.SETTINGS,
    settings.CLIENTS,
    subscriptions.SUBSCRIPTIONS,
    server.FAMILY,
    topologies.DSL,
    topologies.PROCESSORS,
    options.FAMILY,
    dataframes.FAMILY,
    processors.TESTING,
)
