"""Gives tests a page on an app, and viewers of it: browsers without a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import httpx
from starlette.applications import Starlette
from starlette.requests import Request

from windlass import Breaker, Context, PermanentError, Windlass
from windlass.web import Access, Role

HERE = "http://127.0.0.1:8080"
TOKEN = "sixteen-characters-or-more"


def shop(**settings: Any) -> Windlass:
    """Return an app with a few kinds of jobs, a limit, a breaker and a schedule."""
    app = Windlass("memory://", max_retries=0, **settings)
    app.limit("gpu", concurrency=2)

    @app.job(queue="mail")
    async def send_email(to: str) -> str:
        return f"sent to {to}"

    @app.job
    async def fail(number: int) -> None:
        raise PermanentError(f"number {number} is wrong")

    @app.job(limit="gpu", breaker=Breaker("stripe", failures=5))
    async def charge(cents: int) -> None: ...

    @app.job
    async def add_up(ctx: Context) -> int:
        return len(await ctx.results())

    @app.every("1h", name="hourly")
    async def sweep() -> None: ...

    return app


@asynccontextmanager
async def viewer(
    page: Starlette,
    *,
    base: str = HERE,
    client: tuple[str, int] = ("127.0.0.1", 50_000),
    headers: Mapping[str, str] | None = None,
) -> AsyncIterator[httpx.AsyncClient]:
    """Return a browser of this host, which sends the origin of the page with its forms."""
    transport = httpx.ASGITransport(page, client=client)
    async with httpx.AsyncClient(
        transport=transport, base_url=base, headers={"origin": base, **(headers or {})}
    ) as browser:
        yield browser


def of_role(
    role: Role | str, *, payloads: bool = True, queues: tuple[str, ...] | None = None
) -> Any:
    """Return a login that gives everybody this role."""

    def access(_request: Request) -> Access:
        return Access(who="ada", role=Role(role), payloads=payloads, queues=queues)

    return access


async def seeded(app: Windlass) -> dict[str, UUID]:
    """Run and leave jobs in every state; return the id of one for each."""
    await app.schedules.aput("nightly", "send_email", {"to": "n@example.org"}, cron="0 3 * * *")
    done, dead = await app.aenqueue_many(
        [
            app.producer("send_email").draft({"to": "a@example.org"}),
            app.producer("fail").draft({"number": 7}),
        ]
    )
    flow = app.flow("nightly")
    parts = [flow.add(app.producer("send_email").draft({"to": f"{n}@x.org"})) for n in range(3)]
    flow.add(app.producer("add_up").draft({}), after=parts)
    flowing = await flow.aenqueue()
    await app.arun_worker(burst=True)
    later, waiting, gone = await app.aenqueue_many(
        [
            app.producer("send_email").using(delay="1h").draft({"to": "later@example.org"}),
            app.producer("charge").draft({"cents": 100}),
            app.producer("charge").draft({"cents": 200}),
        ]
    )
    await app.control.acancel(gone.id)
    return {
        "completed": done.id,
        "dead": dead.id,
        "scheduled": later.id,
        "pending": waiting.id,
        "cancelled": gone.id,
        "flow": flowing.id,
    }


async def with_breaker(app: Windlass) -> None:
    """Make the breaker known, as a worker that uses it does."""
    await app.control.aopen_breaker("stripe")
