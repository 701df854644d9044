"""Owns how tests of the schema connect, and make and take jobs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import psycopg

from windlass.app.enqueueing.id_generator import IdGenerator
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.jobs.job import Job, Lane, NewJob
from windlass.core.workers import WorkerInfo
from windlass.store.postgres import PostgresStore

LANE = Lane("default", "work")
HOUR = timedelta(hours=1)
IDS = IdGenerator()


def new(**fields: Any) -> NewJob:
    base: dict[str, Any] = {"id": IDS.next(), "kind": "work", "payload": b'{"n":1}'}
    return NewJob(**base | fields)


async def take(store: PostgresStore, count: int = 1) -> list[Job]:
    info = WorkerInfo(id="w", name="w", host="h", pid=1, release="1", lease=HOUR, slots=10)
    await store.register(info)
    return await store.claim(Claim(asks=(Ask(lane=LANE, count=count),)), worker="w", token=7)


@contextmanager
def connected(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url, autocommit=True) as db:
        yield db
