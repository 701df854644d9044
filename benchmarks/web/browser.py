"""Owns requests to the page without a network: an ASGI call, its time, and its bytes."""

from __future__ import annotations

import asyncio
import gzip
import re
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from starlette.applications import Starlette

_ASSET = re.compile(r'(?:href|src)="(/static/[^"]+\.(?:css|js))"')
_IMPORT = re.compile(r'from "\./([^"]+)"')


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What came back, and how long the server took for it."""

    status: int
    body: bytes
    transferred: int
    """Bytes of the body as they were sent, compressed or not."""
    seconds: float


class Browser:
    """Asks the page of an app, as a browser on the same host does."""

    def __init__(self, page: Starlette) -> None:
        self._page = page

    async def get(self, address: str) -> Answer:
        """Return the answer to a GET request.

        Raises:
            RuntimeError: the answer is an error.
        """
        parts = urlsplit(address)
        started: dict[str, Any] = {}
        body: list[bytes] = []

        received = iter([{"type": "http.request", "body": b"", "more_body": False}])

        async def receive() -> dict[str, Any]:
            # After the request there is nothing to hear: a browser that stays says no more.
            return next(received, None) or await asyncio.get_running_loop().create_future()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                started.update(message)
            else:
                body.append(message.get("body", b""))

        began = time.perf_counter()
        await self._page(_scope(parts.path, parts.query), receive, send)
        seconds = time.perf_counter() - began
        if started["status"] != 200:
            raise RuntimeError(f"{address} answered {started['status']}: {b''.join(body)[:500]!r}")
        whole = b"".join(body)
        return Answer(
            status=started["status"],
            body=_plain(started, whole),
            transferred=len(whole),
            seconds=seconds,
        )

    async def size_of(self, address: str) -> int:
        """Ask for something, and return the bytes that were sent."""
        return (await self.get(address)).transferred

    async def assets(self, page: Answer) -> dict[str, int]:
        """Return the bytes of everything that a page loads, by its address."""
        found: dict[str, int] = {}
        wanted = _ASSET.findall(page.body.decode())
        while wanted:
            address = wanted.pop()
            if address not in found:
                asset = await self.get(address)
                found[address] = asset.transferred
                folder = address.rpartition("/")[0]
                wanted += [f"{folder}/{name}" for name in _IMPORT.findall(asset.body.decode())]
        return found


def _scope(path: str, query: str) -> dict[str, Any]:
    headers = [
        (b"host", b"127.0.0.1:8080"),
        (b"accept", b"text/html"),
        (b"accept-encoding", b"gzip, deflate, br"),
    ]
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": query.encode(),
        "headers": headers,
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 8080),
    }


def _plain(started: dict[str, Any], body: bytes) -> bytes:
    is_packed = (b"content-encoding", b"gzip") in started["headers"]
    return gzip.decompress(body) if is_packed else body
