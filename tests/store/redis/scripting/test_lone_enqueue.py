"""A single plain job is added by one call, packed by hand, that wakes sleepers if there are any."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from uuid import uuid4

import pytest

from tests.support.redis_fixtures import ClockedRedis
from windlass.core.jobs.job import Enqueued, NewJob
from windlass.store.redis.connections.script import pack_all
from windlass.store.redis.scripting.calls import Names
from windlass.store.redis.scripting.lone_enqueue import LoneEnqueues
from windlass.store.redis.scripting.script_files import load_scripts

NAMES = Names(b"{app}:", load_scripts())
JOBS = [
    NewJob(id=uuid4(), kind="send", payload=b"{}"),
    NewJob(id=uuid4(), kind="send", payload=b"x" * 511, priority=-7, key="ada", queue="größer"),
    NewJob(id=uuid4(), kind="k" * 300, payload=b"\r\n$0\r\n", headers={"a": "b"}, max_retries=3),
    NewJob(id=uuid4(), kind="send", payload=b"", timeout=timedelta(seconds=9), priority=1000),
    NewJob(id=uuid4(), kind="\0" * 16, payload=b"\0" * 40, key="\r\n"),
]


@pytest.mark.parametrize("job", JOBS)
@pytest.mark.parametrize("answer", [1, 2])
def test_a_call_packed_by_hand_is_what_hiredis_would_send(job: NewJob, answer: int) -> None:
    """Prevents: a repetition of a call, which is packed from its commands, is another one."""
    lone = LoneEnqueues(NAMES, in_cluster=False)
    lone._added(job, [answer])
    call = lone._call(job)
    assert call.packed == pack_all(call.commands, in_cluster=False)
    assert len(call.commands) == answer


def test_a_cluster_gets_its_second_key_and_nothing_packed_by_hand() -> None:
    assert LoneEnqueues(NAMES, in_cluster=True)._call(JOBS[0]).packed is None


def test_nobody_is_looked_for_once_no_worker_sleeps(redis_clock: ClockedRedis) -> None:
    """Prevents: the mark of sleepers stays, and each enqueue pays for workers long gone."""

    async def main() -> None:
        async with redis_clock.opened() as store:
            waiter = asyncio.create_task(store.wait((await store.sweep()).mark, timedelta(hours=1)))
            asleep = f"{{{redis_clock.prefix}}}:zz"
            while not redis_clock.run("EXISTS", asleep):  # noqa: ASYNC110 - another process's key.
                await asyncio.sleep(0.01)
            jobs = [NewJob(id=uuid4(), kind="send", payload=b"{}") for _ in range(4)]
            answers: list[object] = []
            run = store._connections.here().run
            for job in jobs:
                call = store._lone._call(job)
                replies = await run(*call.commands, packed=call.packed)
                assert store._lone._added(job, replies) == [Enqueued(id=job.id)]
                answers.append(replies[-1])
                waiter.cancel()
            # The first wakes, the second finds the group empty, the third finds no group.
            assert answers == [2, 2, 2, 1]
            assert not redis_clock.run("EXISTS", asleep)

    asyncio.run(main())
