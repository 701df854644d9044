"""Owns the resources that are open in this process: their opening, their closing, their values."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from windlass.core.errors import ResourceError
from windlass.observe.logs import get_logger
from windlass.resources.asking import needs_of, plain, show
from windlass.resources.providers import Provider, Providers

log = get_logger("windlass.resources")
T = TypeVar("T")
_PATIENCE = 5.0
"""Seconds that the closing of one resource may take."""
_HEED = 1.0
"""Seconds in which a closing that was cancelled may come to its end."""


class Resources:
    """The resources of an app, open in one event loop: `resources[Pool]` is the pool.

    `async with Resources(providers)` opens all of them, each after those that it needs, and closes
    them in the opposite order, whatever happens.
    """

    def __init__(self, providers: Providers, *, patience: float = _PATIENCE) -> None:
        self._providers = providers
        self._patience = patience
        self._lives: list[_Life] = []
        self._values: dict[Provider, Any] = {}
        self._given: dict[int, tuple[Callable[..., Any], Mapping[str, Any]]] = {}
        self.left_behind = 0
        """How many closings still run, for all that is known, although nobody waits for them."""

    async def open(self) -> None:
        """Open them all. If one fails, those before it are closed again.

        Raises:
            ResourceError: one could not be opened.
            ConfigError: one needs what is not there, or they need each other in a circle.
        """
        ordered = self._providers.in_order()
        try:
            for provider in ordered:
                life = _Life(provider)
                self._lives.append(life)
                self._values[provider] = await life.open(self.given(provider.function))
                log.debug("resource.opened", resource=provider.name)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close what is open, the last one first. One that fails, or hangs, is logged and left."""
        while self._lives:
            life = self._lives.pop()
            self.left_behind += not await life.close(self._patience)
        self._values.clear()
        self._given.clear()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    def __getitem__(self, wanted: type[T]) -> T:
        """Return the resource of a type, else the only one of a subclass.

        Raises:
            ConfigError: there is none, or several.
            ResourceError: it is not open.
        """
        value: T = self._value(plain(wanted), f"resources[{show(wanted)}] is asked for")
        return value

    def given(self, function: Callable[..., Any]) -> Mapping[str, Any]:
        """Return the arguments of a function that come from here.

        Raises:
            ConfigError: it asks for what is not there.
            ResourceError: what it asks for is not open.
        """
        known = self._given.get(id(function))
        if known is None:
            arguments = {
                need.parameter: self._value(need.type, f"`{need}` is asked for")
                for need in needs_of(function)
            }
            # With the function, so that nobody else gets its id.
            known = self._given[id(function)] = (function, arguments)
        return known[1]

    def _value(self, wanted: Any, asked: str) -> Any:
        provider = self._providers.find(wanted, asked)
        try:
            return self._values[provider]
        except KeyError:
            raise ResourceError(provider.name, "is not open: no worker runs here") from None


class _Life:
    """One resource from its opening to its closing, in a task of its own.

    Cancel scopes and task groups must be left by the task that entered them.
    """

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._closing = asyncio.Event()
        self._opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def open(self, arguments: Mapping[str, Any]) -> Any:
        """Begin, and return the resource."""
        name = self._provider.name
        task = self._task = asyncio.create_task(self._live(arguments), name=f"windlass-{name}")
        await asyncio.wait({task, self._opened}, return_when=asyncio.FIRST_COMPLETED)
        if self._opened.done():
            return self._opened.result()
        if task.cancelled():
            raise ResourceError(name, "could not be opened: it was cancelled")
        error = task.exception()
        reason = f"could not be opened: {type(error).__qualname__}: {error}"
        raise ResourceError(name, reason) from error

    async def close(self, patience: float) -> bool:
        """End, within a bounded time; False if it did not."""
        task = self._task
        if task is None:
            return True
        self._closing.set()
        was_open = self._opened.done()
        if was_open:
            await asyncio.wait({task}, timeout=patience)
        error: BaseException | None = None
        if not task.done():
            error = TimeoutError(f"no end within {patience:g} s")
            task.cancel()
            await asyncio.wait({task}, timeout=_HEED)
        elif not task.cancelled():
            error = task.exception()
        if was_open and error is not None:
            told = f"{type(error).__qualname__}: {error}"
            log.warning("resource.not_closed", resource=self._provider.name, error=told)
        return task.done()

    async def _live(self, arguments: Mapping[str, Any]) -> None:
        async with _entered(self._provider.function, arguments) as value:
            self._opened.set_result(value)
            await self._until_closing(asyncio.current_task())

    async def _until_closing(self, task: asyncio.Task[None] | None) -> None:
        while not self._closing.is_set():
            try:
                await self._closing.wait()
            except asyncio.CancelledError:
                # A program that ends cancels every task at once; the jobs that drain now need this
                # until they have ended, and whoever opened it closes it then.
                if task is not None:
                    task.uncancel()


@asynccontextmanager
async def _entered(
    function: Callable[..., Any], arguments: Mapping[str, Any]
) -> AsyncIterator[Any]:
    """Give what a function yields or returns, and let one that yields go on afterwards."""
    if inspect.isasyncgenfunction(function):
        async with asynccontextmanager(function)(**arguments) as value:
            yield value
    elif inspect.isgeneratorfunction(function):
        with contextmanager(function)(**arguments) as value:
            yield value
    elif inspect.iscoroutinefunction(function):
        yield await function(**arguments)
    else:
        yield function(**arguments)
