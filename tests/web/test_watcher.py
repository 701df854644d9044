"""Life: one watcher tells all open pages what changed, and many viewers cost what one costs."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.web.viewing import seeded, shop, viewer
from windlass import Windlass
from windlass.core.errors import StoreUnavailable
from windlass.web.live.reads import Reads
from windlass.web.live.watcher import MAX_STREAMS, TooManyStreams, Watcher

_PROMPT = 30


async def _changed(stream: AsyncIterator[str]) -> list[str]:
    while True:
        event = await asyncio.wait_for(anext(stream), _PROMPT)
        if event.startswith("event: changed"):
            found: list[str] = json.loads(event.split("data: ")[1])
            return found


def test_an_event_names_what_changed() -> None:
    async def main() -> None:
        app = shop()
        watcher = Watcher(Reads(app))
        stream = watcher.subscribe()
        assert "jobs" in await _changed(stream)
        await app.aenqueue_many([app.producer("charge").draft({"cents": 1})])
        assert {"jobs", "queues"} <= set(await _changed(stream))
        await app.control.apause("mail")
        assert "queues" in await _changed(stream)
        watcher.close()

    asyncio.run(main())


def test_closing_ends_every_stream() -> None:
    async def main() -> None:
        watcher = Watcher(Reads(shop()))
        streams = [watcher.subscribe() for _ in range(3)]

        async def drain(stream: AsyncIterator[str]) -> None:
            async for _ in stream:
                pass

        tasks = [asyncio.create_task(drain(each)) for each in streams]
        await asyncio.sleep(0)
        watcher.close()
        await asyncio.wait_for(asyncio.gather(*tasks), _PROMPT)
        assert watcher.streams == 0
        with pytest.raises(TooManyStreams):
            watcher.subscribe()

    asyncio.run(main())


def test_a_program_with_a_mounted_page_ends_while_a_stream_is_open(tmp_path: Path) -> None:
    """Prevents: uvicorn waits for the stream of an open tab, for ever."""
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""
        import socket, uvicorn
        from starlette.applications import Starlette
        from starlette.routing import Mount
        from windlass import Windlass

        listening = socket.create_server(("127.0.0.1", 0))
        print(listening.getsockname()[1], flush=True)
        program = Starlette(routes=[Mount("/jobs", Windlass("memory://").web())])
        uvicorn.Server(uvicorn.Config(program, log_level="critical")).run([listening])
        """)
    )
    with subprocess.Popen(
        [sys.executable, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with socket.create_connection(("127.0.0.1", port), timeout=60) as stream:
            stream.sendall(f"GET /jobs/events HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
            assert b"text/event-stream" in stream.recv(4096)
            process.terminate()
            process.wait(60)


def test_a_watcher_that_fails_goes_on(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        reads = Reads(shop())
        watcher = Watcher(reads)
        stream = watcher.subscribe()
        await _changed(stream)
        read = reads.snapshot

        async def fail() -> Any:
            raise RuntimeError("a bug")

        monkeypatch.setattr(reads, "snapshot", fail)
        assert await _changed(stream) == ["store"]
        monkeypatch.setattr(reads, "snapshot", read)
        assert "store" in await _changed(stream)
        watcher.close()

    asyncio.run(main())
    assert "web.watcher_failed" in caplog.text


def test_a_stream_that_starts_as_the_last_one_ends_is_watched() -> None:
    async def main() -> None:
        app = shop()
        watcher = Watcher(Reads(app))
        last: Any = watcher.subscribe()
        await _changed(last)
        await app.control.apause("mail")
        await last.aclose()
        assert "queues" in await asyncio.wait_for(_changed(watcher.subscribe()), _PROMPT)
        watcher.close()

    asyncio.run(main())


def test_streams_are_bounded_and_one_too_many_is_refused() -> None:
    async def main() -> None:
        app = shop()
        page = app.web()
        watcher = page.state.site.watcher
        streams = [watcher.subscribe() for _ in range(MAX_STREAMS)]
        async with viewer(page) as person:
            assert (await person.get("/events")).status_code == 503
        del streams
        gc.collect()
        assert watcher.streams == 0, "streams that never began take no place"

    asyncio.run(main())


def test_the_watcher_survives_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        app = shop()
        reads = Reads(app)
        watcher = Watcher(reads)
        stream = watcher.subscribe()
        await _changed(stream)
        read = reads.snapshot

        async def fail() -> Any:
            raise StoreUnavailable("the server is gone")

        monkeypatch.setattr(reads, "snapshot", fail)
        assert await _changed(stream) == ["store"]
        monkeypatch.setattr(reads, "snapshot", read)
        assert "store" in await _changed(stream)
        watcher.close()

    asyncio.run(main())


_PAGES = (
    "/", "/jobs", "/jobs/{pending}", "/errors", "/kinds", "/queues", "/workers", "/flows",
    "/flows/{flow}", "/schedules", "/limits", "/audit", "/bulk", "/api/v1/stats?kind=fail",
    "/api/v1/jobs/{pending}/why",
)  # fmt: skip


@pytest.mark.parametrize("address", _PAGES)
def test_many_viewers_read_the_store_as_often_as_one(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        app = shop()
        path = address.format(**await seeded(app))
        calls = _counted(app, monkeypatch)
        async with viewer(app.web()) as person:
            assert (await person.get(path)).status_code == 200
            alone = len(calls)
        calls.clear()
        async with viewer(app.web()) as person:
            await asyncio.gather(*(person.get(path) for _ in range(50)))
        assert alone
        assert len(calls) <= 2 * alone, "a second may pass while fifty pages are drawn"

    asyncio.run(main())


def _counted(app: Windlass, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    reads = ("sweep", "depths", "records", "workers", "error_groups", "find", "get", "get_many")
    for name in (*reads, "standing", "held"):
        read = getattr(app.store, name)

        def counted(*args: Any, _read: Any = read, _name: str = name, **kwargs: Any) -> Any:
            calls.append(_name)
            return _read(*args, **kwargs)

        monkeypatch.setattr(app.store, name, counted)
    return calls


def test_a_read_that_fails_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        app = shop()
        reads = Reads(app)
        workers = app.store.workers

        async def fail() -> Any:
            raise StoreUnavailable("the server is gone")

        monkeypatch.setattr(app.store, "workers", fail)
        with pytest.raises(StoreUnavailable):
            await reads.workers()
        monkeypatch.setattr(app.store, "workers", workers)
        assert await reads.workers() == []

    asyncio.run(main())


def test_pages_that_hear_of_a_change_read_it() -> None:
    async def main() -> None:
        app = shop()
        reads = Reads(app)
        watcher = Watcher(reads)
        stream = watcher.subscribe()
        await _changed(stream)
        await reads.jobs({}, limit=10, after=None)
        await app.aenqueue_many([app.producer("charge").draft({"cents": 1})])
        await _changed(stream)
        assert len((await reads.jobs({}, limit=10, after=None)).jobs) == 1
        watcher.close()

    asyncio.run(main())
