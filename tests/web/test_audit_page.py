"""The audit log of a person who sees some queues: entries of others do not hide their own."""

from __future__ import annotations

import asyncio

import pytest

from tests.web.queue_scene import MARK, OWN, queue_app
from tests.web.viewing import of_role, viewer
from windlass import Windlass
from windlass.web.live import limited_reads

_PAGE = 50


async def _pause_and_resume(app: Windlass, queue: str, times: int) -> None:
    for _ in range(times):
        await app.control.apause(queue)
        await app.control.aresume(queue)


@pytest.mark.parametrize("address", ["/audit", "/api/v1/audit"])
def test_an_entry_behind_a_page_of_foreign_ones_is_listed(address: str) -> None:
    async def main() -> None:
        app = queue_app()
        await app.control.acting_as("grace", reason="mine").apause("mail")
        await _pause_and_resume(app, f"{MARK}-queue", _PAGE)
        async with viewer(app.web(access=of_role("viewer", queues=OWN))) as person:
            shown = (await person.get(address)).text
            assert "mine" in shown
            assert MARK not in shown

    asyncio.run(main())


def test_a_page_without_entries_says_that_older_ones_follow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(limited_reads, "_MAX_AUDIT_PAGES", 1)

    async def main() -> None:
        app = queue_app()
        async with viewer(app.web(access=of_role("viewer", queues=OWN))) as person:
            shown = (await person.get("/audit")).text
            assert "No action of an operator that concerns your queues" in shown
            assert 'rel="next"' not in shown
        await app.control.apause("mail")
        await _pause_and_resume(app, f"{MARK}-queue", _PAGE)
        async with viewer(app.web(access=of_role("viewer", queues=OWN))) as person:
            shown = (await person.get("/audit")).text
            assert "No action among those that were looked at concerns your queues" in shown
            assert 'rel="next"' in shown

    asyncio.run(main())
