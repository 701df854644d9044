"""Owns the relay of the outbox: every worker reads it, and each entry is handled once.

Handlers act on the entries, one for each prefix of topics.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from typing import Protocol

from windlass.core.errors import StoreError
from windlass.observability.logs import get_logger
from windlass.process.service import Service
from windlass.store import Store

log = get_logger("windlass.outbox_relay")
_MAX_TOPICS = 100
_POLL_SECONDS = 0.5
_MAX_PAUSE_SECONDS = 0.1
_SKIP_SECONDS = 5.0
"""Seconds for which a topic is skipped after its entries could not be handled."""


class AlarmHandler(Protocol):
    """Acts on the alarms of records whose names have one prefix."""

    async def forget(self, names: Sequence[str]) -> None:
        """Act on records whose alarms are due."""


class NewsHandler(AlarmHandler, Protocol):
    """Acts on the entries, too."""

    async def hear(self, topics: Sequence[str]) -> None:
        """Take the entries of some topics by `Store.hear`, and do what follows."""


class OutboxRelay(Service):
    """Reads the outbox twice a second, and at once when notified, and passes entries to handlers.

    `handlers` has one for each prefix, like `flow:`. The settling of a job notifies the relay by
    `tell`. Entries that arrive while others are handled are handled together afterwards.
    """

    name = "outbox_relay"

    def __init__(self, store: Store, handlers: Mapping[str, NewsHandler]) -> None:
        super().__init__()
        self._store = store
        self._handlers = handlers
        self._topics: dict[str, None] = {}
        self._hearing = False
        self._roused = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._next_look = 0.0
        self._resting: dict[str, float] = {}
        self._breather = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether entries that it was notified of have not been handled yet."""
        return self._hearing or bool(self._topics)

    def rouse(self) -> None:
        """Read the outbox now."""
        self._next_look = 0.0
        self._roused.set()

    def tell(self, topic: str) -> None:
        """Notify the relay of entries of a topic, to be handled at once."""
        self._topics[topic] = None
        self._roused.set()

    async def is_anything_left(self) -> bool:
        """Return whether the outbox has entries that this worker would handle."""
        return self.is_busy or any(map(self._handler_of, await self._store.topics(_MAX_TOPICS)))

    async def stop(self) -> None:
        """Stop after the round under way; other workers handle the rest."""
        self._roused.set()
        await super().stop()

    async def round(self) -> None:
        """Read the outbox now, and handle every entry."""
        self.rouse()
        await self.tick()

    async def tick(self) -> float:
        await self._wait()
        self._hearing = True
        try:
            topics, self._topics = list(self._topics), {}
            is_look = self._loop.time() >= self._next_look
            if is_look:
                topics += [
                    each for each in await self._store.topics(_MAX_TOPICS) if each not in topics
                ]
                # Spread, so that workers do not read at the same moment: a late one finds nothing.
                self._next_look = self._loop.time() + _POLL_SECONDS * random.uniform(0.8, 1.2)  # noqa: S311
            began = self._loop.time()
            heard = await self._hear_all(topics)
            self._breather = min(self._loop.time() - began, _MAX_PAUSE_SECONDS)
            if is_look and heard:
                self._next_look = 0.0  # There may be more entries than one read returns.
        finally:
            self._hearing = False
        # A pause as long as the round took: ends that happen meanwhile are handled together.
        return self._breather if topics else 0

    async def _wait(self) -> None:
        self._roused.clear()
        pause = self._next_look - self._loop.time()
        if self._topics or pause <= 0 or self._stopping.is_set():
            return
        try:
            async with asyncio.timeout(pause):
                await self._roused.wait()
        except TimeoutError:
            return

    async def _hear_all(self, topics: Sequence[str]) -> int:
        """Pass topics to their handlers; return for how many of them that succeeded."""
        by_handler: dict[NewsHandler, list[str]] = {}
        now = self._loop.time()
        for topic in topics:
            handler = self._handler_of(topic)
            if handler is not None and self._resting.get(topic, 0.0) <= now:
                by_handler.setdefault(handler, []).append(topic)
        heard = 0
        for handler, wanted in by_handler.items():
            for start in range(0, len(wanted), _MAX_TOPICS):
                heard += await self._hear(handler, wanted[start : start + _MAX_TOPICS])
        return heard

    async def _hear(self, handler: NewsHandler, topics: Sequence[str]) -> int:
        """Handle topics together; if that fails, one by one, so that one does not block
        the others.
        """
        try:
            await handler.hear(topics)
        except StoreError:
            raise
        except Exception:
            if len(topics) > 1:
                return sum([await self._hear(handler, [topic]) for topic in topics])
            log.exception("news.unheard", topic=topics[0], next_in=_SKIP_SECONDS)
            self._resting = {**self._still_resting(), topics[0]: self._loop.time() + _SKIP_SECONDS}
            return 0
        return len(topics)

    def _still_resting(self) -> dict[str, float]:
        now = self._loop.time()
        return {topic: until for topic, until in self._resting.items() if until > now}

    def _handler_of(self, topic: str) -> NewsHandler | None:
        prefix, colon, _ = topic.partition(":")
        return self._handlers.get(prefix + colon)
