"""The recipe of the page on streams for Starlette sends what a job streams, and leaks nothing."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from tests.docs.test_docs import blocks_of
from tests.support.app_on_store import serving, until
from windlass import Context, PermanentError, Windlass
from windlass.web.server import address_of, listen

PAGE = "docs/streams.md"


def block(start: str) -> str:
    (text,) = [each.text for each in blocks_of(PAGE) if each.text.startswith(start)]
    return text


def generator() -> str:
    """Return the generator of events, without the program that shows it."""
    text = block("import json")
    return text[: text.index("async def show")]


def recipe(app: Windlass) -> dict[str, Any]:
    """Return the names of the recipe, for the jobs of an app."""
    names: dict[str, Any] = {"app": app}
    head = "from collections.abc import AsyncIterator\nfrom windlass import Handle, StreamRestart\n"
    exec(head + generator() + block("from starlette"), names)
    return names


def test_the_recipe_sends_the_stream_of_a_job() -> None:
    app = Windlass("memory://")

    @app.job
    async def answer(ctx: Context) -> None:
        for word in ("a", "b", "c"):
            await ctx.stream(word)

    async def main() -> tuple[bytes, bytes]:
        web = recipe(app)["web"]
        async with serving(app):
            job = (await answer.aenqueue()).id
            whole = await asked(web, f"/answers/{job}")
            return whole, await asked(web, f"/answers/{job}", b"1-2")

    whole, rest = asyncio.run(main())
    assert whole.startswith(b'id: 1-1\ndata: "a"\n\nid: 1-2\ndata: "b"\n\n')
    assert rest == b'id: 1-3\ndata: "c"\n\nevent: end\ndata: {"state": "completed"}\n\n'


def test_the_recipe_says_that_a_job_died() -> None:
    app = Windlass("memory://")

    @app.job
    async def answer(ctx: Context) -> None:
        await ctx.stream("a")
        raise PermanentError("no more")

    async def main() -> bytes:
        async with serving(app):
            return await asked(recipe(app)["web"], f"/answers/{(await answer.aenqueue()).id}")

    assert asyncio.run(main()).endswith(b'event: end\ndata: {"state": "dead"}\n\n')


def test_a_client_of_the_recipe_that_disconnects_leaves_nothing_behind(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path / 'jobs.db'}")

    async def main() -> None:
        gate = asyncio.Event()

        @app.job
        async def answer(ctx: Context) -> None:
            await ctx.stream("a")
            await gate.wait()

        names = recipe(app)
        events, running = names["events"], []

        async def watched(*args: Any) -> Any:
            running.append(args)
            try:
                async for event in events(*args):
                    yield event
            finally:
                running.remove(args)

        names["events"] = watched
        listening = listen("127.0.0.1", 0, has_login=False)
        config = uvicorn.Config(
            names["web"], log_config=None, lifespan="off", timeout_graceful_shutdown=5
        )
        server = uvicorn.Server(config)
        served = asyncio.create_task(server.serve([listening]))
        async with serving(app):
            job = (await answer.aenqueue()).id
            path = f"{address_of(listening)}answers/{job}"
            async with httpx.AsyncClient(timeout=60) as client:
                async with client.stream("GET", path) as response:
                    assert await anext(response.aiter_text()) == 'id: 1-1\ndata: "a"\n\n'
                    assert len(running) == 1
                await until(lambda: not running)
            gate.set()
        server.should_exit = True
        await asyncio.wait_for(served, 60)
        await app.aclose()

    asyncio.run(main())


async def asked(web: Any, path: str, last: bytes | None = None) -> bytes:
    """Return the body that an ASGI app sends."""
    headers = [] if last is None else [(b"last-event-id", last)]
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "method": "GET",
        "path": path,
        "raw_path": path.encode(),
        "query_string": b"",
        "headers": headers,
    }
    body = b""

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        nonlocal body
        if message["type"] == "http.response.start":
            assert message["status"] == 200
            assert (b"content-type", b"text/event-stream; charset=utf-8") in message["headers"]
        body += message.get("body", b"")

    await web(scope, receive, send)
    return body
