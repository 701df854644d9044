"""The four stores, driven by the same rules on one clock, always show the same.

The memory store is the readable reference; a difference is a bug in one of them. The machine is
tested as well: with the fence taken out of a store it must turn red.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.store.stores_agree import StoresAgree
from tests.support.clocked_stores import Clocked
from tests.support.redis_fixtures import CLOCK, ClockedRedis
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State
from windlass.store.memory import MemoryStore
from windlass.store.memory.job_index import JobIndex
from windlass.store.postgres import PostgresStore
from windlass.store.redis import RedisStore
from windlass.store.redis.connections.script import Script
from windlass.store.redis.scripting.script_files import load_scripts


@contextmanager
def machine(
    database: Clocked,
    redis_clock: ClockedRedis,
    reference: type[MemoryStore] = MemoryStore,
    scripts: Mapping[str, Script] | None = None,
) -> Iterator[type[StoresAgree]]:
    """Give a machine whose examples share connections to servers, which each of them empties."""
    loop = asyncio.new_event_loop()
    postgres = PostgresStore(database.url)
    redis = RedisStore(redis_clock.url, scripts=scripts or load_scripts(clock=CLOCK))
    shared = {
        "database": database,
        "redis_clock": redis_clock,
        "reference": reference,
        "postgres": postgres,
        "redis": redis,
        "loop": loop,
    }
    try:
        yield type("Machine", (StoresAgree,), shared)
    finally:
        loop.run_until_complete(postgres.close())
        loop.run_until_complete(redis.close())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


QUIET = settings(
    derandomize=True,
    deadline=None,
    max_examples=20,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)

QUICK = settings(QUIET, max_examples=100, phases=[Phase.generate], report_multiple_bugs=False)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("examples", [8, pytest.param(20, marks=pytest.mark.long)])
def test_the_stores_agree_whatever_happens(
    examples: int, shared_database: Clocked, redis_clock: ClockedRedis
) -> None:
    with machine(shared_database, redis_clock) as agreeing:
        run_state_machine_as_test(agreeing, settings=settings(QUIET, max_examples=examples))


class _UnfencedJobs(JobIndex):
    def held(self, job_id: UUID, token: int) -> Job | None:
        job = self.get(job_id)
        return job if job is not None and job.state is State.RUNNING else None


class _Unfenced(MemoryStore):
    """Settles by id alone."""

    def __init__(self, *, size: int = 1000, clock: Callable[[], datetime]) -> None:
        super().__init__(size=size, clock=clock)
        self._tables.jobs = _UnfencedJobs()


class _Forgetful(MemoryStore):
    """Promotes everything that is due but one."""

    async def promote(self, limit: int) -> int:
        return await super().promote(min(limit, 1))


RARELY = [pytest.mark.long, pytest.mark.again]
"""For more of what tries the machine, and not the product."""


@pytest.mark.parametrize("broken", [_Unfenced, pytest.param(_Forgetful, marks=RARELY)])
def test_the_machine_turns_red_when_a_store_is_broken(
    broken: type[MemoryStore], shared_database: Clocked, redis_clock: ClockedRedis
) -> None:
    broken_machine = machine(shared_database, redis_clock, broken)
    with broken_machine as disagreeing, pytest.raises(AssertionError):
        run_state_machine_as_test(disagreeing, settings=QUICK)


BREAKS = {
    "complete": ("jobs.token = done.token", "jobs.token IS NOT NULL"),
    "settle": ("token = move.token", "token IS NOT NULL"),
    "claim": ("attempt = attempt + 1", "attempt = attempt + 2"),
    "amend": ("coalesce(its_payload, '{}')", "payload"),
    "note_done": ("'idempotency-key', id, now", "'idempotency-key', gen_random_uuid(), now"),
}
"""What is broken in a function of the schema: the fence of both ways to settle, a count,
what a duplicate replaces, and which job a key was done by.
"""


@pytest.mark.parametrize(
    "function",
    [
        "settle",
        *(pytest.param(each, marks=RARELY) for each in BREAKS if each != "settle"),
    ],
)
def test_the_machine_turns_red_when_a_function_of_the_schema_is_broken(
    function: str, database: Clocked, redis_clock: ClockedRedis
) -> None:
    right, wrong = BREAKS[function]
    (definition,) = database.db.execute(
        "SELECT pg_get_functiondef(oid) FROM pg_proc "
        "WHERE proname = %s AND pronamespace = 'windlass'::regnamespace",
        [function],
    ).fetchall()
    assert right in definition[0]
    database.db.execute(definition[0].replace(right, wrong).encode())
    differs = pytest.raises(AssertionError, match="postgres differs")
    with machine(database, redis_clock) as disagreeing, differs:
        run_state_machine_as_test(disagreeing, settings=QUICK)


LUA_BREAKS = {
    "settle": ("m.token == token", "m.token ~= ''"),
    "apply": ("h[STATE] ~= RUNNING or h[TOKEN] ~= ARGV[at + 1]", "false"),
    "claim": ("h[ATTEMPT] + 1", "h[ATTEMPT] + 2"),
    "enqueue_any": ("due > h[DUE]", "true"),
    "promote": ("heads[id][WAITING_FOR] = PENDING, false", "heads[id][REASON] = PENDING, false"),
}
"""What is broken in a script: the fence of both ways to settle, a count, which due time a duplicate
pushes, and what a promoted job waits for.
"""


@pytest.mark.parametrize(
    "script",
    ["settle", *(pytest.param(each, marks=RARELY) for each in LUA_BREAKS if each != "settle")],
)
def test_the_machine_turns_red_when_a_script_is_broken(
    script: str, shared_database: Clocked, redis_clock: ClockedRedis
) -> None:
    right, wrong = LUA_BREAKS[script]
    scripts = dict(load_scripts(clock=CLOCK))
    source = scripts[script].source.decode()
    assert right in source
    scripts[script] = Script.of(script, source.replace(right, wrong))
    broken_machine = machine(shared_database, redis_clock, scripts=scripts)
    with broken_machine as disagreeing, pytest.raises(AssertionError):
        run_state_machine_as_test(disagreeing, settings=QUICK)
