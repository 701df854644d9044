"""How log lines look to people: one line each, and what matters stands where it is seen."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import pty
import struct
import termios
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from tests.support.inside_a_program import Inside
from windlass.observability.log_context import running
from windlass.observability.logs import configure_logging, get_logger

JOB = {
    "job_id": UUID("01a1e637-a4b4-77fb-bacb-59dbe0a5053b"),
    "worker_id": "vm:10376:e158eaec",
    "kind": "send_email",
    "queue": "mail",
    "attempt": 1,
}
job = get_logger("windlass.job")
worker = get_logger("windlass.worker")
user = logging.getLogger("shop.handlers")


@pytest.fixture(autouse=True)
def root(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NO_COLOR", "1")
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


def said(say: Callable[[], object]) -> list[str]:
    """Return the lines that people see, after their time."""
    sink = io.StringIO()
    configure_logging("debug", "console", sink)
    say()
    return [line[9:] if line[:1].isdigit() else line for line in sink.getvalue().splitlines()]


def seen(columns: int, say: Callable[[], object]) -> list[str]:
    """Return the lines that a terminal of this width gets, without colours."""
    ours, theirs = pty.openpty()
    try:
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        with open(theirs, "w", closefd=False) as stream:
            configure_logging("debug", "auto", stream)
            say()
        return os.read(ours, 65_536).decode().splitlines()
    finally:
        os.close(ours)
        os.close(theirs)


def test_a_line_of_a_run_is_its_event_kind_short_id_and_duration() -> None:
    assert said(lambda: job.info("job.finished", **JOB, duration=0.128022)) == [
        "info  finished    send_email e0a5053b  128ms"
    ]
    again = {**JOB, "attempt": 2}
    assert said(lambda: job.info("job.started", **again)) == [
        "info  started     send_email e0a5053b  attempt 2"
    ]


def test_a_retry_says_when_and_of_what_and_below_it_where() -> None:
    failed = {"failures": 1, "reason": "failed", "next": "570ms", "next_at": "x"}
    failed |= {"error": "ValueError: no\nmore", "error_class": "transient", "duration": 0.0004}
    trace = 'Traceback (most recent call last):\n  File "shop.py", line 5, in pay\nValueError: no'
    assert said(lambda: worker.warning("job.retried", **JOB, **failed, traceback=trace)) == [
        "warn  retried     send_email e0a5053b  0.4ms  again in 570ms  ValueError: no",
        "    Traceback (most recent call last):",
        '      File "shop.py", line 5, in pay',
        "    ValueError: no",
        "    → windlass jobs show 01a1e637-a4b4-77fb-bacb-59dbe0a5053b",
    ]


def test_lines_of_handlers_name_their_job_and_keep_their_own_fields() -> None:
    token = running.set(Inside(JOB))
    try:
        assert said(lambda: job.info("charged", error="none", cents=5)) == [
            "info  charged     send_email e0a5053b  error=none  cents=5"
        ]
        assert said(lambda: user.info("hello %s", "ada")) == [
            "info  hello ada   send_email e0a5053b  shop.handlers"
        ]
    finally:
        running.reset(token)


def test_a_line_about_a_worker_begins_with_it_and_leaves_out_what_is_empty() -> None:
    started = {"store": "x.db", "excluded": [], "queue_slots": {}, "worker_id": "vm:1:ab"}
    assert said(lambda: worker.info("worker.started", **started)) == [
        "info  worker.started  worker_id=vm:1:ab  store=x.db"
    ]


def test_no_terminal_is_too_narrow_for_one_line_each() -> None:
    story: Any = {"duration": 1.5, "reason": "cancelled by its producer, who had enough of it"}
    for columns in (40, 60, 80):
        (line,) = seen(columns, lambda: job.info("job.cancelled", **JOB, **story))
        assert len(line) <= columns
        assert line.endswith("…")
        assert "cancelled   send_email" in line


def test_nothing_is_cut_that_people_must_act_on_or_that_they_wrote_themselves() -> None:
    remedy = "set WINDLASS_METRICS_PORT to another port, or to 0, and start the worker again"
    assert remedy in seen(40, lambda: worker.warning("metrics.not_served", remedy=remedy))[0]
    assert remedy in seen(40, lambda: user.info(remedy))[0]
    assert remedy in seen(40, lambda: job.info(remedy))[0]


def test_where_no_terminal_ends_nothing_is_cut() -> None:
    (line,) = said(lambda: worker.info("worker.draining", why="x" * 500))
    assert "x" * 500 in line
