"""All kinds of bad input, in the order of the page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from bad_inputs import (
    at_work,
    beside,
    dataframes,
    functions,
    headers,
    lake,
    nulls,
    options,
    server,
    settings,
    subscriptions,
    times,
    topologies,
    unreadable,
    unwritable,
)
from bad_inputs.case import Family

FAMILIES: Final[Sequence[Family]] = (
    unreadable.FAMILY,
    unwritable.FAMILY,
    nulls.KEYS,
    nulls.VALUES,
    times.FAMILY,
    headers.FAMILY,
    functions.RAISES,
    functions.SHAPES,
    beside.ASYNC,
    beside.BATCHES,
    beside.DATAFRAMES,
    lake.LAKE,
    at_work.PROCESSORS,
    at_work.HANDLERS,
    settings.SETTINGS,
    settings.CLIENTS,
    subscriptions.SUBSCRIPTIONS,
    server.FAMILY,
    topologies.DSL,
    topologies.PROCESSORS,
    options.FAMILY,
    dataframes.FAMILY,
    at_work.TESTING,
)
