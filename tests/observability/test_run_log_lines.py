"""Laws of the two lines of every run: they say what any other line says, in order, and in time."""

from __future__ import annotations

import asyncio
import io
import logging
import threading
import time
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.observability.posted_lines import (
    PLAIN,
    Job,
    alone,
    heard,
    hold_until,
    in_a_turn,
    lines_of,
    post,
    records,
)
from tests.support.app_on_store import serving, until
from tests.support.inside_a_program import Inside
from windlass import Context, Secret, Windlass
from windlass.core.jobs.ids import flow_id, member_id
from windlass.observability.log_context import fields_of, running
from windlass.observability.log_handler import giving_way
from windlass.observability.logs import get_logger
from windlass.observability.run_log_lines import run_lines

HOSTILE = 'a"\\\n2026 [info] job.finished\r\x1b[2J\u202e\u2028\x85\x00\ud800é😀'
user = logging.getLogger("shop.orders")
job_log = get_logger("windlass.job")


@settings(max_examples=50)
@given(kind=st.text(max_size=20), queue=st.text(max_size=20))
def test_a_posted_line_says_what_a_logged_one_would(kind: str, queue: str) -> None:
    with heard() as stream:
        for job in (Job(kind, queue), Job(HOSTILE, queue), _member()):
            stream.seek(0)
            stream.truncate()
            in_a_turn(lambda job=job: post(job))  # type: ignore[misc]
            running.set(Inside(fields_of(cast("Any", job))))
            job_log.info("job.started")
            job_log.info("job.finished", duration=0.25)
            told = [{**line, "timestamp": len(line["timestamp"])} for line in records(stream)]
            assert told[:2] == told[2:]
            assert [list(line) for line in told[:2]] == [list(line) for line in told[2:]]
            assert stream.getvalue().isascii()
    running.set(None)


def _member() -> Job:
    flow = flow_id(1_000, 7)
    job = Job(job_id=member_id(flow, 3))
    job.flow = flow
    return job


@alone
def test_every_line_is_written_in_the_order_in_which_it_was_said(sink: io.StringIO) -> None:
    def say() -> None:
        poster = run_lines(PLAIN)
        assert poster is not None
        job: Any = Job()
        start = poster.started(job, "w1")
        user.warning("in between")
        poster.finished(start, 0.1)

    in_a_turn(say)
    assert [line["event"] for line in records(sink)] == [
        "job.started",
        "in between",
        "job.finished",
    ]


@alone
def test_lines_give_way_to_jobs_that_are_to_be_started_but_not_for_long(
    sink: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents that lines are made while a store waits for a worker, and that they never are."""
    is_busy = True
    # However long this machine takes for a few turns.
    monkeypatch.setattr("windlass.observability.log_handler._MAX_DELAY_SECONDS", 60)
    monkeypatch.setattr("windlass.observability.log_handler._GUARD_POLL_SECONDS", 60)

    async def main() -> None:
        nonlocal is_busy
        with giving_way(lambda: is_busy):
            post(Job())
            for _ in range(3):
                await asyncio.sleep(0)
            assert not sink.getvalue()
            user.warning("at once, and after what was said before")
            assert [line["event"] for line in records(sink)][:2] == ["job.started", "job.finished"]
            monkeypatch.setattr("windlass.observability.log_handler._MAX_DELAY_SECONDS", 0.02)
            post(Job())
            await until(lambda: len(records(sink)) == 5, within=60)
            is_busy = False
            post(Job())
            await asyncio.sleep(0)
            assert len(records(sink)) == 7

    asyncio.run(main())


@alone
def test_lines_of_one_turn_are_written_together(sink: io.StringIO) -> None:
    writes: list[str] = []
    write = sink.write

    def counted(text: str) -> int:
        writes.append(text)
        return write(text)

    def say() -> None:
        for _ in range(20):
            post(Job())

    sink.write = counted  # type: ignore[method-assign]
    in_a_turn(say)
    assert len(writes) == 1
    assert len(records(sink)) == 40


@alone
def test_each_line_names_its_own_job_and_its_own_time(
    sink: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    moments = iter([1_999_999_999, 2_000_001_000, 2_000_002_000, 3_500_000_000])
    monkeypatch.setattr("windlass.observability.run_log_lines.time.time_ns", lambda: next(moments))
    first, second = Job(), Job(kind="ship")

    def say() -> None:
        post(first)
        post(second)

    in_a_turn(say)
    told = [(line["timestamp"][17:], line["job_id"], line["kind"]) for line in records(sink)]
    assert told == [
        ("01.999999Z", str(first.id), "pay"),
        ("02.000001Z", str(first.id), "pay"),
        ("02.000002Z", str(second.id), "ship"),
        ("03.500000Z", str(second.id), "ship"),
    ]


@alone
def test_a_line_posted_while_the_writer_falls_asleep_is_written(sink: io.StringIO) -> None:
    lines = lines_of()
    lines.posted.append("a note")
    lying_down = threading.Thread(target=lines._guard._rest, daemon=True)
    lying_down.start()
    lying_down.join(60)
    assert not lying_down.is_alive()
    lines.posted.clear()


@alone
def test_a_line_is_written_although_the_loop_does_not_turn(sink: io.StringIO) -> None:
    """Prevents a handler that blocks the loop from hiding that it began."""

    async def main() -> None:
        post(Job())
        hold_until(lambda: len(records(sink)) == 2)

    asyncio.run(main())


@alone
def test_the_writer_wakes_up_again_after_a_long_silence(
    sink: io.StringIO, monkeypatch: Any
) -> None:
    monkeypatch.setattr("windlass.observability.log_handler._GUARD_POLL_SECONDS", 0.01)
    for count in (2, 4):

        async def main(count: int = count) -> None:
            post(Job())
            hold_until(lambda: len(records(sink)) == count)

        asyncio.run(main())
        time.sleep(0.3)  # It goes to sleep after ten looks.


@alone
def test_runs_post_their_lines_and_those_with_secrets_log_them(sink: io.StringIO) -> None:
    app = Windlass("memory://", encryption_keys=["k1:" + "A" * 43 + "="])
    posted: list[bool] = []

    @app.job
    async def plain(ctx: Context) -> None:
        posted.append(bool(lines_of().posted))

    @app.job
    async def discreet(ctx: Context, card: Secret[str]) -> None:
        posted.append(bool(lines_of().posted))

    async def main() -> list[str]:
        async with serving(app) as worker:
            first = await plain.aenqueue()
            await first.aresult("60s")
            second = await discreet.aenqueue(Secret("0000"))
            await second.aresult("60s")
            return [str(first.id), str(second.id), worker.id]

    one, two, worker_id = asyncio.run(main())
    assert posted == [True, False]
    told = [line for line in records(sink) if line["logger"] == "windlass.job"]
    assert [(line["event"], line["job_id"]) for line in told] == [
        ("job.started", one),
        ("job.finished", one),
        ("job.started", two),
        ("job.finished", two),
    ]
    assert {line["worker_id"] for line in told} == {worker_id}
