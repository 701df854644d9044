"""Owns a worker's part in events: delivering them to waiting jobs, and deleting old ones."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.workflows.events import forget_events, hear_events
from windlass.observability.logs import get_logger
from windlass.store import Store

log = get_logger("windlass.events")


class EventDelivery:
    """Delivers events to the jobs that wait for them, and deletes those past their retention."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def hear(self, topics: Sequence[str]) -> None:
        """Record the events that were sent, for jobs that wait now or later."""
        heard = await self._store.hear(topics, hear_events)
        fields = {"count": heard.answer.count, "topics": sorted(topics)[:10]}
        if heard.answer.count:
            log.info("events.heard", **fields)
        if heard.answer.dropped:
            why = "their data is not valid JSON; send events with send_event"
            log.warning("events.dropped", **fields | {"count": heard.answer.dropped}, why=why)

    async def forget(self, names: Sequence[str]) -> None:
        """Delete the records of events whose retention is over."""
        await self._store.apply(names, forget_events)
