"""`app.jobs` is the one place where code looks for jobs: in a thread and in a coroutine alike."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.app_on_store import STORES, Bed
from windlass import CalledFromEventLoop, State
from windlass.app import Control


@pytest.mark.stores(*STORES)
def test_threads_and_coroutines_find_and_count_the_same_jobs(bed: Bed) -> None:
    app = bed.app()

    @app.job(queue="mail", tags=["billing"])
    async def send(order: int) -> None: ...

    handles = [send.enqueue(number) for number in range(5)]
    found = app.jobs.find(search="tag:billing payload.order:3")
    assert [job.id for job in found.jobs] == [handles[3].id]
    assert app.jobs.count(states=[State.PENDING], queue="mail") == 5
    assert app.jobs.job_id(str(handles[0].id)[:-1]) == handles[0].id

    async def main() -> None:
        assert await app.jobs.afind(search="tag:billing payload.order:3") == found
        assert await app.jobs.acount(search="tag:billing -payload.order:3") == 4
        with pytest.raises(CalledFromEventLoop, match=r"app\.jobs\.afind"):
            app.jobs.find()

    asyncio.run(main())
    app.close()


@pytest.mark.parametrize("name", ["find", "count", "job_id"])
def test_control_changes_jobs_and_does_not_look_for_them(name: str) -> None:
    assert not hasattr(Control, name)
    assert not hasattr(Control, f"a{name}")
