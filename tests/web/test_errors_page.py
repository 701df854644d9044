"""Errors that are rare are found: by their kind, and by what is new, whatever else fails."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.web.viewing import viewer
from windlass import PermanentError, Windlass

_COMMON = 301
"""More errors than any list has."""


def _app() -> Windlass:
    app = Windlass("memory://", max_retries=0)

    @app.job(queue="mail")
    async def common(number: int) -> None:
        # A fingerprint knows numbers as the same error, and types as others.
        raise type(f"Fault{number}", (PermanentError,), {})("is common")

    @app.job(queue="mail")
    async def rare() -> None:
        raise PermanentError("a rare fault")

    return app


async def _many_errors(app: Windlass) -> None:
    """Let jobs die of many errors, each of them twice."""
    drafts = [app.producer("common").draft({"number": n % _COMMON}) for n in range(2 * _COMMON)]
    await app.aenqueue_many(drafts)
    await app.arun_worker(burst=True)


async def _rare_error(app: Windlass) -> None:
    await app.aenqueue_many([app.producer("rare").draft({})])
    await app.arun_worker(burst=True)


def _errors_of(document: dict[str, Any]) -> list[tuple[str, int]]:
    return [(each["error"], each["dead"]) for each in document["errors"]]


def test_figures_of_a_kind_have_its_errors_however_rare() -> None:
    async def main() -> None:
        app = _app()
        await _many_errors(app)
        await _rare_error(app)
        async with viewer(app.web()) as person:
            found = (await person.get("/api/v1/stats?kind=rare")).json()
            (error,) = (await app.astats(kind="rare")).errors
            assert _errors_of(found) == [(error.error, 1)]

    asyncio.run(main())
