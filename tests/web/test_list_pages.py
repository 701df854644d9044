"""Pages that are one list: bounded, whatever there is, and read at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.web.viewing import shop, viewer
from windlass import Windlass
from windlass.web.pages import lists

_MANY = 7


async def _with_many(app: Windlass) -> None:
    """Make more schedules, queues and kinds with runs than a page of this test has rows."""

    async def work() -> None: ...

    for number in range(_MANY):
        app.job(name=f"kind{number}", queue=f"queue{number}")(work)
        await app.schedules.aput(f"each{number}", "send_email", {"to": "a@x.org"}, every="1h")
    drafts = [app.producer(f"kind{number}").draft({}) for number in range(_MANY)]
    await app.aenqueue_many(drafts)
    await app.arun_worker(burst=True)
    # In the last queue most jobs wait.
    await app.aenqueue_many([*drafts, app.producer(f"kind{_MANY - 1}").draft({})])


@pytest.mark.parametrize("page", ["schedules", "queues", "kinds"])
def test_a_long_table_ends_with_the_number_of_rows_that_it_leaves_out(
    page: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        app = shop()
        await _with_many(app)
        async with viewer(app.web()) as person:
            whole = (await person.get(f"/{page}")).text
            monkeypatch.setattr(lists, "_MAX_ROWS", 4)
            cut = (await person.get(f"/{page}")).text
        rows = whole.count("<tr>")
        assert " more" not in whole
        assert cut.count("<tr>") < rows
        assert " more" in cut
        if page == "queues":
            assert f"/queues/queue{_MANY - 1}" in cut

    asyncio.run(main())


def test_schedules_are_read_as_often_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def reads(schedules: int) -> list[str]:
        app = shop()
        for number in range(schedules):
            await app.schedules.aput(f"each{number}", "send_email", {"to": "a@x.org"}, every="1h")
        calls: list[str] = []
        for name in ("apply", "records", "ringing", "workers"):
            monkeypatch.setattr(app.store, name, _counted(calls, name, getattr(app.store, name)))
        async with viewer(app.web()) as person:
            shown = (await person.get("/schedules")).text
        assert shown.count("then <time") == schedules
        return calls

    async def main() -> None:
        assert await reads(20) == await reads(1)

    asyncio.run(main())


def _counted(calls: list[str], name: str, read: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*given: Any, **more: Any) -> Any:
        calls.append(name)
        return read(*given, **more)

    return counted
