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
from windlass import State, StoreForbidden, Windlass
from windlass.store.redis.connections.replies import ReplyError, translate

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


def _documented() -> set[str]:
    rights = documented_rights("windlass", "windlass")
    return {word.removeprefix("+").upper() for word in rights if word.startswith("+")}


def _in_scripts() -> set[str]:
    return {
        word
        for path in SOURCE.rglob("*.lua")
        for word in _IN_SCRIPTS.findall(path.read_text("utf-8"))
    }


def test_every_command_of_a_script_is_among_the_documented_rights() -> None:
    """A script that is refused in its middle has written half of a job.

    Some commands are called in rare cases only, so running the laws as that user does not show it.
    """
    assert _in_scripts() <= _documented()


def test_no_right_is_documented_that_nothing_uses() -> None:
    used = _in_scripts()
    for path in SOURCE.rglob("*.py"):
        used |= {a or b for a, b in _IN_CODE.findall(path.read_text("utf-8"))}
    assert _documented() <= used


def test_jobs_are_added_after_the_last_worker_has_gone(server: RedisServer) -> None:
    """Prevents the call that notes that nobody listens any more from being refused."""
    server.call(*documented_rights("windlass", "windlass"))
    app = Windlass(server.url.replace("redis://", "redis://windlass:password@"))

    @app.job
    async def work() -> None: ...

    async def main() -> None:
        async with serving(app):
            await until(lambda: asyncio.sleep(0, app.store.listening))
            await in_state(await work.aenqueue(), State.COMPLETED)
        handles = [await work.aenqueue(), *await app.aenqueue_many([work.draft()])]
        handles += await app.aenqueue_many([work.draft() for _ in range(10)])
        async with serving(app):
            for handle in handles:
                await in_state(handle, State.COMPLETED)
        await app.aclose()

    asyncio.run(main())
    assert server.call("ACL", "LOG") == []


def test_a_right_that_a_script_lacks_is_named_with_its_remedy(server: RedisServer) -> None:
    rights = [word for word in documented_rights("windlass", "windlass") if word != "+zadd"]
    server.call(*rights)
    app = Windlass(server.url.replace("redis://", "redis://windlass:password@"))
    app.job(name="work")(lambda: None)
    with pytest.raises(StoreForbidden, match=r"docs/redis\.md lists the rights"):
        app.enqueue("work", {})
    app.close()


def test_the_words_of_redis_7_0_for_a_right_that_a_script_lacks_are_known() -> None:
    said = "ERR The user executing the script can't run this command or subcommand script: 3114"
    assert isinstance(translate(ReplyError(said), "redis://h"), StoreForbidden)
