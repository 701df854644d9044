"""Owns the way of news to those who act on them: every worker hears, and each piece is heard once.

What is done about them is the hearers' affair, one for each prefix of topics.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence

from windlass.core.errors import StoreError
from windlass.observe.logs import get_logger
from windlass.runtime.service import Service
from windlass.store import Store

log = get_logger("windlass.courier")
Hearer = Callable[[Sequence[str]], Awaitable[object]]
"""Hears the news of some topics with one prefix, by `Store.hear`, and does what follows."""
_TOPICS = 100
_LOOK = 0.5
_BREATHER = 0.1
_REST = 5.0
"""Seconds for which a topic is left alone whose news could not be heard."""


class Courier(Service):
    """Looks for news twice a second, and at once when told, and takes them to their hearers.

    `hearers` has one for each prefix, like `flow:`. Whoever settles a job tells the courier of it
    by `tell`. What comes while some are heard is heard together afterwards.
    """

    name = "courier"

    def __init__(self, store: Store, hearers: Mapping[str, Hearer]) -> None:
        super().__init__()
        self._store = store
        self._hearers = hearers
        self._told: dict[str, None] = {}
        self._hearing = False
        self._roused = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._next_look = 0.0
        self._resting: dict[str, float] = {}
        self._breather = 0.0

    @property
    def is_busy(self) -> bool:
        """Whether news that it was told of have not been heard yet."""
        return self._hearing or bool(self._told)

    def rouse(self) -> None:
        """Look for news now."""
        self._next_look = 0.0
        self._roused.set()

    def tell(self, topic: str) -> None:
        """Say that there are news of a topic, to be heard at once."""
        self._told[topic] = None
        self._roused.set()

    async def is_anything_left(self) -> bool:
        """Say whether there are news that somebody here would hear."""
        return self.is_busy or any(map(self._hearer_of, await self._store.topics(_TOPICS)))

    async def stop(self) -> None:
        """End after the round under way. What is not heard then, others hear."""
        self._roused.set()
        await super().stop()

    async def round(self) -> None:
        """Look now, and hear all there is."""
        self.rouse()
        await self.tick()

    async def tick(self) -> float:
        await self._wait()
        self._hearing = True
        try:
            topics, self._told = list(self._told), {}
            is_look = self._loop.time() >= self._next_look
            if is_look:
                topics += [each for each in await self._store.topics(_TOPICS) if each not in topics]
                # Workers do not look all at the same moment: one that is late finds nothing.
                self._next_look = self._loop.time() + _LOOK * random.uniform(0.8, 1.2)  # noqa: S311
            began = self._loop.time()
            heard = await self._hear_all(topics)
            self._breather = min(self._loop.time() - began, _BREATHER)
            if is_look and heard:
                self._next_look = 0.0  # There may be more than one look shows.
        finally:
            self._hearing = False
        # As long again as that took: what ends meanwhile is heard together.
        return self._breather if topics else 0

    async def _wait(self) -> None:
        """Wait until it is time to look, or somebody says something."""
        self._roused.clear()
        pause = self._next_look - self._loop.time()
        if self._told or pause <= 0 or self._stopping.is_set():
            return
        try:
            async with asyncio.timeout(pause):
                await self._roused.wait()
        except TimeoutError:
            return

    async def _hear_all(self, topics: Sequence[str]) -> int:
        """Take topics to their hearers; return of how many the news were heard."""
        by_hearer: dict[Hearer, list[str]] = {}
        now = self._loop.time()
        for topic in topics:
            hearer = self._hearer_of(topic)
            if hearer is not None and self._resting.get(topic, 0.0) <= now:
                by_hearer.setdefault(hearer, []).append(topic)
        heard = 0
        for hearer, wanted in by_hearer.items():
            for start in range(0, len(wanted), _TOPICS):
                heard += await self._hear(hearer, wanted[start : start + _TOPICS])
        return heard

    async def _hear(self, hearer: Hearer, topics: Sequence[str]) -> int:
        """Hear topics together; if that fails, each for itself, so that one holds up no other."""
        try:
            await hearer(topics)
        except StoreError:
            raise
        except Exception:
            if len(topics) > 1:
                return sum([await self._hear(hearer, [topic]) for topic in topics])
            log.exception("news.unheard", topic=topics[0], next_in=_REST)
            self._resting = {**self._still_resting(), topics[0]: self._loop.time() + _REST}
            return 0
        return len(topics)

    def _still_resting(self) -> dict[str, float]:
        now = self._loop.time()
        return {topic: until for topic, until in self._resting.items() if until > now}

    def _hearer_of(self, topic: str) -> Hearer | None:
        prefix, colon, _ = topic.partition(":")
        return self._hearers.get(prefix + colon)
