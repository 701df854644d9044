"""Owns the values that tests provide, and how they run a job with them."""

from __future__ import annotations

from collections.abc import AsyncIterator

from windlass import Windlass


class Pool:
    """A provided value."""

    def __init__(self, name: str = "pool") -> None:
        self.name = name
        self.open = True


def with_pool(app: Windlass, lines: list[str] | None = None) -> Windlass:
    """Let an app have a pool, which writes down when it is opened and closed."""
    heard = [] if lines is None else lines

    @app.provide
    async def pool() -> AsyncIterator[Pool]:
        heard.append("open")
        pool = Pool()
        yield pool
        pool.open = False
        heard.append("close")

    return app
