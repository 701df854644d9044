"""Laws of the log lines: whose they are, that each is one line, and that none can fake another."""

from __future__ import annotations

import contextvars
import io
import json
import logging
import timeit
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st

from tests.support.inside_a_program import Inside
from windlass.observability.log_context import running
from windlass.observability.logs import UserLogger, configure_logging, get_logger

log = get_logger("windlass.tests")
user = logging.getLogger("shop.handlers")

JOB = {"job_id": "J1", "worker_id": "w1", "kind": "send_email", "queue": "mail", "attempt": 2}
HOSTILE = "a\n2026-01-01T00:00:00Z [info] job.completed\r\x1b[2J\u202e\u2028\x85\x00\ud800"


class Sink(io.StringIO):
    """A stream that counts its writes and says whether it is a terminal."""

    def __init__(self, *, terminal: bool = False) -> None:
        super().__init__()
        self.terminal = terminal
        self.writes: list[str] = []

    def isatty(self) -> bool:
        return self.terminal

    def write(self, text: str, /) -> int:
        self.writes.append(text)
        return super().write(text)

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.getvalue().splitlines()]


@pytest.fixture(autouse=True)
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield root
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture
def lines() -> Sink:
    sink = Sink()
    configure_logging("debug", "json", sink)
    return sink


@pytest.fixture
def console() -> Sink:
    sink = Sink()
    configure_logging("debug", "console", sink)
    return sink


def only(sink: Sink) -> None:
    """Turn pytest's own handlers away: pytest-xdist cannot send the text of hostile lines."""
    root = logging.getLogger()
    root.handlers[:] = [each for each in root.handlers if getattr(each, "stream", None) is sink]


@pytest.fixture
def in_job() -> Iterator[None]:
    token = running.set(Inside(JOB))
    yield
    running.reset(token)


# What is logged where.


def test_our_lines_and_the_users_lines_end_in_one_stream(lines: Sink) -> None:
    log.info("worker.started", slots=5)
    user.warning("stock is %d", 3)
    ours, theirs = lines.records()
    assert (ours["event"], ours["level"], ours["logger"]) == (
        "worker.started",
        "info",
        "windlass.tests",
    )
    assert ours["slots"] == 5
    assert (theirs["event"], theirs["level"], theirs["logger"]) == (
        "stock is 3",
        "warning",
        "shop.handlers",
    )


def test_a_json_line_begins_with_what_every_line_has_and_its_time_is_in_utc(lines: Sink) -> None:
    before = datetime.now(UTC)
    log.info("worker.started", slots=5)
    (record,) = lines.records()
    assert list(record) == ["timestamp", "level", "event", "logger", "slots"]
    assert record["timestamp"].endswith("Z")
    assert before <= datetime.fromisoformat(record["timestamp"]) <= datetime.now(UTC)


@pytest.mark.parametrize(
    ("form", "terminal", "pretty"),
    [
        ("auto", True, True),
        ("auto", False, False),
        ("console", False, True),
        ("json", True, False),
    ],
)
def test_a_terminal_gets_lines_for_people_and_everything_else_json(
    form: Any, terminal: bool, pretty: bool
) -> None:
    sink = Sink(terminal=terminal)
    configure_logging("info", form, sink)
    log.info("worker.started")
    assert sink.getvalue().startswith("{") is not pretty


def test_only_a_terminal_gets_colours_and_only_if_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    def written(sink: Sink) -> str:
        configure_logging("info", "console", sink)
        log.info("worker.started")
        return sink.getvalue()

    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in written(Sink(terminal=True))
    assert "\x1b[" not in written(Sink())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in written(Sink(terminal=True))


def test_the_level_holds_for_everybody(lines: Sink) -> None:
    configure_logging("warning", "json", lines)
    log.info("hidden")
    user.info("hidden")
    log.warning("shown")
    user.error("shown too")
    assert [record["event"] for record in lines.records()] == ["shown", "shown too"]


def test_configuring_again_replaces_the_handler_and_no_other(root: logging.Logger) -> None:
    other = logging.NullHandler()
    root.addHandler(other)
    first, second = Sink(), Sink()
    configure_logging("info", "json", first)
    configure_logging("info", "json", second)
    log.info("worker.started")
    assert first.getvalue() == ""
    assert len(second.records()) == 1
    assert other in root.handlers


def test_each_line_is_one_write(lines: Sink) -> None:
    log.info("worker.started", note="x" * 100_000)
    try:
        raise ValueError("no")
    except ValueError:
        user.exception("failed")
    assert len(lines.writes) == 2
    assert all(text.endswith("\n") and text.count("\n") == 1 for text in lines.writes)


def test_a_bound_logger_carries_its_fields(lines: Sink) -> None:
    log.bind(worker_id="w9").info("worker.started", slots=1)
    assert lines.records()[0]["worker_id"] == "w9"


def test_windlass_never_configures_structlog(lines: Sink) -> None:
    log.info("worker.started")
    assert not structlog.is_configured()


# What a job adds.


@pytest.mark.usefixtures("in_job")
def test_every_line_inside_a_job_names_the_job_and_the_worker(lines: Sink) -> None:
    log.info("job.started")
    user.info("hello")
    for record in lines.records():
        assert JOB.items() <= record.items()


@pytest.mark.usefixtures("in_job")
def test_structlog_lines_of_the_user_that_go_through_logging_name_the_job_too(lines: Sink) -> None:
    theirs = structlog.wrap_logger(
        user, processors=[structlog.stdlib.ProcessorFormatter.wrap_for_formatter]
    )
    theirs.info("hello", basket=3)
    (record,) = lines.records()
    assert (JOB | {"basket": 3, "event": "hello", "level": "info"}).items() <= record.items()


def test_a_line_outside_a_job_names_none(lines: Sink) -> None:
    contextvars.copy_context().run(running.set, Inside(JOB))
    user.info("hello")
    assert "job_id" not in lines.records()[0]


@pytest.mark.usefixtures("in_job")
def test_a_line_of_windlass_about_another_job_keeps_that_jobs_id(lines: Sink) -> None:
    log.info("job.enqueued", job_id="child")
    assert lines.records()[0]["job_id"] == "child"


@pytest.mark.usefixtures("in_job")
def test_a_users_extra_is_shown_but_can_claim_neither_job_nor_line(lines: Sink) -> None:
    claims = {"job_id": "forged", "event": "forged", "level": "forged", "timestamp": "forged"}
    user.info("hello", extra={"basket": 3, "logger": "forged", **claims})
    (record,) = lines.records()
    assert record["basket"] == 3
    assert (record["event"], record["level"], record["logger"], record["job_id"]) == (
        "hello",
        "info",
        "shop.handlers",
        "J1",
    )
    assert record["timestamp"] != "forged"


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


# What never raises.


class Rude:
    """A value that cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


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


# What an embedding program sees.


def test_an_embedding_program_gets_our_lines_as_readable_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    log.info("job.completed", job_id=UUID(int=7), took=1.5, why=HOSTILE)
    (record,) = caplog.records
    assert record.getMessage().startswith(
        "job.completed job_id=00000000-0000-0000-0000-000000000007 took=1.5 why="
    )
    assert record.getMessage().isprintable()
    assert (record.name, record.levelname) == ("windlass.tests", "INFO")
    assert Path(record.pathname).name == Path(__file__).name


@pytest.mark.usefixtures("in_job")
def test_an_embedding_program_sees_which_job_a_line_is_of(caplog: pytest.LogCaptureFixture) -> None:
    log.warning("job.failed")
    assert "job_id=J1 worker_id=w1" in caplog.records[0].getMessage()


def test_an_embedding_program_gets_the_exception_once(caplog: pytest.LogCaptureFixture) -> None:
    try:
        raise ValueError("no")
    except ValueError:
        log.exception("job.failed")
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ValueError
    assert record.getMessage() == "job.failed"
    assert logging.Formatter().format(record).count("Traceback") == 1


def test_an_embedding_program_decides_by_its_own_levels(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR, logger="windlass")
    log.warning("hidden")
    log.error("shown")
    assert [record.getMessage() for record in caplog.records] == ["shown"]


def test_without_any_configuration_ordinary_lines_are_silent(
    root: logging.Logger, capsys: pytest.CaptureFixture[str]
) -> None:
    root.handlers[:] = []
    root.setLevel(logging.WARNING)
    log.debug("hidden")
    log.info("hidden")
    assert capsys.readouterr() == ("", "")


def test_a_line_below_the_level_costs_next_to_nothing(root: logging.Logger) -> None:
    root.setLevel(logging.INFO)
    runs = timeit.repeat(lambda: log.debug("job.claimed", count=3), number=10_000, repeat=7)
    assert min(runs) / 10_000 < 5e-6  # 0.25 µs where it was written; the rest is for slow machines


# What users write.


by_context = UserLogger(logging.getLogger("windlass.job"), {})


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("%s of %d", "one", 3), "one of 3"),
        (("%(a)s", {"a": 1}), "1"),
        (("100 %",), "100 %"),
        (("%d apples", "many"), "%d apples ('many',) cannot be logged: TypeError"),
        (("hello", "ada"), "hello ('ada',) cannot be logged: TypeError"),
        (("%s", Rude()), "cannot be logged: RuntimeError"),
    ],
)
def test_arguments_fill_an_event_as_with_the_standard_library(
    lines: Sink, args: tuple[Any, ...], told: str
) -> None:
    """Prevents a log line from costing the job: `ctx.log.info("%s", x)` raised TypeError."""
    by_context.info(*args, basket=3)
    (record,) = lines.records()
    assert told in record["event"]
    assert record["basket"] == 3


@pytest.mark.usefixtures("in_job")
@pytest.mark.parametrize("way", ["context", "bound", "extra", "structlog"])
def test_a_line_of_a_handler_is_about_its_job_whatever_its_fields_say(
    lines: Sink, way: str
) -> None:
    other: dict[str, Any] = {"job_id": "other", "kind": "send_email", "basket": 3}
    match way:
        case "context":
            by_context.info("hello", **other)
        case "bound":
            by_context.bind(**other).info("hello")
        case "extra":
            user.info("hello", extra=other)
        case _:
            ready = [structlog.stdlib.ProcessorFormatter.wrap_for_formatter]
            structlog.wrap_logger(user, processors=ready).info("hello", **other)
    (record,) = lines.records()
    assert (record["job_id"], record["job_id_"]) == ("J1", "other")
    assert (record["kind"], record["basket"]) == ("send_email", 3)
    assert "kind_" not in record


def test_a_field_with_the_name_of_what_every_line_has_is_kept_beside_it(lines: Sink) -> None:
    by_context.warning("hello", level=3, event="x", timestamp=5)
    (record,) = lines.records()
    assert (record["level"], record["level_"]) == ("warning", 3)
    assert (record["event"], record["event_"]) == ("hello", "x")
    assert record["timestamp_"] == 5
