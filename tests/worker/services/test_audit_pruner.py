"""Entries of the audit log are deleted when their retention is over, on every store."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from tests.support.app_on_store import STORES, Bed, Clock
from windlass import Windlass
from windlass.worker.services import housekeeping
from windlass.worker.services.housekeeping import AuditPruner

pytestmark = pytest.mark.stores(*STORES)
DAY = timedelta(days=1)


async def queues(app: Windlass) -> list[str]:
    """Return the queues whose pauses are on record, oldest first."""
    entries = (await app.control.aaudit()).entries
    return [entry.subject.removeprefix("queue:") for entry in reversed(entries)]


def test_old_entries_are_deleted_and_others_stay(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_MAX_PRUNED_ENTRIES", 2)
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    async def main() -> None:
        for queue in "abcde":
            await app.control.apause(queue)
            clock.advance(days=1)
        pruner = AuditPruner(app.store, 2 * DAY)
        assert await pruner.tick() == 0, "there may be more"
        assert await pruner.tick() > 0
        assert await queues(app) == ["d", "e"]
        assert (await app.control.apaused()).queues == set("abcde"), "other records stay"
        clock.advance(days=100)
        await AuditPruner(app.store, None).tick()
        assert await queues(app) == ["d", "e"]
        await pruner.tick()
        assert await queues(app) == []

    asyncio.run(main())


def test_a_worker_goes_by_its_setting(bed: Bed) -> None:
    options = bed.app(audit_retention="3d").worker()._setup.options
    assert options.audit_retention == 3 * DAY
    assert bed.app(audit_retention="never").worker()._setup.options.audit_retention is None
    assert bed.app().worker()._setup.options.audit_retention == 90 * DAY
