"""The lines of runs are written whatever the stream, the thread or the process does."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.observability.posted_lines import (
    PLAIN,
    Job,
    alone,
    hold_until,
    in_a_turn,
    lines_of,
    post,
    records,
)
from windlass.observability.logs import configure_logging
from windlass.observability.run_log_lines import run_lines
from windlass.process.exits.black_box import BlackBox, _Recorder

HOSTILE = 'a"\\\n2026 [info] job.finished\r\x1b[2J\u202e\u2028\x85\x00\ud800é😀'


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
    lines = lines_of()

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
