"""What the calls of `map_async` share in a process, such as a client: opened once, and closed."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from typing import Any, Final

from millstream.errors import as_streams_error
from millstream.operators.apart.event_loop import event_loop
from millstream.unawaited import name_of

logger = logging.getLogger(__name__)

#: How long opening may take, and how long the last owner waits until the resource is closed.
_OPEN_S: Final = 30.0
_CLOSE_S: Final = 10.0

_lock = threading.Lock()
#: By the id of what makes them, and whether they belong to the event loop. Each holds what makes
#: it, so that no other object has that id meanwhile.
_resources: dict[tuple[int, bool], SharedResource] = {}


class SharedResource:
    """A resource, which all tasks of a process share that were given the same factory.

    ```
    opening ──► open ──► over ──► closed
    ```

    It is over when its last owner has released it, and closed when no call uses it any more: a call
    on a thread cannot be cancelled. Asynchronous context managers are entered and left by one task
    of the event loop, since cancel scopes demand that.

    Args:
        factory: makes the context manager.
        on_loop: whether it belongs to the event loop.

    Attributes:
        value: what entering the context manager gave.
        key: what it is found by.
        owners: how many operators hold it.
    """

    def __init__(self, factory: Callable[[], Any], *, on_loop: bool) -> None:
        self.value: Any = None
        self.key = id(factory), on_loop
        self._factory = factory
        self._on_loop = on_loop
        #: Guarded by the lock of the module.
        self.owners = 0
        self._opening = threading.Lock()
        self._is_open = False
        self._calls = 0
        self._calls_lock = threading.Lock()
        self._is_over = False
        self._exit = ExitStack()
        self._leave: asyncio.Event
        self._closed = threading.Event()

    def open(self) -> None:
        """Enter the context manager, unless another task has done so; wait until it is entered.

        Raises:
            Exception: whatever the factory or the context manager raised.
            TypeError: the factory made no context manager of the kind that the function takes.
        """
        with self._opening:
            if self._is_open:
                return
            manager = self._factory()
            self._check(manager)
            if not self._on_loop:
                self.value = self._exit.enter_context(manager)
            else:
                opened: Future[None] = Future()
                holding = asyncio.run_coroutine_threadsafe(
                    self._hold(manager, opened), event_loop()
                )
                try:
                    opened.result(_OPEN_S)
                except FutureTimeoutError as error:
                    if not opened.done():
                        holding.cancel()
                        raise TimeoutError(f"it was not open after {_OPEN_S:g} s") from error
                    raise
            self._is_open = True

    def bound(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """The function with the resource as its first argument, whose calls keep it open."""
        if self._on_loop:

            async def awaited(*arguments: Any) -> Any:
                self._begin()
                try:
                    return await function(self.value, *arguments)
                finally:
                    self._end()

            return awaited

        def called(*arguments: Any) -> Any:
            self._begin()
            try:
                return function(self.value, *arguments)
            finally:
                self._end()

        return called

    def end(self) -> None:
        """Close it when no call uses it; wait for that, but not long."""
        with self._calls_lock:
            self._is_over = True
            is_idle = self._calls == 0
        if is_idle:
            self._close()
        if self._is_open and not self._closed.wait(_CLOSE_S):
            logger.warning(
                "%s is not closed after %g s: calls still use it, or closing it takes longer",
                name_of(self._factory),
                _CLOSE_S,
            )

    def _begin(self) -> None:
        with self._calls_lock:
            self._calls += 1

    def _end(self) -> None:
        with self._calls_lock:
            self._calls -= 1
            is_last = self._is_over and self._calls == 0
        if is_last:
            self._close()

    def _close(self) -> None:
        if not self._is_open:
            return
        if self._on_loop:
            event_loop().call_soon_threadsafe(self._leave.set)
            return
        try:
            self._exit.close()
        except Exception as error:
            self._log(error)
        self._closed.set()

    async def _hold(self, manager: Any, opened: Future[None]) -> None:
        """Be in the context manager until the resource is over."""
        self._leave = asyncio.Event()
        try:
            if isinstance(manager, AbstractAsyncContextManager):
                async with manager as self.value:
                    opened.set_result(None)
                    await self._leave.wait()
            else:
                with manager as self.value:
                    opened.set_result(None)
                    await self._leave.wait()
        except Exception as error:
            if opened.done():
                self._log(error)
            else:
                opened.set_exception(error)
        finally:
            self._closed.set()

    def _check(self, manager: Any) -> None:
        name = name_of(self._factory)
        if isinstance(manager, AbstractContextManager):
            return
        if not isinstance(manager, AbstractAsyncContextManager):
            raise TypeError(
                f"{name} made {type(manager).__name__}, which is no context manager. Write it with "
                "@contextlib.asynccontextmanager and a yield."
            )
        if not self._on_loop:
            raise TypeError(
                f"{name} made an asynchronous context manager, but the mapper is a plain function. "
                "Make the mapper an async def function, or take @contextlib.contextmanager."
            )

    def _log(self, error: Exception) -> None:
        logger.warning("%s", as_streams_error(f"Closing {name_of(self._factory)}", error))


def acquire(factory: Callable[[], Any], *, on_loop: bool) -> SharedResource:
    """The resource of a factory in this process, opened by whoever acquires it first.

    Args:
        factory: makes the context manager.
        on_loop: whether it belongs to the event loop.

    Raises:
        Exception: as `SharedResource.open`.
    """
    with _lock:
        resource = _resources.get((id(factory), on_loop))
        if resource is None:
            resource = SharedResource(factory, on_loop=on_loop)
            _resources[resource.key] = resource
        resource.owners += 1
    try:
        resource.open()
    except BaseException:
        release(resource)
        raise
    return resource


def release(resource: SharedResource) -> None:
    """One owner less; the last one closes it."""
    with _lock:
        resource.owners -= 1
        is_last = resource.owners == 0
        if is_last:
            _resources.pop(resource.key, None)
    if is_last:
        resource.end()
