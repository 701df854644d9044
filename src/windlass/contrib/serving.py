"""Owns how a server keeps an app open: its store is opened first, and closed last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from windlass.app import Windlass


@asynccontextmanager
async def opened(app: Windlass) -> AsyncIterator[None]:
    """Open the store of an app, so that a wrong URL is found now, and close it at the end."""
    try:
        await app.store.open()
        yield
    finally:
        # First: a store closes the connections of loops that have ended, not of others.
        await asyncio.to_thread(app.portal.close)
        await app.aclose()
