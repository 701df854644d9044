"""Looking at jobs works on a streaming replica; whatever changes them needs the primary."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.postgres.server import FAST, Server
from tests.support.postgres.wheel import identity, installations, reachable, unprivileged
from windlass import Windlass
from windlass.core.errors import StoreError
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import State


@contextmanager
def replica_of(primary: Server, directory: Path) -> Iterator[Server]:
    """Run a replica, which has everything that its primary has at this moment."""
    replica, user = Server(directory=directory, remove=[directory]), unprivileged()
    data = replica.directory / "data"
    data.mkdir(mode=0o700)
    if user is not None:
        os.chown(data, user.pw_uid, user.pw_gid)
    binaries = reachable(installations()[replica.version], replica.directory, user) / "bin"
    where = ["-h", "127.0.0.1", "-p", str(primary.port), "-U", "postgres"]
    command: list[str | Path] = [
        binaries / "pg_basebackup",
        *where,
        "-D",
        data,
        "-R",
        "-c",
        "fast",
        "--no-sync",
    ]
    subprocess.run(command, check=True, cwd="/", **identity(user))
    with replica:
        yield replica


async def filled(url: str) -> None:
    app = Windlass(url, log_level="error")

    @app.job
    async def greet() -> None: ...

    await app.store.migrate()
    await greet.aenqueue()
    await app.arun_worker(burst=True)
    await greet.aenqueue()
    await app.aclose()


async def look(url: str) -> None:
    """Read all that the looking commands read, then try to change something."""
    app = Windlass(url)
    store = app.store
    found = (await store.find(JobFilter(), limit=10)).jobs
    assert [job.state for job in found] == [State.PENDING, State.COMPLETED]
    assert {(each.state, each.count) for each in await store.counts()} == {
        (State.PENDING, 1),
        (State.COMPLETED, 1),
    }
    assert [head.lane.kind for head in (await store.sweep()).heads] == ["greet"]
    assert (await store.standing(found[0].id, limit=10)).head == found[0].id
    assert len(await store.workers()) == 1
    assert (await app.astats()).queues
    assert await app.schedules.alist() == []
    assert (await store.error_groups(limit=5)).groups == ()
    await store.findings()
    assert await store.lineage() is None, "it is not the one that decides"
    with pytest.raises(StoreError, match="read-only transaction"):
        await app.control.acancel(found[0].id)
    await app.aclose()


def test_a_replica_answers_every_look_and_refuses_changes() -> None:
    with Server(settings=FAST) as primary:
        url = primary.create_database("shop")
        asyncio.run(filled(url))
        directory = primary.directory.with_name(f"{primary.directory.name}-replica")
        with replica_of(primary, directory) as replica:
            asyncio.run(look(f"postgresql://postgres@127.0.0.1:{replica.port}/shop"))
