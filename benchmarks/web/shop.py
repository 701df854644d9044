"""Owns the app whose page is measured, and some jobs of it that really ran."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from windlass import PermanentError, Windlass

KINDS, QUEUES, TENANTS = 20, 8, 500
_RUNS = 40
"""Jobs of each kind that are run, so that there are records of kinds, workers and samples."""


def kind_of(number: int) -> str:
    """Return the name of a kind."""
    return f"kind_{number % KINDS}"


def queue_of(number: int) -> str:
    """Return the queue of a kind."""
    return f"queue_{number % KINDS % QUEUES}"


def shop(url: str) -> Windlass:
    """Return an app with as many kinds as a real one has."""
    app = Windlass(url, max_retries=0)
    app.limit("gpu", concurrency=4)
    for number in range(KINDS):
        _register(app, number)

    @app.every("1h", name="hourly")
    async def tidy() -> None: ...

    return app


def _register(app: Windlass, number: int) -> None:
    async def handler(order: int = 0, note: str = "") -> dict[str, Any]:
        if number == 0:
            raise PermanentError(f"order {order} is refused")
        return {"order": order, "note": len(note)}

    app.job(name=kind_of(number), queue=queue_of(number), limit="gpu" if number == 1 else None)(
        handler
    )


async def run_some(app: Windlass) -> UUID:
    """Run jobs of every kind and a flow, pause a queue; return the id of the flow."""
    kinds = [app.producer(kind_of(number)) for number in range(KINDS)]
    await app.aenqueue_many(
        [kind.draft({"order": order}) for kind in kinds for order in range(_RUNS)]
    )
    flow = app.flow("orders")
    parts = [flow.add(kinds[1 + order % 9].draft({"order": order})) for order in range(100)]
    flow.add(kinds[1].draft({}), after=parts)
    flowing = await flow.aenqueue()
    await app.arun_worker(burst=True)
    await app.control.apause(queue_of(7))
    return flowing.id
