"""PostgreSQL 15: the command line makes the schema, and a worker process drains the queue."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from tests.support.app_on_store import until
from tests.support.clocked_stores import opened
from tests.system.bouncer import PgBouncer
from tests.system.debian import Debian, program
from windlass.core.jobs.states import State
from windlass.demo import load
from windlass.demo.worker_process import last_lines, worker_process
from windlass.store import Store

JOBS = 300
SHAPE = """
SELECT string_agg(thing, E'\\n' ORDER BY thing) FROM (
    SELECT concat_ws(' ', 'column', table_name, column_name, data_type, column_default)
    FROM information_schema.columns WHERE table_schema = 'windlass'
    UNION ALL SELECT concat_ws(' ', 'index', indexdef) FROM pg_indexes
    WHERE schemaname = 'windlass'
    UNION ALL SELECT concat_ws(' ', 'function', pg_get_functiondef(oid)) FROM pg_proc
    WHERE pronamespace = 'windlass'::regnamespace
) AS things (thing)
"""


def windlass(*arguments: str, cwd: Path) -> str:
    """Call the command, with nothing in the environment that could meddle, and return its words."""
    environ = {name: value for name, value in os.environ.items() if "WINDLASS" not in name}
    done = subprocess.run(
        [sys.executable, "-m", "windlass", *arguments],
        check=False,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environ,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def shape(url: str) -> str:
    with psycopg.connect(url) as db:
        row = db.execute(SHAPE).fetchone()
    assert row is not None
    return str(row[0])


def test_the_server_is_what_we_say_we_test(debian: Debian) -> None:
    assert debian.major() == 15


@pytest.mark.parametrize("pooled", [False, True], ids=["directly", "through a pooler"])
def test_migrate_makes_the_schema_once(
    pooled: bool, postgres_url: str, bouncer: PgBouncer, tmp_path: Path
) -> None:
    url = bouncer.through(postgres_url) if pooled else postgres_url
    assert "applied 0001_" in windlass("migrate", "--url", url, cwd=tmp_path)
    made = shape(postgres_url)
    again = windlass("migrate", "--url", url, cwd=tmp_path)
    assert "applied" not in again
    assert "is up to date" in " ".join(again.split())
    assert shape(postgres_url) == made


def test_the_script_of_a_dry_run_makes_the_same_schema_by_psql(
    postgres_url: str, migrated_url: str, tmp_path: Path
) -> None:
    script = windlass("migrate", "--dry-run", "--url", postgres_url, cwd=tmp_path)
    psql = [str(program("psql")), "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", postgres_url]
    done = subprocess.run(psql, input=script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert shape(postgres_url) == shape(migrated_url)
    assert "applied" not in windlass("migrate", "--url", postgres_url, cwd=tmp_path)


@pytest.mark.parametrize("pooled", [False, True], ids=["directly", "through a pooler"])
def test_a_worker_process_drains_what_the_demo_enqueues(
    pooled: bool, migrated_url: str, bouncer: PgBouncer, tmp_path: Path
) -> None:
    url = bouncer.through(migrated_url) if pooled else migrated_url

    async def run() -> None:
        async with opened(url) as store:
            await store.enqueue([draft.job for draft in load.drafts(JOBS)])
            with worker_process(tmp_path, url) as worker:
                await until(lambda: has_ended(store, worker), within=60)
                assert worker.poll() is None, last_lines(tmp_path)
            assert worker.returncode == 0, last_lines(tmp_path)
            # The one that is poison.
            assert await states(store) == {State.COMPLETED: JOBS - 1, State.DEAD: 1}

    asyncio.run(run())


async def has_ended(store: Store, worker: subprocess.Popen[bytes]) -> bool:
    """Say whether every job has ended, or the worker that should see to it."""
    return worker.poll() is not None or sum((await states(store)).values()) == JOBS


async def states(store: Store) -> Counter[State]:
    """Count the jobs that have ended."""
    counts: Counter[State] = Counter()
    for each in await store.counts():
        if each.state in (State.COMPLETED, State.DEAD):
            counts[each.state] += each.count
    return counts
