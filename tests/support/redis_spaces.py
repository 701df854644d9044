"""Gives tests an app with spaces."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from windlass import Windlass

SPACES = {"mail": ["mail", "mail-*"], "bulk": "import"}


def app_at(url: str, **settings: Any) -> Windlass:
    app = Windlass(url, spaces=SPACES, **settings)

    @app.job(queue="mail")
    async def send(number: int) -> int:
        return number

    @app.job
    async def plain(number: int) -> int:
        return await (await send.aenqueue(number)).aresult("30s")

    return app


@asynccontextmanager
async def used(app: Windlass) -> AsyncIterator[dict[str, Any]]:
    try:
        yield {kind: app.producer(kind) for kind in app.registry}
    finally:
        await app.aclose()
