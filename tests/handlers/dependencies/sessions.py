"""Owns the dependencies of tests, which write down what happens, and how they run a job."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Annotated, Any

from tests.support.app_on_store import in_state, serving
from windlass import Inject, State, Windlass

heard: list[str] = []


class Session:
    """What a run has for itself."""

    def __init__(self, name: str = "session") -> None:
        self.name = name
        self.thread = threading.get_ident()


def get_url() -> str:
    heard.append("url")
    return "db"


async def get_session(url: Annotated[str, Inject(get_url)]) -> AsyncIterator[Session]:
    heard.append("open")
    try:
        yield Session(f"session of {url}")
    except BaseException as error:
        heard.append(f"roll back for {type(error).__name__}")
        raise
    else:
        heard.append("commit")
    finally:
        heard.append("close")


def get_blocking_session(url: str = Inject(get_url)) -> Iterator[Session]:
    heard.append("open")
    try:
        yield Session(f"session of {url}")
        heard.append("commit")
    finally:
        heard.append("close")


async def get_user(session: Session = Inject(get_session)) -> str:
    return f"user in {session.name}"


def run(app: Windlass, handler: Any, *args: Any, **kwargs: Any) -> Any:
    """Let a worker run one job, and return its result."""

    async def main() -> Any:
        async with serving(app):
            return await (await handler.aenqueue(*args, **kwargs)).aresult("60s")

    return asyncio.run(main())


def dies(app: Windlass, handler: Any) -> None:
    """Let a worker run a job that fails for good."""

    async def main() -> None:
        async with serving(app):
            await in_state(await handler.aenqueue(), State.DEAD)

    asyncio.run(main())
