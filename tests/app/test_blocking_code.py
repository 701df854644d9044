"""Blocking calls work from threads and after a fork, and are refused inside an event loop."""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import textwrap
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import windlass
from tests.support.app_on_store import STORES, Bed, our_threads, serving_in_a_thread, until
from windlass import CalledFromEventLoop
from windlass.core.jobs.queries import JobFilter

pytestmark = pytest.mark.stores(*STORES)

SOURCE = str(Path(windlass.__file__).parents[1])


def test_a_blocking_call_in_an_event_loop_names_what_to_write_instead(bed: Bed) -> None:
    app = bed.app()

    @app.job(name="mail.send")
    async def send(to: str) -> None: ...

    async def main() -> None:
        handle = await send.aenqueue("anna")
        calls: list[tuple[Any, str]] = [
            (lambda: send.enqueue("anna"), "await mail.send.aenqueue(...)"),
            (lambda: send.using(queue="q").enqueue("anna"), "await mail.send.aenqueue(...)"),
            (lambda: app.enqueue_many([]), "await app.aenqueue_many(...)"),
            (handle.result, "await handle.aresult(...)"),
            (handle.state, "await handle.astate(...)"),
            (handle.cancel, "await handle.acancel(...)"),
            (handle.info, "await handle.ainfo(...)"),
            (app.close, "await app.aclose()"),
            (app.stats, "await app.astats(...)"),
            (app.run_worker, "await app.arun_worker(...)"),
            (lambda: app.control.pause("q"), "await app.control.apause(...)"),
            (lambda: app.control.why(handle.id), "await app.control.awhy(...)"),
            (lambda: app.control.cancel_where(queue="q"), "await app.control.acancel_where(...)"),
            (app.control.limits, "await app.control.alimits(...)"),
            (app.control.breakers, "await app.control.abreakers(...)"),
            (app.schedules.list, "await app.schedules.alist(...)"),
        ]
        for call, remedy in calls:
            with pytest.raises(CalledFromEventLoop) as caught:
                call()
            assert caught.value.instead == remedy
            assert remedy in str(caught.value)
        assert len((await app.store.find(JobFilter(), limit=10)).jobs) == 1

    asyncio.run(main())


def test_many_threads_enqueue_at_once(bed: Bed) -> None:
    app = bed.app()
    gate = threading.Barrier(16)

    @app.job
    async def note(n: int) -> int:
        return n

    def produce(thread: int) -> list[Any]:
        gate.wait(60)
        return [note.enqueue(thread * 100 + n) for n in range(10)]

    with ThreadPoolExecutor(16) as pool:
        handles = [handle for made in pool.map(produce, range(16)) for handle in made]
    assert len({handle.id for handle in handles}) == 160
    with serving_in_a_thread(app):
        results = {handle.result(timeout="60s") for handle in handles}
    assert results == {thread * 100 + n for thread in range(16) for n in range(10)}


def test_threads_that_make_the_store_at_once_share_it(bed: Bed) -> None:
    """Prevents: each thread gets a memory store of its own, and jobs are enqueued into nowhere."""
    app = bed.app()
    gate = threading.Barrier(16)

    def look(_: int) -> int:
        gate.wait(60)
        return id(app.store)

    with ThreadPoolExecutor(16) as pool:
        assert len(set(pool.map(look, range(16)))) == 1


def test_closing_an_app_leaves_no_thread_and_it_can_be_used_again(bed: Bed) -> None:
    app = bed.app()
    before = threading.enumerate()

    @app.job
    async def note() -> None: ...

    for _ in range(2):
        handle = note.enqueue()
        assert handle.state().value == "pending"
        app.close()
        asyncio.run(until(lambda: our_threads(besides=before) == []))
    app.close()
    asyncio.run(until(lambda: our_threads(besides=before) == []))


def run_python(script: str, *args: str, timeout: float = 30) -> str:
    """Run a script in a process of its own, in which every warning is an error."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-X", "dev", "-c", textwrap.dedent(script), *args],
        env={"PYTHONPATH": SOURCE, "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    # In development mode asyncio complains of whatever took long, as on a busy machine.
    said = [line for line in done.stderr.splitlines() if not line.startswith("Executing <")]
    assert said == []
    return done.stdout


def test_the_end_of_the_portal_closes_the_connections_of_its_loop(bed: Bed) -> None:
    """Prevents: sockets that Python warns of later, wherever the garbage is collected."""
    app = bed.app()

    @app.job
    async def note() -> None: ...

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert note.enqueue().state().value == "pending"
        app.portal.close()
        asyncio.run(app.aclose())
        gc.collect()
    assert [str(each.message) for each in warned] == []


def test_closing_an_app_leaves_nothing_that_python_warns_of(tmp_path: Path) -> None:
    script = """
        import gc, sys
        from windlass import Windlass
        app = Windlass(sys.argv[1])
        @app.job
        def note() -> None: ...
        print(note.enqueue().state().value)
        app.close()
        app.portal = None
        gc.collect()
    """
    assert run_python(script, f"sqlite:///{tmp_path}/jobs.db") == "pending\n"
    assert run_python(script, "memory://") == "pending\n"


FORKING = """
    import asyncio, os, sys, warnings
    warnings.filterwarnings("ignore", message=".*multi-threaded.*fork", category=DeprecationWarning)
    from windlass import Windlass

    app = Windlass(sys.argv[1], enqueue_timeout="10s")

    @app.job
    def note(who: str) -> str:
        return who

    used_before, count = sys.argv[2] == "used", int(sys.argv[3])
    if used_before:
        handle = note.enqueue("parent before")
        assert handle.state() == "pending"
    children = []
    for number in range(count):
        child = os.fork()
        if not child:
            handle = note.enqueue(f"child {number}")
            assert handle.state() == "pending", handle.state()
            app.enqueue_many([note.draft(f"child {number}") for _ in range(3)])
            if number % 2:
                asyncio.run(app.aclose())
                os._exit(0)
            sys.exit(0)
        children.append(child)
    note.enqueue("parent after")
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    handle = note.enqueue("parent at last")
    assert handle.state() == "pending"
    asyncio.run(app.aclose())
"""


@pytest.mark.parametrize("parent", ["used", "fresh"])
def test_forked_children_enqueue_whether_or_not_their_parent_used_the_store(
    tmp_path: Path, parent: str
) -> None:
    url = f"sqlite:///{tmp_path}/jobs.db"
    run_python(FORKING, url, parent, "4")
    app = windlass.Windlass(url)

    async def main() -> list[bytes]:
        jobs = (await app.store.find(JobFilter(), limit=100)).jobs
        await app.aclose()
        return [job.payload for job in jobs]

    payloads = asyncio.run(main())
    assert sum(b"child" in payload for payload in payloads) == 16
    assert sum(b"parent" in payload for payload in payloads) == (3 if parent == "used" else 2)


def test_ids_made_on_both_sides_of_a_fork_differ(tmp_path: Path) -> None:
    script = """
        import os, sys
        from windlass import Windlass
        app = Windlass("memory://")
        @app.job
        def note() -> None: ...
        note.draft()
        read, write = os.pipe()
        if not os.fork():
            os.write(write, b"".join(note.draft().job.id.bytes for _ in range(100)))
            os._exit(0)
        mine = {note.draft().job.id.bytes for _ in range(100)}
        os.wait()
        data = os.read(read, 1600)
        theirs = {data[at:at + 16] for at in range(0, 1600, 16)}
        print(len(mine | theirs))
    """
    assert run_python(script) == "200\n"


def test_a_prefork_server_enqueues_from_every_worker_and_one_worker_runs_it_all(
    tmp_path: Path,
) -> None:
    """As gunicorn does with --preload: the app is imported once, and its children serve."""
    script = """
        import asyncio, os, sys, threading
        from windlass import Windlass

        app = Windlass(sys.argv[1])

        @app.job
        def note(n: int) -> int:
            return n

        def serve(number):
            def request(n):
                note.enqueue(number * 100 + n)
            threads = [threading.Thread(target=request, args=(n,)) for n in range(8)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            asyncio.run(app.aclose())

        children = []
        for number in range(4):
            child = os.fork()
            if not child:
                serve(number)
                os._exit(0)
            children.append(child)
        for child in children:
            assert os.waitpid(child, 0)[1] == 0
    """
    url = f"sqlite:///{tmp_path}/jobs.db"
    run_python(script, url)
    app = windlass.Windlass(url)
    ran: list[int] = []

    @app.job
    def note(n: int) -> None:
        ran.append(n)

    with serving_in_a_thread(app):
        asyncio.run(until(lambda: len(ran) == 32))
    assert sorted(ran) == sorted(a * 100 + b for a in range(4) for b in range(8))
    asyncio.run(app.aclose())
