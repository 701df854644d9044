"""Owns a snapshot of a store: the figures and pauses that one screen or page shows."""

from __future__ import annotations

from msgspec import Struct

from windlass.app.app import Windlass
from windlass.app.masking import redaction_of
from windlass.app.stats import Slow, gather_facts
from windlass.core.policies.pauses import Pauses
from windlass.core.stats.live_counts import Trend
from windlass.core.stats.stats import Stats, StatsFacts, stats_of


class Snapshot(Struct, frozen=True, kw_only=True):
    """The store's answer at one moment."""

    stats: Stats
    pauses: Pauses
    location: str = ""
    facts: StatsFacts | None = None
    """The data of the figures, for those who see a part of them; None: not kept."""


async def take_snapshot(
    app: Windlass, slow: Slow | None = None, trend: Trend | None = None
) -> Snapshot:
    """Read the store once, or repeatedly with the same `slow` and `trend`."""
    facts = await gather_facts(app.store, redaction_of(app), slow=slow, trend=trend)
    pauses = await app.control.apaused()
    return Snapshot(stats=stats_of(facts), pauses=pauses, location=app.store.location, facts=facts)
