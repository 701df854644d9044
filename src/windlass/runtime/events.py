"""Owns what a worker does about events: notes them where waiting jobs look, and forgets them."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.events import forget_events, hear_events
from windlass.observe.logs import get_logger
from windlass.store import Store

log = get_logger("windlass.events")


class Events:
    """Hears of events, frees whoever waits for one, and forgets those past keeping."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def hear(self, topics: Sequence[str]) -> None:
        """Note what was sent, for those who wait and those who will."""
        heard = await self._store.hear(topics, hear_events)
        told = {"count": heard.answer.count, "topics": sorted(topics)[:10]}
        if heard.answer.count:
            log.info("events.heard", **told)
        if heard.answer.dropped:
            why = "what they bring along is no JSON that can be read; send them with send_event"
            log.warning("events.dropped", **told | {"count": heard.answer.dropped}, why=why)

    async def forget(self, names: Sequence[str]) -> None:
        """Delete the records of events that are past keeping, whose alarms went off."""
        await self._store.apply(names, forget_events)
