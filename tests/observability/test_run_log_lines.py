"""Laws of the two lines of every run: they say what any other line says, in order, and in time."""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
import json
import logging
import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from uuid import UUID, uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.app_on_store import serving, until
from tests.support.inside_a_program import Inside
from windlass import Context, Secret, Windlass
from windlass.core.jobs.ids import flow_id, member_id
from windlass.core.payloads.redaction import Redaction
from windlass.observability.log_context import fields_of, running
from windlass.observability.log_handler import LogHandler, giving_way
from windlass.observability.logs import configure_logging, get_logger
from windlass.observability.run_log_lines import run_lines
from windlass.process.exits.black_box import BlackBox, _Recorder

HOSTILE = 'a"\\\n2026 [info] job.finished\r\x1b[2J\u202e\u2028\x85\x00\ud800é😀'
user = logging.getLogger("shop.orders")
PLAIN = Redaction()
job_log = get_logger("windlass.job")


class Job:
    """What the lines of a run tell of its job."""

    def __init__(self, kind: str = "pay", queue: str = "money", job_id: UUID | None = None) -> None:
        self.id = job_id or uuid4()
        self.kind, self.queue, self.attempt = kind, queue, 2
        self.flow: UUID | None = None
        self.worker = "w1"


@contextmanager
def heard() -> Iterator[io.StringIO]:
    """What is written as JSON, with nobody else listening: pytest does, too."""
    root, stream = logging.getLogger(), io.StringIO()
    level, handlers = root.level, root.handlers[:]
    root.handlers[:] = []
    try:
        configure_logging("info", "json", stream)
        yield stream
    finally:
        root.setLevel(level)
        root.handlers[:] = handlers


def alone(test: Callable[..., None]) -> Callable[..., None]:
    """Give a test `sink`; a fixture could not, since pytest's handlers come after fixtures."""
    signature = inspect.signature(test)
    others = [each for name, each in signature.parameters.items() if name != "sink"]

    @functools.wraps(test)
    def wrapped(**given: Any) -> None:
        with heard() as sink:
            test(sink=sink, **given)

    wrapped.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
    return wrapped


def records(sink: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in sink.getvalue().splitlines()]


def in_a_turn(say: Callable[[], None]) -> None:
    """Say something within one turn of an event loop, and let it turn once more."""

    async def main() -> None:
        say()
        await asyncio.sleep(0)

    asyncio.run(main())


def hold_until(is_so: Callable[[], bool]) -> None:
    """Block whatever runs here until something is so."""
    limit = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < limit
        time.sleep(0.005)


def post(job: Any, seconds: float = 0.25) -> None:
    poster = run_lines(PLAIN)
    assert poster is not None
    poster.finished(poster.started(job, "w1"), seconds)


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
    lines = _lines()
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


@pytest.mark.parametrize(
    "how", ["handler", "child", "filter", "level", "formatter", "console", "mute", "deaf"]
)
@alone
def test_other_log_handlers_get_every_line(sink: io.StringIO, how: str) -> None:
    """Prevents a user's own handler, or filter, from being passed over."""
    assert run_lines(PLAIN) is not None
    root, mine = logging.getLogger(), logging.getLogger("windlass.job")
    before = mine.handlers[:], mine.filters[:], mine.propagate, mine.level
    try:
        match how:
            case "handler":
                root.addHandler(logging.StreamHandler(io.StringIO()))
            case "child":
                logging.getLogger("windlass.job").addHandler(logging.NullHandler())
            case "filter":
                root.handlers[0].addFilter(lambda _: True)
            case "level":
                root.handlers[0].setLevel(logging.ERROR)
            case "formatter":
                root.handlers[0].setFormatter(logging.Formatter("%(message)s"))
            case "console":
                configure_logging("info", "console", sink)
            case "mute":
                mine.setLevel(logging.ERROR)
            case "deaf":
                mine.propagate = False
        assert run_lines(PLAIN) is None
    finally:
        mine.handlers[:], mine.filters[:], mine.propagate = before[:3]
        mine.setLevel(before[3])


@alone
def test_another_stream_is_found_at_once(sink: io.StringIO) -> None:
    other = io.StringIO()
    in_a_turn(lambda: post(Job()))
    configure_logging("info", "json", other)
    in_a_turn(lambda: post(Job()))
    assert (len(records(sink)), len(records(other))) == (2, 2)


@alone
def test_a_stream_that_fails_costs_no_job(sink: io.StringIO, capsys: Any) -> None:
    def fail(_: str) -> int:
        raise OSError(28, "No space left on device")

    sink.write = fail  # type: ignore[method-assign]
    in_a_turn(lambda: post(Job()))
    assert "No space left on device" in capsys.readouterr().err


@alone
def test_where_no_thread_can_start_lines_are_written_at_once(
    sink: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents a line that costs its job an attempt, in a container that may have no more."""

    def fail(_: object) -> None:
        raise RuntimeError("can't start new thread")

    async def main() -> None:
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", fail)
            post(Job())
            assert len(records(sink)) == 2, "though the loop has not turned"
        await asyncio.sleep(0)
        post(Job())
        hold_until(lambda: len(records(sink)) == 4)

    asyncio.run(main())


@alone
def test_the_black_box_hears_of_every_start(sink: io.StringIO) -> None:
    box = BlackBox.create()
    try:
        logging.getLogger().addHandler(_Recorder(box))
        job = Job(kind=HOSTILE)
        in_a_turn(lambda: post(job))
        (told,) = box.read(str(job.id)).splitlines()
        assert "INFO windlass.job job.started" in told
        assert len(records(sink)) == 2
    finally:
        box.close()


@alone
def test_a_fork_does_not_say_again_what_was_said_before_it(
    sink: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.observability.log_handler._GUARD_POLL_SECONDS", 60)
    lines = _lines()

    async def main() -> None:
        post(Job())
        assert in_a_fork(lambda: bool(lines.posted)) is False
        assert lines.posted

    asyncio.run(main())
    assert len(records(sink)) == 2


def in_a_fork(ask: Callable[[], bool]) -> bool:
    pid = os.fork()
    if pid == 0:
        os._exit(int(bool(ask())))
    return bool(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _lines() -> LogHandler:
    (lines,) = [each for each in logging.getLogger().handlers if isinstance(each, LogHandler)]
    return lines


def test_posted_lines_are_written_at_exit() -> None:
    program = """
        import asyncio, sys
        from tests.observability.test_run_log_lines import Job
        from windlass.observability.logs import configure_logging
        from windlass.observability.run_log_lines import run_lines
        from windlass.core.payloads.redaction import Redaction

        configure_logging("info", "json")

        async def main():
            run_lines(Redaction()).started(Job(), "w1")
            sys.exit()  # The loop turns no more.

        asyncio.run(main())
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stderr)["event"] == "job.started"


@alone
def test_runs_post_their_lines_and_those_with_secrets_log_them(sink: io.StringIO) -> None:
    app = Windlass("memory://", encryption_keys=["k1:" + "A" * 43 + "="])
    posted: list[bool] = []

    @app.job
    async def plain(ctx: Context) -> None:
        posted.append(bool(_lines().posted))

    @app.job
    async def discreet(ctx: Context, card: Secret[str]) -> None:
        posted.append(bool(_lines().posted))

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
