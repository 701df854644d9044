"""Owns which connections belong to which event loop; no other loop can use them."""

from __future__ import annotations

import asyncio
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar


class _Listener(Protocol):
    @property
    def listening(self) -> bool: ...
    async def close(self) -> None: ...


class OfOneLoop(ABC):
    """The connections of the event loop in which this is made."""

    listener: _Listener
    """The connection that receives notifications of new jobs."""

    def __init__(self) -> None:
        self._loop = weakref.ref(asyncio.get_running_loop())

    @property
    def is_abandoned(self) -> bool:
        """Whether the event loop is closed, so that its connections cannot be used again."""
        loop = self._loop()
        return loop is None or loop.is_closed()

    async def close(self) -> None:
        """Stop listening, and close every connection."""
        await self.listener.close()
        self.close_now()

    @abstractmethod
    def close_now(self) -> None:
        """Close every connection at once, without waiting for a server."""


ConnectionsT = TypeVar("ConnectionsT", bound=OfOneLoop)


class PerLoop(Generic[ConnectionsT]):
    """The connections of every event loop of this process that uses a store."""

    def __init__(self) -> None:
        self._by_loop: dict[int, ConnectionsT] = {}
        self._lock = threading.Lock()

    @property
    def all(self) -> list[ConnectionsT]:
        """The connections of all event loops."""
        with self._lock:
            return list(self._by_loop.values())

    @property
    def listening(self) -> bool:
        """Whether any event loop receives notifications of new jobs."""
        return any(here.listener.listening for here in self.all)

    def here(self, make: Callable[[], ConnectionsT]) -> ConnectionsT:
        """Return the connections of the running event loop, which only that loop can use.

        `make` is not kept, so that a store without users is collected at once.
        """
        key = id(asyncio.get_running_loop())
        here = self._by_loop.get(key)
        if here is None or here.is_abandoned:
            self._close_abandoned()
            here = make()
            with self._lock:
                self._by_loop[key] = here
        return here

    async def close_here(self) -> None:
        """Close the connections of the running event loop, and those of closed loops."""
        key = id(asyncio.get_running_loop())
        here = self._by_loop.get(key)
        if here is not None:
            # Removed only afterwards: closing the listener takes one more statement.
            await here.close()
            with self._lock:
                self._by_loop.pop(key, None)
        self._close_abandoned()

    def _close_abandoned(self) -> None:
        with self._lock:
            for key, here in list(self._by_loop.items()):
                if here.is_abandoned:
                    here.close_now()
                    del self._by_loop[key]
