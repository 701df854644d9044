"""The list of flows: who sees which, those under way first, and none is lost without a word."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest

from tests.web.queue_scene import MARK, OWN, queue_app
from tests.web.viewing import of_role, viewer
from windlass import Windlass

_MANY = 250
"""More jobs than are read of a flow in a list."""


async def _flow(
    app: Windlass, name: str, *, jobs: int = 1, kind: str = "send_email", queue: str | None = None
) -> UUID:
    flow = app.flow(name, queue="mail")
    producer = app.producer(kind)
    field = "to" if kind == "send_email" else "text"
    given = producer if queue is None else producer.using(queue=queue)
    for number in range(jobs):
        flow.add(given.draft({field: f"{number}@example.org"}))
    return (await flow.aenqueue()).id


@pytest.mark.parametrize(
    ("kind", "queue", "is_seen"),
    [
        pytest.param("send_email", None, True, id="own-jobs"),
        pytest.param(f"{MARK}_kind", None, False, id="of-a-foreign-handler"),
        pytest.param("send_email", f"{MARK}-queue", False, id="in-a-foreign-queue"),
    ],
)
@pytest.mark.parametrize("jobs", [3, _MANY])
def test_a_flow_of_any_size_is_listed_for_those_who_see_its_jobs(
    jobs: int, kind: str, queue: str | None, is_seen: bool
) -> None:
    async def main() -> None:
        app = queue_app()
        await _flow(app, "nightly", jobs=jobs, kind=kind, queue=queue)
        async with viewer(app.web(access=of_role("viewer", queues=OWN))) as person:
            assert ("nightly" in (await person.get("/flows")).text) is is_seen

    asyncio.run(main())
