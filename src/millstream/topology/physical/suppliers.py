"""Validation of processor suppliers, and the stores that they provide."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from millstream.async_checks import deferred_advice, deferred_method_advice, is_deferred, name_of
from millstream.errors import TopologyError, summary_of
from millstream.operators.process import PROCESSOR_METHODS
from millstream.processor.processor import FixedKeyProcessor, Processor
from millstream.state.builders.store_builder import StoreBuilder
from millstream.topology.argument_checks import accepts_arguments

#: `wrapper(node_name, supplier) -> supplier`.
ProcessorWrapper = Callable[[str, Callable[[], Any]], Callable[[], Any]]


def check_wrapper(wrapper: ProcessorWrapper | None) -> None:
    """Check a processor wrapper.

    Raises:
        TypeError: the wrapper is not a function of two arguments, or is asynchronous.
    """
    if wrapper is None:
        return
    if is_deferred(wrapper):
        raise TypeError(deferred_advice(f"processor_wrapper {name_of(wrapper)}", wrapper))
    if not accepts_arguments(wrapper, 2):
        raise TypeError(
            f"processor_wrapper is {wrapper!r}, but must be a function (name, supplier) that "
            "returns a supplier."
        )


def wrapped_supplier(
    wrapper: ProcessorWrapper | None,
    supplier: Callable[[], Any],
    node: str,
    site: str,
    *,
    fixed_key: bool = False,
) -> tuple[Callable[[], Any], list[StoreBuilder]]:
    """Return the wrapped supplier of a custom processor, and its stores.

    Semantics: Kafka Streams' `ProcessorWrapper` (KIP-1112). In Kafka Streams, the stores of the
    original supplier are lost if the wrapper does not pass them on; here, they are used if the
    wrapped supplier has no method `stores()`.

    Raises:
        TopologyError: one of the suppliers is not valid (see `check_supplier`), or the wrapper
            failed.
    """
    check_supplier(supplier, node, site, fixed_key=fixed_key)
    if wrapper is None:
        return supplier, supplied_stores(supplier)
    try:
        wrapped = wrapper(node, supplier)
    except Exception as error:
        raise TopologyError(
            f"processor_wrapper failed: {summary_of(error)}.", node=node, declared_at=site
        ) from error
    try:
        check_supplier(wrapped, node, site, fixed_key=fixed_key)
    except TopologyError as error:
        error.message = f"The result of processor_wrapper cannot be used. {error.message}"
        raise
    store_supplier = wrapped if hasattr(wrapped, "stores") else supplier
    return wrapped, supplied_stores(store_supplier)


def check_supplier(
    supplier: Callable[[], Any], node: str, site: str, *, fixed_key: bool = False
) -> None:
    """Check that a supplier returns new processors of the expected kind.

    Raises:
        TopologyError: the supplier cannot be called without arguments, returns the same object
            twice, or does not return a processor of the expected kind.
    """
    error = partial(TopologyError, node=node, declared_at=site)
    if not accepts_arguments(supplier, 0):
        raise error(
            "A processor supplier must be a class or a function without arguments that returns a "
            f"new processor for each call, but got {supplier!r}. If its processors need arguments, "
            "use lambda: MyProcessor(argument)."
        )
    if is_deferred(supplier):
        raise error(deferred_advice(f"The processor supplier {name_of(supplier)}", supplier))
    processor = supplier()
    if processor is supplier():
        raise error(
            "A supplier must return a new processor for each call, because each task needs its "
            "own, but the supplier returned the same processor twice."
        )
    if not callable(getattr(processor, "process", None)):
        raise error(
            f"The supplier returned {type(processor).__name__}, which has no method "
            "process(record). Use a class that extends Processor, or a function that returns an "
            "instance."
        )
    advice = deferred_method_advice(processor, PROCESSOR_METHODS)
    if advice is not None:
        raise error(advice)
    if isinstance(processor, Processor if fixed_key else FixedKeyProcessor):
        expected = "FixedKeyProcessor" if fixed_key else "Processor"
        method = "process" if fixed_key else "process_values"
        raise error(
            f"The operation needs a {expected}, but got {type(processor).__qualname__}. "
            f"Use the stream's {method}() instead."
        )


def supplied_stores(supplier: Callable[[], Any]) -> list[StoreBuilder]:
    """Return the stores that a supplier provides (`ConnectedStoreProvider`, KIP-401).

    A supplier may have a method `stores()`. If the supplier is a class, `stores` must be a class
    method or static method; instance methods are ignored.
    """
    if inspect.isclass(supplier):
        found = inspect.getattr_static(supplier, "stores", None)
        if not isinstance(found, classmethod | staticmethod):
            return []
    stores = getattr(supplier, "stores", None)
    return list(stores()) if callable(stores) else []
