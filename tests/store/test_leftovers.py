"""A later release goes on with all that an earlier one left behind, in any state, on any schema.

Here the later release reads, claims, settles, redrives, cancels, rescues and prunes what was made
under an earlier schema; in postgres/test_upgrade.py the earlier one works on under a later schema.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from tests.support.app_on_store import serving, until
from tests.support.leftovers import KEYS, KIND, TOKEN, Left, left_on_postgres, left_on_sqlite, new
from tests.support.releases import next_release
from windlass import Job, State, Windlass
from windlass.core.jobs.queries import Retention
from windlass.core.jobs.settle import Transition
from windlass.store import Store
from windlass.store.sql_files import Migration
from windlass.store.sqlite.connections import file
from windlass.worker.engine import start_pace as pace

RUN = {"pending", "held", "waiting", "due", "sooner", "dead", "retrying", "released", "lost"}
"""What the later release runs, each once: all the others are over, or somebody else's."""
BECOMES = {
    **dict.fromkeys(RUN, State.COMPLETED),
    "completed": State.COMPLETED,
    "bound": State.COMPLETED,
    "cancelled": State.CANCELLED,
    "buried": State.DEAD,
    "expired": State.CANCELLED,
    "later": State.CANCELLED,
    "stopped": State.CANCELLED,
    "running": State.RUNNING,
}


def earlier(migrations: Collection[Migration]) -> list[Any]:
    """Return the numbers of the schemas before the last, or of the only one."""
    numbers = sorted(step.number for step in migrations)
    first, *others = numbers[:-1] or numbers
    return [first, *(pytest.param(number, marks=pytest.mark.long) for number in others)]


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker begin whatever it claims: attempts are counted, and a busy machine is late."""
    monkeypatch.setattr(pace, "MAX_START_SECONDS", 60.0)


def test_a_later_release_goes_on_with_what_was_left_on_postgres(postgres_url: str) -> None:
    left = left_on_postgres(postgres_url)
    with next_release():
        take_over(left)


@pytest.mark.parametrize("number", earlier(file.MIGRATIONS))
def test_a_later_release_goes_on_with_what_was_left_on_sqlite(number: int, tmp_path: Path) -> None:
    take_over(left_on_sqlite(number, tmp_path))


def take_over(left: Left) -> None:
    """Migrate what was left, and do with it all that can be done to a job."""
    runs: Counter[str] = Counter()
    app = Windlass(left.url)

    @app.job(name=KIND)
    async def work(name: str) -> str:
        runs[name] += 1
        return f"{name} of late"

    async def main() -> None:
        async with aclosing(app):
            await app.store.migrate()
            assert (await app.store.schema()).serves
            assert await found(app.store, left.ids) == left.jobs
            assert await holders(app.store) == {name: left.ids[name] for name in KEYS}
            await decide(app, left)
            async with serving(app, lease="1s"):
                await until(lambda: is_over(app.store, left), within=60)
            assert runs == Counter(RUN)
            await look_back(app, left)
            await clear(app.store, left)

    asyncio.run(main())


async def found(store: Store, ids: Mapping[str, UUID]) -> dict[str, Job | None]:
    """Return the jobs as they are now."""
    return {name: await store.get(id_) for name, id_ in ids.items()}


async def is_over(store: Store, left: Left) -> bool:
    now = await found(store, left.ids)
    return {name: job and job.state for name, job in now.items()} == BECOMES


async def holders(store: Store) -> dict[str, UUID]:
    """Return who holds the unique keys: a duplicate of each is told."""
    told = await store.enqueue([new(name) for name in KEYS])
    return {name: each.id for name, each in zip(KEYS, told, strict=True) if each.is_duplicate}


async def decide(app: Windlass, left: Left) -> None:
    """Do what an operator may do: cancel, retry, redrive."""
    ids = left.ids
    assert await app.handle(ids["completed"]).aresult() == "of old"
    assert (await app.control.acancel(ids["later"])).state is State.CANCELLED
    assert (await app.control.aretry(ids["sooner"])).state is State.PENDING
    (redriven,) = await app.control.aredrive([ids["dead"]])
    assert (redriven.failures, redriven.history) == (0, left.jobs["dead"].history)
    (group,) = await app.control.aerror_groups()
    assert (group.newest, group.count) == (ids["buried"], 1)


async def look_back(app: Windlass, left: Left) -> None:
    """See that what was run goes by what was known of it, and that its result is there."""
    now = {name: job for name, job in (await found(app.store, left.ids)).items() if job}
    assert now.keys() == left.jobs.keys()
    for name in RUN:
        assert await app.handle(left.ids[name]).aresult() == f"{name} of late"
        assert now[name].attempt == left.jobs[name].attempt + 1
        assert now[name].headers == left.jobs[name].headers
    assert now["retrying"].failures == 1
    assert now["retrying"].history == left.jobs["retrying"].history
    (lost,) = now["lost"].history
    assert "the lease of worker gone ran out" in str(lost.error)
    for name in ("completed", "bound", "cancelled", "buried", "running"):
        assert now[name] == left.jobs[name]
    # Its worker, of the earlier release, lives, and still holds the fence.
    done = Transition(id=left.ids["running"], token=TOKEN, state=State.COMPLETED, result=b'"old"')
    assert await app.store.settle([done, done]) == [True, False]
    assert await app.handle(left.ids["running"]).aresult() == "old"


async def clear(store: Store, left: Left) -> None:
    """See that keys were freed, but for one that is held for a time, and that all can go."""
    assert await holders(store) == {"bound": left.ids["bound"]}
    assert (await store.records("a"))["a"] == {"n": 1}
    await store.prune(Retention(finished=timedelta(0), dead=timedelta(0)), 1_000)
    assert set((await found(store, left.ids)).values()) == {None}
