"""Owns all stores on one clock, which are driven alike, and whose answers are compared."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from uuid import UUID

from hypothesis.stateful import RuleBasedStateMachine

from tests.store.random_requests import (
    EVERYTHING,
    T,
    token_of,
)
from tests.store.store_contents import heartbeat, worker_info
from tests.support.clocked_stores import Clocked
from tests.support.redis_fixtures import ClockedRedis
from windlass.core.jobs.ids import Origin, job_id
from windlass.core.jobs.job import Enqueued, Job, NewJob, UniqueKey
from windlass.core.jobs.outcomes import Outcome
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.settle import Policy, Transition, settle
from windlass.core.workers import WorkerPulse
from windlass.store.memory import MemoryStore
from windlass.store.postgres import PostgresStore
from windlass.store.protocol import Store
from windlass.store.redis import RedisStore
from windlass.store.sqlite import SqliteStore

POLICY = Policy(retry=Retry(), max_retries=2, max_crashes=2)


class DrivenStores(RuleBasedStateMachine):
    """Does everything four times, and compares."""

    reference: type[MemoryStore]
    database: Clocked
    redis_clock: ClockedRedis
    postgres: PostgresStore
    redis: RedisStore
    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        super().__init__()
        self.database.empty()
        self.redis_clock.empty()
        self.numbers = 0
        self.new: list[NewJob] = []
        self.claimed: list[Job] = []
        self.before: dict[UUID, Job] = {}
        self.spent: set[tuple[UUID, int]] = set()
        self.directory = TemporaryDirectory()
        path = Path(self.directory.name) / "jobs.db"
        self.memory = self.reference(size=EVERYTHING, clock=lambda: self.now)
        self.sqlite = SqliteStore(path, clock=lambda: self.now)
        self.others: dict[str, Store] = {
            "sqlite": self.sqlite,
            "postgres": self.postgres,
            "redis": self.redis,
        }
        for worker in ("anna", "bert"):
            self.register(worker)

    def teardown(self) -> None:
        self.loop.run_until_complete(self.sqlite.close())
        self.directory.cleanup()

    # -- means ---------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self.database()

    def pass_time(self, span: timedelta) -> None:
        self.set_time(self.now + span)

    def set_time(self, now: datetime) -> None:
        self.database.set(now)
        self.redis_clock.set(now)

    def each(self, act: Callable[[Store], Awaitable[T]]) -> T:
        """Do something to every store, see that they answer alike, and return the answer."""

        async def run() -> tuple[T, dict[str, T]]:
            answers = {name: await act(store) for name, store in self.others.items()}
            return await act(self.memory), answers

        expected, answers = self.loop.run_until_complete(run())
        for name, answer in answers.items():
            assert answer == expected, f"{name} differs"
        return expected

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def make(self, fields: Mapping[str, object], unique: UniqueKey | None = None) -> NewJob:
        number = self.number()
        # Ids do not tell the order of insertion: producers' clocks differ.
        made = int(self.now.timestamp() * 1_000) + number * 7 % 10
        identity = job_id(made, number)
        new = NewJob(
            id=identity,
            payload=b'{"n":%d}' % number,
            unique=unique,
            origin=Origin(os.getpid()),
            **fields,  # type: ignore[arg-type]
        )
        self.new.append(new)
        return new

    def enqueue(self, *new: NewJob) -> list[Enqueued]:
        return self.each(lambda store: store.enqueue(new))

    def settle(self, *transitions: Transition) -> list[bool]:
        return self.each(lambda store: store.settle(transitions))

    def transition(self, job: Job, outcome: Outcome) -> Transition:
        return settle(job, outcome, POLICY, now=self.now, jitter=0.5)

    def register(self, worker: str) -> None:
        self.each(lambda store: store.register(worker_info(worker)))

    def beat(self, worker: str) -> None:
        pulse = WorkerPulse(processed=self.number())
        self.each(lambda store: heartbeat(store, worker, pulse))

    def retire(self, worker: str) -> None:
        self.each(lambda store: store.retire(worker))

    def rescue(self, worker: str, limit: int = EVERYTHING) -> None:
        token = self.number()
        self.claimed += self.each(
            lambda store: store.rescue(worker=worker, token=token, limit=limit)
        )

    def live(self) -> list[Job]:
        """Return the claims that still hold their jobs."""
        return [job for job in self.claimed if token_of(self.before, job) == job.token]

    def robbed(self) -> list[Job]:
        """Return the claims of jobs that run under another token by now."""
        return [job for job in self.claimed if token_of(self.before, job) not in (None, job.token)]
