"""Laws of the log lines: whose they are, that each is one line, and that none can fake another."""

from __future__ import annotations

import contextvars
import logging
import timeit
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
import structlog

from tests.observability.log_sink import JOB, Rude, Sink
from tests.support.inside_a_program import Inside
from windlass.observability.log_context import running
from windlass.observability.logs import UserLogger, configure_logging, get_logger

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
