"""Owns writing in groups: items that arrive while one group is written form the next."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Generic, TypeVar

from windlass.process.service import Service
from windlass.store import Store

T = TypeVar("T")
_ASIDE_SECONDS = 1.0
"""Seconds until an item that was set aside is written again."""


class GroupWriter(Service, Generic[T]):
    """Writes items to the store, in groups.

    A group whose fate is unknown because the connection failed is written again.
    """

    prompted = True

    def __init__(self, store: Store) -> None:
        super().__init__()
        self._store = store
        self._waiting: list[T] = []
        self._under_way: list[T] = []
        self._aside: list[T] = []
        self._added = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @property
    def is_idle(self) -> bool:
        """Whether everything that was added is in the store."""
        return not self._waiting and not self._under_way and not self._aside

    async def stop(self) -> None:
        """Stop after the group under way."""
        self._added.set()
        await super().stop()

    async def tick(self) -> float:
        if not self._waiting and not self._under_way and not self._stopping.is_set():
            self._added.clear()
            await self._added.wait()
        while self._waiting or self._under_way:
            await self.flush()
        return 0

    async def flush(self) -> None:
        """Write the group that is under way, or else the next one."""
        if not self._under_way:
            self._take_group()
        if self._under_way:
            await self._write(self._under_way)
            self._under_way = []

    async def _write(self, group: list[T]) -> None:
        raise NotImplementedError

    def _add(self, item: T) -> None:
        if not self._waiting:
            self._added.set()
        self._waiting.append(item)

    def _unwritten(self) -> Iterator[T]:
        yield from self._waiting
        yield from self._under_way
        yield from self._aside

    def _take_group(self) -> None:
        self._under_way, self._waiting = self._waiting, []

    def _set_aside(self, item: T) -> None:
        """Keep an item whose row is locked for later, so that it delays no other."""
        self._aside.append(item)
        self._loop.call_later(_ASIDE_SECONDS, self._take_up)

    def _take_up(self) -> None:
        aside, self._aside = self._aside, []
        for item in aside:
            self._add(item)
