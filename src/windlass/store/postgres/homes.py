"""Owns which connections belong to which event loop; those of loops that are gone are let go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from windlass.store.postgres.home import Home
from windlass.store.postgres.pool import AsyncPool


class Homes:
    """A home for every event loop of this process that uses the store."""

    def __init__(self) -> None:
        self._homes: dict[int, Home] = {}
        self._lock = threading.Lock()

    @property
    def listening(self) -> bool:
        """Whether any event loop hears of new jobs."""
        with self._lock:
            return any(home.ear.listening for home in self._homes.values())

    @property
    def pools(self) -> list[AsyncPool]:
        """The pools of all event loops."""
        with self._lock:
            return [home.pool for home in self._homes.values()]

    def here(self, make: Callable[[], Home]) -> Home:
        """Return the connections of the running event loop, which nobody else can use.

        Who makes them is told here, and not kept: a store that nobody uses goes at once.
        """
        key = id(asyncio.get_running_loop())
        home = self._homes.get(key)
        if home is None or home.is_abandoned:
            self._leave_abandoned()
            home = make()
            with self._lock:
                self._homes[key] = home
        return home

    async def close_here(self) -> None:
        """Let go of what the running event loop has, and of what closed ones have left behind."""
        key = id(asyncio.get_running_loop())
        home = self._homes.get(key)
        if home is not None:
            # Forgotten only afterwards: to close an ear takes one more word by this home's line.
            await home.close()
            with self._lock:
                self._homes.pop(key, None)
        self._leave_abandoned()

    def _leave_abandoned(self) -> None:
        """Close what event loops have left behind that are closed themselves."""
        with self._lock:
            for key, home in list(self._homes.items()):
                if home.is_abandoned:
                    home.hang_up()
                    del self._homes[key]
