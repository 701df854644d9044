"""`app.control` finds, counts and moves jobs by a search, on every store."""

from __future__ import annotations

from typing import Any

import pytest

from tests.app.control.test_bulk import on_an_app
from tests.support.app_on_store import STORES
from windlass import Budget, SearchError, State, Windlass

pytestmark = pytest.mark.stores(*STORES)


def with_orders(app: Windlass) -> Any:
    @app.job(queue="mail", tags=["billing"])
    async def send_invoice(order: dict[str, Any]) -> None: ...

    return send_invoice


async def orders(app: Windlass, search: str, **how: Any) -> list[int]:
    """Return the numbers of the orders that a search finds, over all pages."""
    found: list[int] = []
    after = None
    while True:
        page = await app.jobs.afind(search=search, after=after, **how)
        found += [int(each.payload.partition(b'"id":')[2].split(b"}")[0]) for each in page.jobs]
        after = page.after
        if after is None:
            return found


@on_an_app
async def test_jobs_are_found_by_a_search(app: Windlass) -> None:
    send = with_orders(app)
    for number in range(12):
        tags = ["vip", "eu"] if number % 5 == 1 else None
        await send.using(tags=tags).aenqueue({"id": number})
    assert await orders(app, "payload.order.id:7") == [7]
    assert await orders(app, "tag:vip since:1h") == [11, 6, 1]
    assert await orders(app, "tag:billing payload.order.id:1*") == [10]
    assert await orders(app, "-tag:billing", limit=2) == [11, 6, 1]
    assert await orders(app, "until:1h") == []
    assert await orders(app, "kind:send_invoice", budget=Budget(rows=5), limit=3) == [
        *range(11, -1, -1)
    ]
    assert await app.jobs.acount(search="tag:vip since:1d") == 3
    assert await app.control.acancel_where(search="tag:vip payload.order.id:6,11") == 2
    assert await orders(app, "state:cancelled") == [11, 6]
    assert await app.control.apurge_where(search="state:cancelled payload.order.id:6") == 1
    assert await app.jobs.afind(search="") == await app.jobs.afind()


@on_an_app
async def test_a_budget_bounds_a_search_that_can_be_continued(app: Windlass) -> None:
    send = with_orders(app)
    handles = [await send.aenqueue({"id": number}) for number in range(10)]
    page = await app.jobs.afind(search="payload.order.id:2", budget=Budget(rows=4))
    assert (page.jobs, page.after, page.searched_to) == ((), handles[6].id, handles[6].id)
    page = await app.jobs.afind(
        search="payload.order.id:2", after=page.after, budget=Budget(rows=4)
    )
    assert ([job.id for job in page.jobs], page.searched_to) == ([handles[2].id], handles[2].id)
    page = await app.jobs.afind(search="payload.order.id:2", budget=None)
    assert ([job.id for job in page.jobs], page.after) == ([handles[2].id], None)


@on_an_app
async def test_an_id_goes_straight_to_its_job(app: Windlass) -> None:
    send = with_orders(app)
    first, *_ = [await send.aenqueue({"id": number}) for number in range(10)]
    tight = Budget(rows=1)
    for text in (str(first.id), first.id.hex, first.id.hex[:31], first.id.hex[-8:]):
        page = await app.jobs.afind(search=text, budget=tight)
        assert [job.id for job in page.jobs] == [first.id], text
    page = await app.jobs.afind(search=str(first.id), states=[State.DEAD], budget=None)
    assert page.jobs == ()
    page = await app.jobs.afind(search="0000dead", budget=None)
    assert (page.jobs, page.after) == ((), None)


@on_an_app
async def test_a_search_that_cannot_be_read_is_refused_with_its_place(app: Windlass) -> None:
    with pytest.raises(SearchError, match="did you mean kind:") as raised:
        await app.jobs.afind(search="state:dead knd:a")
    assert raised.value.position == len("state:dead ")
    with pytest.raises(TypeError, match="search must be text, got 7"):
        await app.jobs.afind(search=7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="must be given a condition"):
        await app.control.apurge_where(search=" ")
    with pytest.raises(ValueError, match="states must be among"):
        await app.control.acancel_where(search="state:dead")
