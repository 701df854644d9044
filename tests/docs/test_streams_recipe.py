"""The recipe of the page on streams for Starlette is Python, and sends what a job streams."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.docs.test_docs import blocks_of
from tests.support.app_on_store import serving
from windlass import Context, Windlass

PAGE = "docs/streams.md"


def block(start: str) -> str:
    (text,) = [each.text for each in blocks_of(PAGE) if each.text.startswith(start)]
    return text


def generator() -> str:
    """Return the generator of events, without the program that shows it."""
    text = block("import json")
    return text[: text.index("async def show")]


def test_the_recipe_is_python() -> None:
    compile(block("from starlette"), PAGE, "exec")


def test_the_recipe_sends_the_stream_of_a_job() -> None:
    pytest.importorskip("starlette")
    app = Windlass("memory://")

    @app.job
    async def answer(ctx: Context) -> None:
        for word in ("a", "b", "c"):
            await ctx.stream(word)

    names: dict[str, Any] = {"app": app}
    head = "from collections.abc import AsyncIterator\nfrom windlass import Handle, StreamRestart\n"
    exec(head + generator() + block("from starlette"), names)

    async def main() -> tuple[bytes, bytes]:
        async with serving(app):
            job = (await answer.aenqueue()).id
            whole = await asked(names["web"], f"/answers/{job}")
            return whole, await asked(names["web"], f"/answers/{job}", b"1-2")

    whole, rest = asyncio.run(main())
    assert whole.startswith(b'id: 1-1\ndata: "a"\n\nid: 1-2\ndata: "b"\n\n')
    assert rest == b'id: 1-3\ndata: "c"\n\nevent: end\ndata:\n\n'


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
