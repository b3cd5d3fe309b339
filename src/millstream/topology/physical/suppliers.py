"""Processor suppliers, as users give them: checked, and the stores that they bring."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from millstream.errors import TopologyError, summary_of
from millstream.operators.process import PROCESSOR_METHODS
from millstream.processor.processor import FixedKeyProcessor, Processor
from millstream.state.builders.store_builder import StoreBuilder
from millstream.topology.arguments import takes
from millstream.unawaited import deferred_advice, deferred_method_advice, is_deferred, name_of

#: Gives the supplier to take in place of one, from the name of its node and that one.
ProcessorWrapper = Callable[[str, Callable[[], Any]], Callable[[], Any]]


def check_wrapper(wrapper: ProcessorWrapper | None) -> None:
    """Refuse what cannot wrap anything.

    Raises:
        TypeError: it is no function of two arguments, or an asynchronous one.
    """
    if wrapper is None:
        return
    if is_deferred(wrapper):
        raise TypeError(deferred_advice(f"processor_wrapper {name_of(wrapper)}", wrapper))
    if not takes(wrapper, 2):
        raise TypeError(
            f"processor_wrapper is {wrapper!r}, but must be a function (name, supplier) that gives "
            "a supplier."
        )


def wrapped_supplier(
    wrapper: ProcessorWrapper | None,
    supplier: Callable[[], Any],
    node: str,
    site: str,
    *,
    fixed_key: bool = False,
) -> tuple[Callable[[], Any], list[StoreBuilder]]:
    """What runs in place of a supplier of the user's, and the stores that it brings.

    Source of the semantics: Kafka Streams' `ProcessorWrapper` (KIP-1112). There a wrapper which
    does not hand on the stores of what it wraps loses them; here one that says nothing of stores
    keeps them.

    Args:
        wrapper: given where the topology was begun; None for none.
        supplier: of the user's, which is checked.
        node: the name of the node.
        site: file and line of the user's program, for errors.
        fixed_key: whether it gives a `FixedKeyProcessor`.

    Raises:
        TopologyError: as `check_supplier`, of either supplier; or the wrapper failed.
    """
    check_supplier(supplier, node, site, fixed_key=fixed_key)
    if wrapper is None:
        return supplier, supplied_stores(supplier)
    try:
        wrapped = wrapper(node, supplier)
    except Exception as error:
        raise TopologyError(
            f"processor_wrapper failed: {summary_of(error)}.",
            node=node,
            declared_at=site,
        ) from error
    try:
        check_supplier(wrapped, node, site, fixed_key=fixed_key)
    except TopologyError as error:
        error.message = f"What processor_wrapper gave cannot be used. {error.message}"
        raise
    of_stores = wrapped if hasattr(wrapped, "stores") else supplier
    return wrapped, supplied_stores(of_stores)


def check_supplier(
    supplier: Callable[[], Any], node: str, site: str, *, fixed_key: bool = False
) -> None:
    """Refuse what gives no processors, or none of the kind that is needed.

    Args:
        supplier: gives a fresh processor, or operator, at each call.
        node: the name of the node, for errors.
        site: file and line of the user's program, for errors.
        fixed_key: whether it must give a `FixedKeyProcessor`.

    Raises:
        TopologyError: it is no function, gives the same object twice, or no processor, or one of
            the other kind.
    """
    if not takes(supplier, 0):
        raise TopologyError(
            "A processor supplier must be a class or a function without arguments that gives a "
            f"new processor at each call, but this one is {supplier!r}. If its processors need "
            "something, give lambda: MyProcessor(something).",
            node=node,
            declared_at=site,
        )
    if is_deferred(supplier):
        raise TopologyError(
            deferred_advice(f"The processor supplier {name_of(supplier)}", supplier),
            node=node,
            declared_at=site,
        )
    made = supplier()
    if made is supplier():
        raise TopologyError(
            "A supplier must give a new processor at each call, because each task needs its own, "
            "but it gave the same one twice.",
            node=node,
            declared_at=site,
        )
    if not callable(getattr(made, "process", None)):
        raise TopologyError(
            f"The supplier gave {type(made).__name__}, which has no method process(record). Give "
            "a class that extends Processor, or a function that makes one.",
            node=node,
            declared_at=site,
        )
    advice = deferred_method_advice(made, PROCESSOR_METHODS)
    if advice is not None:
        raise TopologyError(advice, node=node, declared_at=site)
    if isinstance(made, Processor if fixed_key else FixedKeyProcessor):
        wanted, use = (
            ("FixedKeyProcessor", "process")
            if fixed_key
            else (
                "Processor",
                "process_values",
            )
        )
        raise TopologyError(
            f"Here a {wanted} is needed, which {type(made).__qualname__} is not. "
            f"Use {use}() of the stream for it.",
            node=node,
            declared_at=site,
        )


def supplied_stores(supplier: Callable[[], Any]) -> list[StoreBuilder]:
    """The stores that a processor supplier brings along (`ConnectedStoreProvider`, KIP-401).

    A supplier may have a method `stores()`. For a class which is its own supplier that is a class
    or static method: one of its instances' does not count.
    """
    if inspect.isclass(supplier):
        found = inspect.getattr_static(supplier, "stores", None)
        if not isinstance(found, classmethod | staticmethod):
            return []
    stores = getattr(supplier, "stores", None)
    return list(stores()) if callable(stores) else []
