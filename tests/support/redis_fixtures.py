"""Owns the Redis that tests share: one server for a process, and a clock there that tests move.

The clock is a key, which scripts made for tests read. Every store has a prefix of its own.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.redis_server import RedisServer
from windlass.store.redis import RedisStore
from windlass.store.redis.scripting.rows import micros
from windlass.store.redis.scripting.script_files import load_scripts

START = datetime(2030, 1, 1, 12, tzinfo=UTC)
CLOCK = """
local function clock()
  local hands = redis.call('GET', KEYS[1] .. 'clock')
  if hands then return tonumber(hands) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end
"""


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """Give a server that keeps nothing on disk."""
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server


def documented_rights(user: str, prefix: str) -> list[str]:
    """Return the command of docs/redis.md that makes a user, for another user and prefix."""
    page = (Path(__file__).parents[2] / "docs/redis.md").read_text("utf-8")
    (block,) = re.findall(r"^ACL SETUSER .*?(?=^```)", page, re.DOTALL | re.MULTILINE)
    words = block.replace("{windlass}", f"{{{prefix}}}").split()
    return [*words[:2], user, *words[3:]]


class ClockedRedis:
    """A prefix on a server, with a clock that stands still until a test moves it."""

    def __init__(self, server: RedisServer, run: Any, *, prefix: str = "") -> None:
        self.prefix = prefix or f"test-{uuid4().hex[:12]}"
        self.url = f"{server.url}?prefix={self.prefix}"
        self.run = run
        self.set(START)

    def __call__(self) -> datetime:
        """Return the time to which the clock was set."""
        return self._now

    def set(self, now: datetime) -> None:
        """Set the time."""
        self._now = now
        self.run("SET", f"{{{self.prefix}}}:clock", micros(now))

    async def advance(self, span: timedelta) -> None:
        """Move the time."""
        self.set(self._now + span)

    def all_keys(self) -> list[bytes]:
        """Return all keys of the prefix."""
        found: list[bytes] = self.run("KEYS", f"{{{self.prefix}}}:*")
        return found

    def empty(self) -> None:
        """Delete every key."""
        if keys := self.all_keys():
            self.run("UNLINK", *keys)
        self.set(START)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[RedisStore]:
        """Open a store by this clock, and close it."""
        store = RedisStore(self.url, scripts=load_scripts(clock=CLOCK))
        try:
            yield store
        finally:
            await store.close()


def set_redis_clock(server: RedisServer, prefix: str, now: datetime) -> None:
    """Set the clock that scripts for tests read."""
    server.call("SET", f"{{{prefix}}}:clock", micros(now))


@contextmanager
def clocked_redis(server: RedisServer) -> Iterator[ClockedRedis]:
    """Give a prefix of its own on a server."""
    with server.client() as run:
        clocked = ClockedRedis(server, run)
        yield clocked
        clocked.empty()


@pytest.fixture
def redis_clock(redis_server: RedisServer) -> Iterator[ClockedRedis]:
    """Give a prefix of its own on the server that tests share."""
    with clocked_redis(redis_server) as clocked:
        yield clocked


@pytest.fixture
def own_redis(tmp_path: Path) -> Iterator[RedisServer]:
    """Start a server for one test, with an empty database."""
    (tmp_path / "redis").mkdir()
    with RedisServer(tmp_path / "redis") as server:
        yield server
