"""Fan-out: many jobs from any iterable, in chunks or at once, and never more than were meant."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Iterator
from typing import Any

import pytest

from tests.support.app_on_store import Bed, on_embedded_stores
from windlass import Draft, FanOut, FanOutTooLarge, Handler, Windlass

pytestmark = pytest.mark.stores("postgres")


def kind_of(app: Windlass) -> Handler[[int], None, [int], Awaitable[None]]:
    @app.job
    async def notify(user: int) -> None:
        del user

    return notify


async def waiting(app: Windlass) -> int:
    return sum(each.count for each in await app.store.counts())


def test_chunks_are_added_as_they_come_and_progress_is_reported(bed: Bed) -> None:
    app = bed.app()
    notify = kind_of(app)
    told: list[int] = []
    seen: list[int] = []

    def drafts() -> Iterator[Draft[None]]:
        for user in range(25):
            seen.append(len(told))
            yield notify.draft(user)

    done = app.fan_out(drafts(), chunk=10, progress=lambda so_far: told.append(so_far.total))
    assert done == FanOut(added=25)
    assert told == [10, 20, 25]
    assert seen == [0] * 10 + [1] * 10 + [2] * 5, "no chunk is made before the last one is stored"
    assert asyncio.run(waiting(app)) == 25


def test_in_a_coroutine_the_source_may_be_async(bed: Bed) -> None:
    app = bed.app()
    notify = kind_of(app)

    async def drafts() -> AsyncIterator[Draft[None]]:
        for user in range(7):
            await asyncio.sleep(0)
            yield notify.draft(user)

    async def main() -> None:
        assert await app.afan_out(drafts(), chunk=3) == FanOut(added=7)
        assert await app.afan_out(notify.draft(user) for user in range(3)) == FanOut(added=3)
        assert await waiting(app) == 10

    asyncio.run(main())


def test_more_than_were_meant_are_refused(bed: Bed) -> None:
    app = bed.app()
    notify = kind_of(app)
    endless = (notify.draft(user) for user in iter(int, 1))
    with pytest.raises(FanOutTooLarge, match="20 were already enqueued") as refused:
        app.fan_out(endless, chunk=10, at_most=25)
    assert (refused.value.at_most, refused.value.enqueued) == (25, 20)
    assert asyncio.run(waiting(app)) == 20


def test_at_once_is_all_or_none(bed: Bed) -> None:
    app = bed.app()
    notify = kind_of(app)
    with pytest.raises(FanOutTooLarge, match="none was"):
        app.fan_out((notify.draft(user) for user in range(26)), atomic=True, at_most=25)

    def broken() -> Iterator[Draft[None]]:
        yield notify.draft(1)
        raise OSError("the file ends here")

    with pytest.raises(OSError, match="ends here"):
        app.fan_out(broken(), atomic=True)
    assert asyncio.run(waiting(app)) == 0
    full = app.fan_out((notify.draft(user) for user in range(25)), atomic=True, at_most=25)
    assert full == FanOut(added=25)


def test_jobs_that_exist_are_counted_apart(bed: Bed) -> None:
    app = bed.app()
    notify = kind_of(app)
    notify.using(unique="user:1").enqueue(1)
    done = app.fan_out(notify.using(unique=f"user:{user}").draft(user) for user in range(3))
    assert done == FanOut(added=2, duplicates=1)
    assert done.total == 3


@on_embedded_stores
def test_a_rate_is_kept(bed: Bed) -> None:
    app = bed.app()
    notify = kind_of(app)
    told: list[tuple[float, int]] = []
    began = time.monotonic()
    app.fan_out(
        (notify.draft(user) for user in range(30)),
        rate="100/s",
        progress=lambda so_far: told.append((time.monotonic() - began, so_far.total)),
    )
    assert [total for _, total in told] == [10, 20, 30]
    for elapsed, total in told:
        assert total <= 10 + elapsed * 100, "never ahead of the rate by more than one step"


@on_embedded_stores
def test_nonsense_is_refused_before_anything_is_taken(bed: Bed) -> None:
    app = bed.app()
    untouched = iter([kind_of(app).draft(1)])
    odd: list[dict[str, Any]] = [
        {option: value} for option in ("chunk", "at_most") for value in (0, 2.5, "5", True)
    ]
    for nonsense in odd:
        (option,) = nonsense
        with pytest.raises(
            ValueError, match=f"^{option} must be a whole number of at least 1, got "
        ):
            app.fan_out(untouched, **nonsense)
    for rate in ("fast", "-1/s"):
        with pytest.raises(ValueError, match="a rate must"):
            app.fan_out(untouched, rate=rate)
    with pytest.raises(ValueError, match="leave one out"):
        app.fan_out(untouched, atomic=True, rate="1/s")
    assert len(list(untouched)) == 1
