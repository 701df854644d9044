"""Owns the look at the schema while a worker serves: a later one may be for newer releases only."""

from __future__ import annotations

from collections.abc import Callable

from windlass.observe.logs import get_logger
from windlass.runtime.service import Service
from windlass.store import Store

log = get_logger("windlass.worker")
LOOK = 60.0
"""Seconds between two looks, and so the longest that a worker goes on where it may not."""


class SchemaWatch(Service):
    """Notices a schema that does not serve this release any more, and says what to do.

    Nothing else ends a worker here: not a newer schema that serves it, and not a store that is
    away, or was emptied, and may be back in a moment.
    """

    name = "schema"

    def __init__(self, store: Store, *, outgrown: Callable[[str], None]) -> None:
        super().__init__()
        self._store = store
        self._outgrown = outgrown
        self._has_begun = False
        self._has_told = False

    async def tick(self) -> float:
        if not self._has_begun:
            self._has_begun = True
            return LOOK  # Whoever opened the store has looked.
        schema = await self._store.schema()
        if schema.is_outgrowing and not self._has_told:
            self._has_told = True
            log.error(
                "schema.outgrown",
                found=schema.found,
                wanted=schema.wanted,
                remedy="upgrade windlass here: the schema is for newer releases only",
            )
            self._outgrown(f"schema {schema.found} is for newer releases only")
        return LOOK
