"""A job that is settled and purged in one change is in no index, and its key is free."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.redis_fixtures import ClockedRedis
from tests.support.redis_indexes import check_indexes
from windlass.core.changes import Changes
from windlass.core.jobs.job import IDEMPOTENCY_KEY, UniqueKey
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.states import State
from windlass.testing.conformance import Bench
from windlass.testing.conformance.bench import leaving

KEY = UniqueKey(key="a", until="settled", on_duplicate="keep")


@pytest.mark.parametrize("size", [1, 2_000])
@pytest.mark.parametrize("state", [State.COMPLETED, State.DEAD, State.CANCELLED])
def test_a_job_that_is_settled_and_purged_in_one_change_leaves_nothing_behind(
    redis_clock: ClockedRedis, state: State, size: int
) -> None:
    """Prevents: ends are listed when the script finishes, also those of jobs that it deleted."""

    async def main() -> None:
        async with redis_clock.opened() as store:
            bench = Bench(store, redis_clock)
            other, job = [
                await bench.start(unique=key, headers={IDEMPOTENCY_KEY: "1"}) for key in (None, KEY)
            ]
            result = b"1" * size if state is State.COMPLETED else None
            changes = Changes(
                answer=None,
                settle=[leaving(job, state, result=result), leaving(other, state)],
                moves=[Move(verb=Verb.PURGE, id=job.id), Move(verb=Verb.PURGE, id=job.id)],
            )
            applied = await store.apply([], lambda _, __: changes)
            purged, again = applied.moved
            assert purged is not None
            assert (purged.id, purged.state, purged.result) == (job.id, state, result)
            assert again is None
            assert await store.get(job.id) is None
            (count,) = await store.counts()
            assert (count.state, count.count) == (state, 1)
            check_indexes(redis_clock.run, redis_clock.prefix)
            (answer,) = await store.enqueue([bench.new(unique=KEY)])
            assert not answer.is_duplicate

    asyncio.run(main())
