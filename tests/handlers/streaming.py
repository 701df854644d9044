"""Owns how tests run one job that streams, and hear its chunks."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.app_on_store import serving, until
from windlass import Handle, State, Windlass

PATIENT = "60s"


async def heard(handle: Handle[Any]) -> list[Any]:
    return [chunk async for chunk in handle.astream(timeout=PATIENT)]


def run(app: Windlass, job: Any) -> tuple[Any, list[Any]]:
    """Run a job; return its result, and what it has streamed."""

    async def main() -> tuple[Any, list[Any]]:
        async with serving(app):
            handle = await job.aenqueue()
            await until(lambda: _has_ended(handle))
            chunks = await heard(handle)
            return await handle.aresult(), chunks

    return asyncio.run(main())


async def _has_ended(handle: Handle[Any]) -> bool:
    return await handle.astate() in {State.COMPLETED, State.DEAD}
