"""Sentry hears of each failure that counts, once, with the frames of the user's code."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations.dedupe import DedupeIntegration
from sentry_sdk.integrations.logging import LoggingIntegration
from sentry_sdk.transport import Transport

from windlass import ErrorClass, Retry, Snooze, Windlass
from windlass.contrib.sentry import report_to_sentry
from windlass.testing import travel


class Sent(Transport):
    """A transport that keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        event = envelope.get_event()
        if event is not None:
            self.events.append(dict(event))


@pytest.fixture
def sent() -> Iterator[Sent]:
    transport = Sent()
    sentry_sdk.init(
        dsn="https://key@sentry.invalid/1",
        transport=transport,
        # Of the default ones, those that see log lines and exceptions; others patch this process.
        default_integrations=False,
        auto_enabling_integrations=False,
        integrations=[LoggingIntegration(), DedupeIntegration()],
    )
    yield transport
    sentry_sdk.get_client().close()
    sentry_sdk.init(dsn=None)


@pytest.fixture
def app() -> Windlass:
    made = Windlass("memory://")
    report_to_sentry(made)
    return made


def test_each_failed_run_is_one_event_with_its_job(app: Windlass, sent: Sent) -> None:
    @app.job(name="shop.charge", queue="money", retry=Retry(max_retries=1, initial="1m"))
    def charge(order: int) -> None:
        raise LookupError(f"order {order} is gone")

    with travel(app) as t:
        handle = charge.enqueue(7)
        t.run_all()
        t.assert_dead(charge)
    assert [each["contexts"]["windlass"]["attempt"] for each in sent.events] == [1, 2]
    event = sent.events[0]
    assert event["transaction"] == "shop.charge"
    assert event["tags"]["windlass.kind"] == "shop.charge"
    assert event["tags"]["windlass.queue"] == "money"
    assert event["tags"]["windlass.job_id"] == str(handle.id)
    (value,) = event["exception"]["values"]
    assert (value["type"], value["value"]) == ("LookupError", "order 7 is gone")
    assert value["mechanism"]["type"] == "windlass"


def test_an_event_has_the_frames_of_the_users_code_alone(app: Windlass, sent: Sent) -> None:
    def deep() -> None:
        raise LookupError("no")

    @app.job(max_retries=0)
    def plain() -> None:
        deep()

    @app.job(max_retries=0)
    async def awaited() -> None:
        try:
            deep()
        except LookupError as error:
            raise ValueError("wrapped") from error

    with travel(app) as t:
        plain.enqueue()
        awaited.enqueue()
        t.run_all()
    frames = {
        value["type"] + value["value"]: [each["function"] for each in value["stacktrace"]["frames"]]
        for event in sent.events
        for value in event["exception"]["values"]
        if event["transaction"].endswith("plain") or value["type"] == "ValueError"
    }
    assert frames == {"LookupErrorno": ["plain", "deep"], "ValueErrorwrapped": ["awaited"]}


def test_a_run_that_does_not_count_as_a_failure_is_no_event(app: Windlass, sent: Sent) -> None:
    app.classify(ErrorClass.SYSTEM, ConnectionError)
    tried: list[str] = []

    @app.job
    def away() -> None:
        tried.append("away")
        if len(tried) < 3:
            raise ConnectionError("the gateway is down")

    @app.job
    async def later() -> Snooze | None:
        tried.append("later")
        return Snooze("1m") if tried.count("later") == 1 else None

    with travel(app) as t:
        away.enqueue()
        later.enqueue()
        t.run_all()
        t.assert_completed(away)
        t.assert_completed(later)
    assert sent.events == []


def test_a_timeout_is_an_event(app: Windlass, sent: Sent) -> None:
    @app.job(timeout="50ms", max_retries=0)
    async def hang() -> None:
        await asyncio.Event().wait()

    with travel(app) as t:
        hang.enqueue()
        t.run_all()
    (event,) = sent.events
    assert event["exception"]["values"][-1]["type"] == "TimeoutError"


def test_a_payload_that_does_not_fit_is_an_event(app: Windlass, sent: Sent) -> None:
    @app.job(name="typed", max_retries=0)
    def typed(number: int) -> None: ...

    with travel(app) as t:
        other = Windlass("memory://")
        other.store = app.store
        other.producer("typed").enqueue({"number": "many"})
        t.run_all()
        t.assert_dead(typed)
    assert len(sent.events) == 1


def test_without_sentry_nothing_happens(app: Windlass) -> None:
    @app.job(max_retries=0)
    def fail() -> None:
        raise LookupError

    with travel(app) as t:
        fail.enqueue()
        t.run_all()
        t.assert_dead(fail)


def test_an_error_of_sentry_does_not_change_the_job(
    app: Windlass, sent: Sent, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("sentry is broken")

    monkeypatch.setattr("windlass.contrib.sentry.event_from_exception", fail)

    @app.job(max_retries=0)
    def work() -> None:
        raise LookupError

    with travel(app) as t:
        work.enqueue()
        t.run_all()
        t.assert_dead(work, error=LookupError)
