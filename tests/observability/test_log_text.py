"""No text, value or broken call can fake a log line, or lose one."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.observability.log_sink import Rude, Sink
from windlass.observability.logs import configure_logging, get_logger

log = get_logger("windlass.tests")
user = logging.getLogger("shop.handlers")
HOSTILE = "a\n2026-01-01T00:00:00Z [info] job.completed\r\x1b[2J\u202e\u2028\x85\x00\ud800"


@pytest.fixture(autouse=True)
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield root
    root.setLevel(level)
    root.handlers[:] = handlers


def only(sink: Sink) -> None:
    """Turn pytest's own handlers away: pytest-xdist cannot send the text of hostile lines."""
    root = logging.getLogger()
    root.handlers[:] = [each for each in root.handlers if getattr(each, "stream", None) is sink]


# What cannot be faked.


@pytest.mark.usefixtures("in_job")
def test_hostile_text_cannot_fake_a_line_on_the_console(console: Sink) -> None:
    only(console)
    log.info(HOSTILE, reason=HOSTILE, items=[HOSTILE])
    log.bind(**{HOSTILE: 1}).info("named")
    user.info("%s", HOSTILE, extra={"said": HOSTILE})
    logging.getLogger(HOSTILE).info("x")
    assert len(console.getvalue().splitlines()) == 4
    assert all(text[:-1].isprintable() for text in console.writes)


def test_an_exceptions_text_cannot_fake_a_line_on_the_console(console: Sink) -> None:
    only(console)
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        log.exception("job.failed")
    first, *block = console.getvalue().split("\n")[:-1]
    assert "job.failed" in first
    assert all(line.startswith("    ") and line.isprintable() for line in block)
    assert any("ValueError: a" in line for line in block)


def test_a_value_cannot_pass_for_another_field_on_the_console(console: Sink) -> None:
    log.info("job.failed", reason='x job_id="J2"', empty="")
    assert r'reason="x job_id=\"J2\""' in console.getvalue()
    assert 'empty=""' in console.getvalue()


@given(st.text(), st.text(), st.text(min_size=1))
def test_no_text_makes_more_than_one_line_in_either_form(event: str, value: str, name: str) -> None:
    for form in ("console", "json"):
        sink = Sink()
        configure_logging("info", form, sink)
        log.info(event, value=value)
        logging.getLogger(f"x.{name}").info("%s", event, extra={"value": value})
        assert len(sink.getvalue().splitlines()) == 2
        assert form == "console" or sink.records()[0]["value"] == value


def test_json_is_ascii_and_reads_back_as_it_was(lines: Sink) -> None:
    log.info("job.failed", reason=HOSTILE + "ünïcode")
    assert lines.getvalue().isascii()
    assert lines.records()[0]["reason"] == HOSTILE + "ünïcode"


def circular() -> list[object]:
    ring: list[object] = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize(
    "rubbish",
    [
        object(),
        Rude(),
        [Rude()],
        circular(),
        {(1, 2): 3},
        float("nan"),
        b"\xff",
        10**5000,
        {1, 2},
        ValueError("x"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_rubbish_in_a_field_is_logged_all_the_same(form: Any, rubbish: object) -> None:
    sink = Sink()
    configure_logging("info", form, sink)
    log.info("job.failed", rubbish=rubbish, queue="mail")
    user.info("hello", extra={"rubbish": rubbish, "queue": "mail"})
    assert sink.getvalue().count("rubbish") == sink.getvalue().count("mail") == 2
    assert len(sink.getvalue().splitlines()) == 2


def test_values_that_fields_often_have_are_written_plainly(lines: Sink) -> None:
    log.info(
        "x",
        job_id=UUID(int=7),
        due=datetime(2026, 1, 2, tzinfo=UTC),
        took=timedelta(milliseconds=1500),
        path=Path("/tmp/x"),
        odd=float("inf"),
    )
    (record,) = lines.records()
    assert record["job_id"] == "00000000-0000-0000-0000-000000000007"
    assert record["due"] == "2026-01-02T00:00:00+00:00"
    assert (record["took"], record["path"], record["odd"]) == (1.5, "/tmp/x", "inf")


@pytest.mark.parametrize("form", ["json", "console"])
def test_a_users_broken_call_becomes_a_line_that_says_so(
    form: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    sink = Sink()
    configure_logging("info", form, sink)
    only(sink)
    user.info("%d apples", "many")
    assert "%d apples ('many',) cannot be logged: TypeError" in sink.getvalue()
    assert len(sink.getvalue().splitlines()) == 1
    assert capsys.readouterr().err == ""


def test_exceptions_are_logged_with_their_traceback(lines: Sink) -> None:
    error = ValueError("no")
    log.error("job.failed", exc_info=error)
    log.error("nothing.raised", exc_info=True)  # noqa: LOG014  That is the point.
    try:
        raise error
    except ValueError:
        log.exception("job.failed")
        user.exception("failed")
    given, nothing, ours, theirs = lines.records()
    assert given["exception"] == "ValueError: no"
    assert "exception" not in nothing
    for record in (ours, theirs):
        assert record["exception"].startswith("Traceback (most recent call last):")
        assert record["exception"].endswith("ValueError: no")
        assert "exc_info" not in record
