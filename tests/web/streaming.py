"""Gives tests a job that streams, and listeners at a real server."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import uvicorn
from starlette.applications import Starlette

from windlass import Context, Handle, Retry, Windlass
from windlass.web.server import address_of, listen

_PROMPT = 60


class Told:
    """What a handler streams, and the gate that it waits at after the first chunks."""

    def __init__(self, url: str = "memory://", **settings: Any) -> None:
        self.app = app = Windlass(url, **settings)
        self.gate = asyncio.Event()

        @app.job(retry=Retry(max_retries=1, initial="1ms"))
        async def tell(ctx: Context, first: list[Any], rest: list[Any], fail: str = "") -> None:
            for chunk in first:
                await ctx.stream(chunk)
            await self.gate.wait()
            if fail == "once" and ctx.attempt == 1:
                raise RuntimeError("once more")
            for chunk in rest:
                await ctx.stream(chunk)
            if fail == "always":
                raise RuntimeError("no more")

        self.tell = tell

    async def enqueue(self, first: list[Any], rest: list[Any], fail: str = "") -> Handle[None]:
        return await self.tell.aenqueue(first, rest, fail)


def events_in(text: str) -> list[tuple[str, str, Any]]:
    """Return the events of a response: type, id and data."""
    found = []
    for part in text.split("\n\n"):
        lines = dict(each.split(": ", 1) for each in part.splitlines() if not each.startswith(":"))
        if "data" in lines:
            event = lines.get("event", "message"), lines.get("id", ""), json.loads(lines["data"])
            found.append(event)
    return found


@asynccontextmanager
async def at_a_server(page: Starlette, **headers: str) -> AsyncIterator[httpx.AsyncClient]:
    """Serve a page by uvicorn, and give a client of it."""
    listening = listen("127.0.0.1", 0, has_login=False)
    server = uvicorn.Server(uvicorn.Config(page, log_config=None, lifespan="off"))
    task = asyncio.create_task(server.serve([listening]))
    try:
        async with httpx.AsyncClient(
            base_url=address_of(listening), headers=headers, timeout=_PROMPT
        ) as client:
            yield client
    finally:
        server.should_exit = True
        await asyncio.wait_for(task, _PROMPT)


async def events_of(response: httpx.Response) -> AsyncIterator[tuple[str, str, Any]]:
    text = ""
    async for part in response.aiter_text():
        text += part
        whole, mark, rest = text.rpartition("\n\n")
        for event in events_in(whole):
            yield event
        text = rest if mark else text
