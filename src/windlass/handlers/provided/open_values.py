"""Owns the open provided values of this process: their opening, their closing, their values."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Any, Self, TypeVar

from windlass.core.errors import ProviderError
from windlass.handlers.provided.injection import needs_of, plain, show
from windlass.handlers.provided.providers import Provider, Providers
from windlass.observability.logs import get_logger

log = get_logger("windlass.handlers.provided")
T = TypeVar("T")
_CLOSE_SECONDS = 5.0
"""Seconds that the closing of one provided value may take."""
_CANCEL_SECONDS = 1.0
"""Seconds that a cancelled closing may take to end."""


class Provided:
    """The provided values of an app, open in one event loop: `provided[Pool]` is the pool.

    `async with Provided(providers)` opens all of them, each after those that it needs, and closes
    them in the opposite order, whatever happens.
    """

    def __init__(self, providers: Providers, *, patience: float = _CLOSE_SECONDS) -> None:
        self._providers = providers
        self._patience = patience
        self._lives: list[_Life] = []
        self._values: dict[Provider, Any] = {}
        self._given: dict[int, tuple[Callable[..., Any], Mapping[str, Any]]] = {}
        self.left_behind = 0
        """Number of closings that may still run although they were given up."""

    async def open(self) -> None:
        """Open all provided values. If one fails, those before it are closed again.

        Raises: ProviderError: one could not be opened. ConfigError: one needs another that does not
        exist, or they need each other in a circle.
        """
        ordered = self._providers.in_order()
        try:
            for provider in ordered:
                life = _Life(provider)
                self._lives.append(life)
                self._values[provider] = await life.open(self.given(provider.function))
                log.debug("provider.opened", provider=provider.name)
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Close the open provided values, the last one first. One that fails or hangs is logged and
        abandoned.
        """
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
        """Return the provided value of a type, or else the only one of a subclass.

        Raises: ConfigError: there is none, or several. ProviderError: it is not open.
        """
        value: T = self._value(plain(wanted), f"provided[{show(wanted)}] is asked for")
        return value

    def given(self, function: Callable[..., Any]) -> Mapping[str, Any]:
        """Return the arguments of a function that are provided values.

        Raises: ConfigError: one does not exist. ProviderError: one is not open.
        """
        known = self._given.get(id(function))
        if known is None:
            arguments = {
                need.parameter: self._value(need.type, f"`{need}` is asked for")
                for need in needs_of(function)
            }
            # The function is kept, so that no other one gets its id.
            known = self._given[id(function)] = (function, arguments)
        return known[1]

    def overrides(self) -> Mapping[Callable[..., Any], Callable[..., Any]]:
        """Return what is called instead of which dependency."""
        return self._providers.overrides_in_force()

    def _value(self, wanted: Any, asked: str) -> Any:
        provider = self._providers.find(wanted, asked)
        try:
            return self._values[provider]
        except KeyError:
            raise ProviderError(provider.name, "is not open: no worker runs here") from None


class _Life:
    """One provided value from its opening to its closing, in a task of its own.

    Cancel scopes and task groups must be left by the task that entered them.
    """

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._closing = asyncio.Event()
        self._opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def open(self, arguments: Mapping[str, Any]) -> Any:
        name = self._provider.name
        task = self._task = asyncio.create_task(self._live(arguments), name=f"windlass-{name}")
        await asyncio.wait({task, self._opened}, return_when=asyncio.FIRST_COMPLETED)
        if self._opened.done():
            return self._opened.result()
        if task.cancelled():
            raise ProviderError(name, "could not be opened: it was cancelled")
        error = task.exception()
        reason = f"could not be opened: {type(error).__qualname__}: {error}"
        raise ProviderError(name, reason) from error

    async def close(self, patience: float) -> bool:
        """Close within a bounded time; return False if that failed."""
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
            await asyncio.wait({task}, timeout=_CANCEL_SECONDS)
        elif not task.cancelled():
            error = task.exception()
        if was_open and error is not None:
            reason = f"{type(error).__qualname__}: {error}"
            log.warning("provider.not_closed", provider=self._provider.name, error=reason)
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
                # A program that ends cancels every task at once; but jobs that drain still need the
                # provided value, and their worker closes it afterwards.
                if task is not None:
                    task.uncancel()


@asynccontextmanager
async def _entered(
    function: Callable[..., Any], arguments: Mapping[str, Any]
) -> AsyncIterator[Any]:
    """Yield the value of a function, and resume a generator afterwards."""
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
