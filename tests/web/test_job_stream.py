"""The stream of a job in a browser: all of it, in order, until it ends, to those who may see it."""

from __future__ import annotations

import asyncio
import gc
import socket
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.support.app_on_store import serving, until
from tests.web.streaming import Told, at_a_server, events_in, events_of
from tests.web.viewing import TOKEN, of_role, viewer
from windlass.web.live.open_streams import MAX_JOB_STREAMS

_PROMPT = 60


def test_a_listener_gets_each_chunk_while_the_job_runs_and_learns_its_end(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told(f"sqlite:///{tmp_path / 'told.db'}")
        async with serving(told.app), at_a_server(told.app.web()) as client:
            job = (await told.enqueue(["a", {"row": 2}], ["c"])).id
            async with client.stream("GET", f"jobs/{job}/stream") as response:
                assert response.headers["content-type"].startswith("text/event-stream")
                events = events_of(response)
                assert await anext(events) == ("message", "1-1", "a")
                assert await anext(events) == ("message", "1-2", {"row": 2})
                told.gate.set()
                assert await anext(events) == ("message", "1-3", "c")
                assert await anext(events) == ("end", "", {"state": "completed"})
                assert [each async for each in events] == []
            late = await client.get(f"jobs/{job}/stream")
            assert [each[2] for each in events_in(late.text)[:3]] == ["a", {"row": 2}, "c"]
        await told.app.aclose()

    asyncio.run(main())


def test_a_listener_who_connects_again_gets_neither_a_gap_nor_a_chunk_twice(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        told = Told(f"sqlite:///{tmp_path / 'told.db'}")
        chunks = [f"chunk {number}" for number in range(300)]
        async with serving(told.app), at_a_server(told.app.web()) as client:
            job = (await told.enqueue(chunks[:150], chunks[150:])).id
            got: list[Any] = []
            last = ""
            while len(got) < 300:
                headers = {"last-event-id": last} if last else {}
                async with client.stream("GET", f"jobs/{job}/stream", headers=headers) as response:
                    taken = 0
                    async for name, position, data in events_of(response):
                        if name == "end":
                            break
                        got.append(data)
                        last = position
                        taken += 1
                        if taken == 40 or len(got) == 150:
                            break
                if len(got) == 150:
                    told.gate.set()
            assert got == chunks
        await told.app.aclose()

    asyncio.run(main())


def test_a_new_attempt_tells_which_chunks_are_void() -> None:
    async def main() -> None:
        told = Told()
        async with serving(told.app), viewer(told.app.web()) as person:
            told.gate.set()
            handle = await told.enqueue(["a", "b"], ["c"], "once")
            await handle.aresult("60s")
            after = {"last-event-id": "1-2"}
            answer = await person.get(f"/jobs/{handle.id}/stream", headers=after)
            assert events_in(answer.text) == [
                ("restart", "2-0", 0),
                ("message", "2-1", "a"),
                ("message", "2-2", "b"),
                ("message", "2-3", "c"),
                ("end", "", {"state": "completed"}),
            ]

    asyncio.run(main())


def test_the_stream_of_a_job_that_dies_ends_with_its_state() -> None:
    async def main() -> None:
        told = Told()
        async with serving(told.app), viewer(told.app.web()) as person:
            told.gate.set()
            handle = await told.enqueue([], ["a"], "always")
            answer = await person.get(f"/jobs/{handle.id}/stream")
            assert events_in(answer.text)[-1] == ("end", "", {"state": "dead"})

    asyncio.run(main())


def test_a_listener_who_cannot_wait_gets_the_chunks_that_are_stored() -> None:
    async def main() -> None:
        told = Told()
        async with serving(told.app), viewer(told.app.web()) as person:
            job = (await told.enqueue(["a", "b"], ["c"])).id
            path = f"/jobs/{job}/stream?wait=no"

            async def sent(number: int, after: str = "") -> list[Any]:
                events: list[Any] = []
                while len(events) < number:
                    events = events_in((await person.get(f"{path}&after={after}")).text)
                    await asyncio.sleep(0.01)
                return events

            assert await sent(2) == [("message", "1-1", "a"), ("message", "1-2", "b")]
            assert await sent(1, "1-1") == [("message", "1-2", "b")]
            told.gate.set()
            assert (await sent(4))[-1] == ("end", "", {"state": "completed"})

    asyncio.run(main())


def test_a_stream_is_masked_and_hidden_from_those_who_may_not_see_payloads() -> None:
    async def main() -> None:
        told = Told()
        secret = "hunter2-hunter2"
        async with serving(told.app):
            told.gate.set()
            handle = await told.enqueue([{"password": secret}, f"password={secret}", "fine"], [])
            await handle.aresult("60s")
        async with viewer(told.app.web()) as person:
            for path in (f"/jobs/{handle.id}/stream", f"/jobs/{handle.id}"):
                answer = await person.get(path)
                assert "fine" in answer.text
                assert secret not in answer.text, path
        async with viewer(told.app.web(access=of_role("admin", payloads=False))) as person:
            refused = await person.get(f"/jobs/{handle.id}/stream")
            assert (refused.status_code, "payloads" in refused.json()["detail"]) == (403, True)
            assert "fine" not in (await person.get(f"/jobs/{handle.id}")).text

    asyncio.run(main())


def test_a_stream_needs_the_login_of_the_page() -> None:
    async def main() -> None:
        told = Told(web_token=TOKEN)
        job = (await told.enqueue(["a"], [])).id
        async with viewer(told.app.web()) as stranger:
            assert (await stranger.get(f"/jobs/{job}/stream")).status_code == 401
        async with viewer(told.app.web(access=lambda _: None)) as stranger:
            assert (await stranger.get(f"/jobs/{job}/stream")).status_code == 403

    asyncio.run(main())


@pytest.mark.parametrize("after", ["seventeen", "1-", "-1-1", "1-1-1"])
def test_a_position_that_is_none_is_refused(after: str) -> None:
    async def main() -> None:
        told = Told()
        job = (await told.enqueue(["a"], [])).id
        async with viewer(told.app.web()) as person:
            headers = {"last-event-id": after}
            answer = await person.get(f"/jobs/{job}/stream", headers=headers)
            assert answer.status_code == 422
            assert "position of a stream" in answer.json()["detail"]
            assert (await person.get(f"/jobs/{uuid4()}/stream")).status_code == 404
            assert (await person.get(f"/jobs/{job}?stream={after}")).status_code == 422

    asyncio.run(main())


def test_streams_of_jobs_are_bounded_and_give_their_places_back() -> None:
    async def main() -> None:
        told = Told()
        job = (await told.enqueue(["a"], [])).id
        page = told.app.web()
        streams = page.state.site.job_streams
        places = [streams.take_place() for _ in range(MAX_JOB_STREAMS)]
        async with viewer(page) as person:
            refused = await person.get(f"/jobs/{job}/stream?wait=no")
            assert refused.status_code == 503
            assert refused.json()["remedy"]
            del places
            gc.collect()
            assert (await person.get(f"/jobs/{job}/stream?wait=no")).status_code == 200
        gc.collect()
        assert streams.streams == 0

    asyncio.run(main())


def test_a_listener_who_leaves_leaves_nothing_behind(tmp_path: Path) -> None:
    async def main() -> None:
        told = Told(f"sqlite:///{tmp_path / 'told.db'}")
        page = told.app.web()
        streams = page.state.site.job_streams
        async with serving(told.app), at_a_server(page) as client:
            job = (await told.enqueue(["a"], [])).id
            async with client.stream("GET", f"jobs/{job}/stream") as response:
                assert await anext(events_of(response)) == ("message", "1-1", "a")
                assert streams.streams == 1
            await until(lambda: gc.collect() >= 0 and streams.streams == 0)
            told.gate.set()
        await told.app.aclose()

    asyncio.run(main())


def test_many_listeners_of_a_job_read_the_store_as_often_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def main() -> None:
        told = Told()
        job = (await told.enqueue(["a"], [])).id
        page = told.app.web()
        streams = page.state.site.job_streams
        calls = []
        read = told.app.store.stream_read

        async def counted(*args: Any) -> Any:
            calls.append(args)
            await asyncio.sleep(0)
            return await read(*args)

        monkeypatch.setattr(told.app.store, "stream_read", counted)
        async with viewer(page) as person:
            path = f"/jobs/{job}/stream?wait=no"
            await asyncio.gather(*(person.get(path) for _ in range(50)))
        assert len(calls) < 10, "fifty listeners ask within one another's time"
        del streams

    asyncio.run(main())


@pytest.mark.parametrize("prefix", ["", "/work"])
def test_a_program_ends_while_the_stream_of_a_job_is_open(tmp_path: Path, prefix: str) -> None:
    """Prevents: uvicorn waits for the stream of a job that does not end, for ever."""
    (tmp_path / "program.py").write_text(
        textwrap.dedent("""
        import socket, sys, uvicorn
        from starlette.applications import Starlette
        from starlette.routing import Mount
        from windlass import Windlass

        app = Windlass("sqlite:///jobs.db")

        @app.job
        async def tell() -> None: ...

        job = tell.using(delay="1h").enqueue()
        listening = socket.create_server(("127.0.0.1", 0))
        print(listening.getsockname()[1], job.id, flush=True)
        program = Starlette(routes=[Mount(sys.argv[1] or "/", app.web())])
        uvicorn.Server(uvicorn.Config(program, log_level="critical")).run([listening])
        """)
    )
    with subprocess.Popen(
        [sys.executable, "program.py", prefix], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        port, job = process.stdout.readline().split()
        with socket.create_connection(("127.0.0.1", int(port)), timeout=60) as stream:
            head = f"GET {prefix}/jobs/{job}/stream HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n"
            stream.sendall(head.encode())
            assert b"text/event-stream" in stream.recv(4096)
            process.terminate()
            process.wait(60)


def test_the_page_of_a_job_shows_its_stream_part_by_part() -> None:
    async def main() -> None:
        told = Told()
        chunks = [f"<b>line {number}</b>\n" for number in range(450)]
        async with serving(told.app):
            told.gate.set()
            handle = await told.enqueue(chunks, [])
            await handle.aresult("60s")
        async with viewer(told.app.web()) as person:
            seen: list[int] = []
            path: str | None = f"/jobs/{handle.id}"
            while path:
                text = (await person.get(path)).text
                assert "<b>line" not in text
                numbers = [int(each.split('"')[0]) for each in text.split('data-number="')[1:]]
                assert 0 < len(numbers) <= 200
                seen += numbers
                position = text.split('data-after="')[1].split('"')[0]
                more = f"/jobs/{handle.id}?stream={position}"
                path = more if f'rel="next" href="{more}"' in text else None
            assert seen == list(range(1, 451))
            assert "data-over" in text

    asyncio.run(main())


def test_hostile_chunks_break_neither_the_page_nor_the_stream() -> None:
    async def main() -> None:
        told = Told()
        chunks = [
            "\u202eevil",
            "\x1b[31m",
            "</pre><script>x()</script>",
            "\r\n\ndata: no\n\n",
            "x" * 200_000,
        ]
        async with serving(told.app):
            told.gate.set()
            handle = await told.enqueue([*chunks, [[[{"a": None}]]], 1.5, True], [])
            await handle.aresult("60s")
        async with viewer(told.app.web()) as person:
            text = (await person.get(f"/jobs/{handle.id}")).text
            assert len(text) < 200_000
            assert "\u202e" not in text
            assert "\x1b" not in text
            assert "<script>x" not in text
            sent = events_in((await person.get(f"/jobs/{handle.id}/stream")).text)
            assert [each[2] for each in sent[:5]] == chunks

    asyncio.run(main())


def test_the_page_of_a_job_without_a_stream_shows_none() -> None:
    async def main() -> None:
        told = Told()
        handle = await told.enqueue([], [])
        page = told.app.web()
        async with viewer(page) as person:
            assert (
                "hidden>" in (await person.get(f"/jobs/{handle.id}")).text.split("data-stream=")[1]
            )
            async with serving(told.app):
                told.gate.set()
                await handle.aresult("60s")
            page.state.site.reads.forget()
            assert "data-stream=" not in (await person.get(f"/jobs/{handle.id}")).text

    asyncio.run(main())
