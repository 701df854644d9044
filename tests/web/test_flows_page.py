"""The list of flows: who sees which, those under way first, and none is lost without a word."""

from __future__ import annotations

import asyncio
import re
from typing import Any
from uuid import UUID

import httpx
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


_LOGINS = [pytest.param(None, id="all-queues"), pytest.param(OWN, id="some-queues")]


async def _listed(person: httpx.AsyncClient, address: str) -> tuple[list[str], str | None]:
    """Return the ids of the flows of a page, in order, and the address of the next."""
    text = (await person.get(address)).text
    older = re.search(r'rel="next" href="([^"]+)"', text)
    return re.findall(r'href="/flows/([0-9a-f-]+)"', text), older and older[1]


@pytest.mark.parametrize("queues", _LOGINS)
def test_every_flow_is_on_a_page_and_old_ones_under_way_are_on_the_first(
    queues: tuple[str, ...] | None,
) -> None:
    async def main() -> None:
        app = queue_app()
        flow = app.flow("stands", queue="mail")
        mail = app.producer("send_email")
        first = flow.add(mail.draft({"to": "a@example.org"}))
        flow.add(mail.using(delay="1h").draft({"to": "b@example.org"}), after=[first])
        old = str((await flow.aenqueue()).id)
        newer = [str(await _flow(app, "nightly")) for _ in range(30)]
        order = sorted([old, *newer], reverse=True)
        await app.arun_worker(burst=True, queues=["mail"])
        async with viewer(app.web(access=of_role("viewer", queues=queues))) as person:
            listed, older = await _listed(person, "/flows")
            assert listed == [old, *(each for each in order[:25] if each != old)]
            assert older is not None
            rest, end = await _listed(person, older)
            assert rest == order[25:]
            assert end is None
            assert (await person.get("/flows?after=nonsense")).status_code == 422

    asyncio.run(main())


def test_viewers_of_some_queues_share_what_they_read_of_flows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        app = queue_app()
        flow = await _flow(app, "nightly", jobs=20)
        page = app.web(access=of_role("viewer", queues=OWN))
        reads = page.state.site.reads
        async with viewer(page) as person:
            for address in ("/flows", f"/flows/{flow}"):
                assert (await person.get(address)).status_code == 200
            calls = _counted(app, "get_many", monkeypatch)
            for _ in range(5):
                # As a change does, which the open pages hear of.
                reads.refresh()
                for address in ("/flows", f"/flows/{flow}"):
                    assert (await person.get(address)).status_code == 200
            sizes = [len(ids) for ids in calls]
            assert sizes.count(20) <= 5, "the view of the flow reads its jobs, and nothing else"
            finds = _counted(app, "find", monkeypatch)
            await asyncio.gather(*(person.get("/flows") for _ in range(20)))
            assert len(finds) <= 2

    asyncio.run(main())


def _counted(app: Windlass, name: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    calls: list[Any] = []
    read = getattr(app.store, name)

    def counted(what: Any, **given: Any) -> Any:
        calls.append(what)
        return read(what, **given)

    monkeypatch.setattr(app.store, name, counted)
    return calls
