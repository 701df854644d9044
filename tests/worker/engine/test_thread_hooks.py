"""Hooks in the threads of `def` handlers: what belongs to a thread is taken care of there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.support.app_on_store import Bed, in_state, log_lines, on_embedded_stores, serving
from tests.support.clocked_stores import migrate
from tests.support.postgres.scratch import Scratches
from windlass import ConfigError, Context, State, Windlass

DJANGO = """
import asyncio, sys
from datetime import timedelta
from urllib.parse import urlsplit

import django
from django.conf import settings

url = sys.argv[1]
parts = urlsplit(url)
settings.configure(DATABASES={"default": {
    "ENGINE": "django.db.backends.postgresql", "NAME": parts.path[1:], "HOST": parts.hostname,
    "PORT": parts.port, "USER": parts.username, "CONN_MAX_AGE": None,
}})
django.setup()

from django.db import connection
from windlass import Retry, Windlass

app = Windlass(url, threads=1)


@app.job(retry=Retry(max_retries=2, initial="10ms"))
def ask() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_backend_pid()")
        return cursor.fetchone()[0]


async def main() -> None:
    worker = asyncio.create_task(app.arun_worker())
    pid = await (await ask.aenqueue()).aresult("60s")
    import psycopg
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("SELECT pg_terminate_backend(%s)", [pid])
    handles = [await ask.aenqueue() for _ in range(5)]
    pids = {await handle.aresult("60s") for handle in handles}
    assert pid not in pids, pids
    worker.cancel()


asyncio.run(main())
print("answered")
"""


@on_embedded_stores
def test_hooks_are_called_in_the_thread_of_the_handler(bed: Bed) -> None:
    app = bed.app()
    called: list[tuple[str, int]] = []

    @app.on_call_start
    def before() -> None:
        called.append(("before", threading.get_ident()))

    @app.on_call_end
    def after() -> None:
        called.append(("after", threading.get_ident()))

    @app.job(max_retries=0)
    def work(ok: bool) -> None:
        called.append(("work", threading.get_ident()))
        if not ok:
            raise ValueError("no")

    @app.job
    async def elsewhere(ctx: Context) -> None:
        await ctx.step("one", lambda: called.append(("step", threading.get_ident())))

    async def main() -> None:
        async with serving(app):
            await in_state(await work.aenqueue(ok=True), State.COMPLETED)
            await in_state(await work.aenqueue(ok=False), State.DEAD)
            await in_state(await elsewhere.aenqueue(), State.COMPLETED)

    asyncio.run(main())
    names = [name for name, _ in called]
    assert names == ["before", "work", "after"] * 2 + ["before", "step", "after"]
    for first in range(0, 9, 3):
        assert len({thread for _, thread in called[first : first + 3]}) == 1


@on_embedded_stores
def test_an_error_before_the_call_fails_the_job_and_one_after_it_is_logged(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app()
    broken: list[str] = ["start"]

    @app.on_call_start
    def start() -> None:
        if "start" in broken:
            raise LookupError("no session")

    @app.on_call_end
    def end() -> None:
        raise LookupError("could not be closed")

    @app.job(max_retries=0)
    def work() -> str:
        return "done"

    async def main() -> None:
        async with serving(app):
            job = await in_state(await work.aenqueue(), State.DEAD)
            assert str(job.error) == "LookupError: no session"
            broken.clear()
            assert await (await work.aenqueue()).aresult("30s") == "done"

    asyncio.run(main())
    lines = log_lines(caplog, "callback.failed")
    assert [line["callback"].rpartition(".")[2] for line in lines] == ["end", "end"]


@on_embedded_stores
def test_hooks_after_the_call_run_whatever_others_raise_and_change_no_outcome(bed: Bed) -> None:
    app = bed.app()
    ended: list[str] = []

    @app.on_call_start
    def start() -> None:
        if not ended:
            raise LookupError("no session")

    @app.on_call_end
    def leave() -> None:
        ended.append("one")
        raise SystemExit(3)

    @app.on_call_end
    def close() -> None:
        ended.append("two")

    @app.job(max_retries=0)
    def work() -> str:
        return "done"

    async def main() -> None:
        async with serving(app):
            await in_state(await work.aenqueue(), State.DEAD)
            assert ended == ["one", "two"]
            assert await (await work.aenqueue()).aresult("30s") == "done"

    asyncio.run(main())


def test_a_coroutine_cannot_be_called_in_a_thread() -> None:
    app = Windlass("memory://")

    async def hook() -> None: ...

    on_call_start: Any = app.on_call_start
    with pytest.raises(ConfigError, match="must be a plain function"):
        on_call_start(hook)


def test_django_has_a_new_connection_after_its_server_ended_the_old_one(
    postgres_scratches: Scratches, tmp_path: Path
) -> None:
    url = postgres_scratches.of(migrate).fresh()
    program = tmp_path / "program.py"
    program.write_text(DJANGO)
    done = subprocess.run(
        [sys.executable, str(program), url],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout == "answered\n", done.stderr
