"""Sweeps find the head of every lane, whatever its names, and however the jobs change."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from random import Random
from uuid import UUID

import psycopg
import pytest

from tests.support.clocked_stores import opened
from windlass.core.jobs.job import Lane

START = datetime(2030, 1, 1, tzinfo=UTC)
QUEUES = ["", "a", "b", '{"c",\\}', "é", "\U0010ffff"]
KINDS = ["k", "NULL", "z z"]
PRIORITIES = [-(2**31), -1, 0, 2**31 - 1]
KEYS = ["", "'", "key"]
SERVED = [None, frozenset({"a"}), frozenset({"b", "é", "none"}), frozenset[str]()]
ADD = """
INSERT INTO windlass.jobs (id, queue, kind, priority, key, payload, due_at, state)
VALUES (%s, %s, %s, %s, %s, '{}', %s, %s)
"""
WALK = """
SELECT queue, kind, priority, key, due_at FROM (
    SELECT *, row_number() OVER (
        PARTITION BY queue, kind, priority, key ORDER BY due_at, seq) AS place
    FROM windlass.jobs WHERE state = 'pending') AS jobs
WHERE place = 1
"""


class Jobs:
    """Pending jobs of random lanes, which come and go as statements change the table."""

    def __init__(self, url: str, seed: int) -> None:
        self._random = Random(seed)
        self._db = psycopg.connect(url, autocommit=True)
        self._numbers = count(1)

    def close(self) -> None:
        self._db.close()

    def add(self) -> None:
        choose = self._random.choice
        due = START + timedelta(seconds=self._random.randrange(100))
        lane = choose(QUEUES), choose(KINDS), choose(PRIORITIES), choose(KEYS)
        state = choose(["pending", "pending", "scheduled"])
        self._db.execute(ADD, (UUID(int=next(self._numbers)), *lane, due, state))

    def change(self) -> None:
        """Do what enqueues, claims, promotions and rescues do to the heads of lanes."""
        for _ in range(self._random.choice([0, 1, 3, 20])):
            self.add()
        for state in self._random.sample(["pending", "running", "scheduled"], k=2):
            self._db.execute(
                "UPDATE windlass.jobs SET state = %s WHERE id IN "
                "(SELECT id FROM windlass.jobs ORDER BY md5(id::text || %s) LIMIT %s)",
                (state, str(self._random.random()), self._random.choice([0, 1, 5, 30])),
            )
        if self._random.random() < 0.1:
            self._db.execute("DELETE FROM windlass.jobs")

    def heads(self, queues: frozenset[str] | None) -> dict[Lane, datetime]:
        """Return the oldest time of each lane, by a walk of all jobs."""
        rows = self._db.execute(WALK).fetchall()
        return {Lane(*row[:4]): row[4] for row in rows if queues is None or row[0] in queues}


@pytest.fixture(params=range(3))
def jobs(request: pytest.FixtureRequest, migrated_url: str) -> Iterator[Jobs]:
    jobs = Jobs(migrated_url, request.param)
    yield jobs
    jobs.close()


def test_each_sweep_shows_the_heads_of_the_lanes_that_were_asked_for(
    jobs: Jobs, migrated_url: str
) -> None:
    async def sweep() -> None:
        async with opened(migrated_url) as store:
            for _ in range(20):
                jobs.change()
                for queues in SERVED:
                    seen = await store.sweep(queues=queues)
                    shown = {head.lane: head.position for head in seen.heads}
                    assert shown == jobs.heads(queues)
                    assert len(shown) == len(seen.heads), "a lane is shown once"

    asyncio.run(sweep())
