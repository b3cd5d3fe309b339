"""Resources shared by a process's `map_async` calls, such as an HTTP client."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import AbstractAsyncContextManager, AbstractContextManager, ExitStack
from typing import Any, Final

from millstream.async_checks import name_of
from millstream.errors import as_streams_error
from millstream.operators.concurrent.event_loop import event_loop

logger = logging.getLogger(__name__)

#: The timeout for opening, and the maximum time that the last owner waits for closing.
_OPEN_S: Final = 30.0
_CLOSE_S: Final = 10.0

_lock = threading.Lock()
#: Resources by the id of their factory and whether they belong to the event loop. Each resource
#: keeps a reference to its factory, so that no other object gets the same id.
_resources: dict[tuple[int, bool], SharedResource] = {}


class SharedResource:
    """A resource that all tasks with the same factory share within a process.

    ```
    opening ──► open ──► released ──► closed
    ```

    A resource is released when its last owner releases it. It is closed when no call uses it
    anymore, because a call on a thread cannot be canceled. An asynchronous context manager is
    entered and exited by the same task of the event loop, because cancel scopes require that.
    """

    def __init__(self, factory: Callable[[], Any], *, on_loop: bool) -> None:
        #: The value of the `as` target.
        self.value: Any = None
        self.key = id(factory), on_loop
        self._factory = factory
        self._on_loop = on_loop
        #: Guarded by the module's lock.
        self.owners = 0
        self._opening = threading.Lock()
        self._is_open = False
        self._calls = 0
        self._calls_lock = threading.Lock()
        self._is_released = False
        self._exit = ExitStack()
        self._leave: asyncio.Event
        self._closed = threading.Event()

    def open(self) -> None:
        """Open the resource, unless another task has, and wait until it is open.

        Raises:
            Exception: any error of the factory or the context manager.
            TypeError: the factory did not return a context manager of the required kind.
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
                        raise TimeoutError(f"not open after {_OPEN_S:g} s") from error
                    raise
            self._is_open = True

    def bound(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Bind the first argument of a function to the resource.

        Calls keep the resource open.
        """
        if self._on_loop:

            async def awaited(*arguments: Any) -> Any:
                self._call_started()
                try:
                    return await function(self.value, *arguments)
                finally:
                    self._call_finished()

            return awaited

        def called(*arguments: Any) -> Any:
            self._call_started()
            try:
                return function(self.value, *arguments)
            finally:
                self._call_finished()

        return called

    def close_when_idle(self) -> None:
        """Close the resource as soon as no call uses it. Waits up to 10 s."""
        with self._calls_lock:
            self._is_released = True
            is_idle = self._calls == 0
        if is_idle:
            self._close()
        if self._is_open and not self._closed.wait(_CLOSE_S):
            logger.warning(
                "%s is not closed after %g s: calls still use the resource, or closing takes "
                "longer",
                name_of(self._factory),
                _CLOSE_S,
            )

    def _call_started(self) -> None:
        with self._calls_lock:
            self._calls += 1

    def _call_finished(self) -> None:
        with self._calls_lock:
            self._calls -= 1
            is_last = self._is_released and self._calls == 0
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
        """Stay inside the context manager until the resource is released."""
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
                f"{name} returned {type(manager).__name__}, which is not a context manager. "
                "Decorate the function with @contextlib.contextmanager or "
                "@contextlib.asynccontextmanager, and yield the resource."
            )
        if not self._on_loop:
            raise TypeError(
                f"{name} returned an asynchronous context manager, but the mapper is a plain "
                "function. Make the mapper an async def function, or use "
                "@contextlib.contextmanager."
            )

    def _log(self, error: Exception) -> None:
        logger.warning("%s", as_streams_error(f"Closing {name_of(self._factory)}", error))


def acquire(factory: Callable[[], Any], *, on_loop: bool) -> SharedResource:
    """Return the resource of a factory, opened by the first caller in the process.

    Raises:
        Exception: any error of `SharedResource.open`.
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
    """Release a resource. The last release closes it."""
    with _lock:
        resource.owners -= 1
        is_last = resource.owners == 0
        if is_last:
            _resources.pop(resource.key, None)
    if is_last:
        resource.close_when_idle()
