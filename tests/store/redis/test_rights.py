"""The user that docs/redis.md describes has the rights that Windlass needs, and no others.

All laws of the store run as that user, too: see test_server.py.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.app_on_store import in_state, serving, until
from tests.support.redis_fixtures import documented_rights
from tests.support.redis_server import RedisServer
from windlass import State, Windlass

SOURCE = Path(__file__).parents[3] / "src/windlass/store/redis"
_IN_SCRIPTS = re.compile(r"call\('([A-Z]+)'")
_IN_CODE = re.compile(r"\"(S?SUBSCRIBE|S?PUBLISH)\"|\(b?\"([A-Z]{3,})\"")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(tmp_path) as server:
        yield server


def test_a_worker_needs_no_more_rights_than_the_documented_ones(server: RedisServer) -> None:
    server.call(*documented_rights("windlass", "windlass"))
    app = Windlass(server.url.replace("redis://", "redis://windlass:password@"))

    @app.job
    async def work(text: str) -> str:
        return text

    @app.every("1h")
    async def hourly() -> None: ...

    async def main() -> None:
        async with serving(app):
            handles = [await work.aenqueue("x" * size) for size in (1, 10_000)]
            handles.append(await work.using(delay="10ms", key="once").aenqueue("x"))
            for handle in handles:
                await in_state(handle, State.COMPLETED)
            await until(lambda: asyncio.sleep(0, app.store.listening))
        await app.astats()
        findings = await app.store.findings()
        assert {each.name for each in findings} == {"persistence_off", "memory_unlimited"}
        await app.aclose()

    asyncio.run(main())
    assert server.call("ACL", "LOG") == []


def test_no_right_is_documented_that_nothing_uses() -> None:
    used = {
        word
        for path in SOURCE.rglob("*.lua")
        for word in _IN_SCRIPTS.findall(path.read_text("utf-8"))
    }
    for path in SOURCE.rglob("*.py"):
        used |= {a or b for a, b in _IN_CODE.findall(path.read_text("utf-8"))}
    rights = documented_rights("windlass", "windlass")
    documented = {word.removeprefix("+").upper() for word in rights if word.startswith("+")}
    assert documented <= used
