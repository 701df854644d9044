"""Events: which are kept, whom they free, and which one a job is to have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest

from windlass.core.errors import PayloadInvalid, PayloadTooLarge
from windlass.core.records import Json, News
from windlass.core.workflows.events import (
    EVENTS_KEPT,
    RETENTION,
    Heard,
    events_of,
    forget_events,
    hear_events,
    news_of,
    next_event,
)

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def sent(payload: object = None, *, name: str = "paid:42", at: datetime = NOW) -> News:
    news = news_of(name, payload, event_id=uuid4(), limit=1_000)
    return News(topic=news.topic, id=news.id, body=news.body, at=at)


def record_of(*news: News, before: Json | None = None) -> Json:
    records = {} if before is None else {"event:paid:42": before}
    record = hear_events(records, news, NOW).records["event:paid:42"]
    assert record is not None
    return record


def test_an_event_is_recorded_and_frees_the_jobs_that_wait_for_it() -> None:
    changes = hear_events({}, [sent(1), sent(2, name="other"), sent(3)], NOW)
    assert changes.answer == Heard(count=3)
    assert set(changes.unpark) == {"event:paid:42", "event:other"}
    assert changes.alarms == dict.fromkeys(changes.unpark, NOW + RETENTION)
    assert [event.payload for event in events_of(changes.records["event:paid:42"])] == [1, 3]


@pytest.mark.parametrize("body", [b"1e400", b"{", b"\xff", b"[" * 100_000, b"[" * 201 + b"]" * 201])
def test_an_event_that_cannot_be_read_is_dropped_and_holds_up_no_other(body: bytes) -> None:
    """Prevents one that was sent by SQL and blocks its name for ever."""
    bad = News(topic="event:paid:42", id=uuid4(), body=body, at=NOW)
    changes = hear_events({}, [bad, sent(1)], NOW)
    assert changes.answer == Heard(count=2, dropped=1)
    assert [event.payload for event in events_of(changes.records["event:paid:42"])] == [1]
    alone = hear_events({}, [bad], NOW)
    assert (alone.answer.dropped, alone.records, alone.unpark) == (1, {}, ())


def test_an_event_that_is_heard_twice_is_noted_once() -> None:
    event = sent()
    assert record_of(event, before=record_of(event)) == record_of(event)


def test_the_latest_events_of_a_name_are_kept() -> None:
    record = record_of(*(sent(number) for number in range(EVENTS_KEPT + 10)))
    kept = [event.payload for event in events_of(record)]
    assert kept == list(range(10, EVENTS_KEPT + 10))


def test_a_job_has_the_events_sent_since_it_was_enqueued_one_after_the_other() -> None:
    early, first, second = sent(at=NOW - SECOND), sent(), sent(at=NOW + SECOND)
    record, had = record_of(early, first, second), set[UUID]()
    for expected in (first, second):
        event = next_event(record, since=NOW, had=had)
        assert event is not None
        assert event.id == expected.id
        had.add(event.id)
    assert next_event(record, since=NOW, had=had) is None
    assert next_event(None, since=NOW, had=had) is None


def test_events_are_forgotten_a_week_after_the_last_of_their_name() -> None:
    old, young = record_of(sent(at=NOW - RETENTION)), record_of(sent(at=NOW - SECOND))
    changes = forget_events({"event:old": old, "event:young": young, "event:none": {}}, NOW)
    assert changes.answer == 2
    assert changes.records == {"event:old": None, "event:none": None}
    assert changes.alarms == {"event:young": NOW - SECOND + RETENTION}


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "a\nb", 7])
def test_invalid_event_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="event"):
        news_of(name, None, event_id=uuid4(), limit=1_000)


@pytest.mark.parametrize("payload", [float("nan"), object(), "\0", {"deep": ["\ud800"]}])
def test_values_that_json_cannot_hold_are_refused(payload: object) -> None:
    with pytest.raises(PayloadInvalid, match="paid"):
        news_of("paid:42", payload, event_id=uuid4(), limit=1_000)


def test_a_payload_that_is_too_large_is_refused() -> None:
    with pytest.raises(PayloadTooLarge):
        news_of("paid:42", "x" * 1_001, event_id=uuid4(), limit=1_000)
