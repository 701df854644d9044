"""The laws of a job's facts: its id, its lane, and that nobody changes them."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import RFC_4122, UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import ErrorInfo, Job, Lane, NewJob
from windlass.core.jobs.states import State

NOW = datetime(2026, 1, 1, tzinfo=UTC)
milliseconds = st.integers(0, 2**48 - 1)
random_bits = st.integers(0, 2**74 - 1)


@given(milliseconds, random_bits)
def test_an_id_is_a_uuid_of_version_seven(time: int, bits: int) -> None:
    made = job_id(time, bits)
    assert made.version == 7
    assert made.variant == RFC_4122
    assert UUID(str(made)) == made


@given(milliseconds, random_bits)
def test_an_id_carries_its_time_and_all_its_random_bits(time: int, bits: int) -> None:
    made = job_id(time, bits)
    assert made.int >> 80 == time
    high, low = made.int >> 64 & 0xFFF, made.int & (1 << 62) - 1
    assert high << 62 | low == bits


@given(milliseconds, milliseconds, random_bits, random_bits)
def test_ids_sort_by_age_as_numbers_text_and_bytes(a: int, b: int, x: int, y: int) -> None:
    first, second = job_id(a, x), job_id(b, y)
    if a != b:
        assert (first < second) == (a < b)
    assert (first < second) == (str(first) < str(second)) == (first.bytes < second.bytes)


@given(milliseconds, random_bits, random_bits)
def test_ids_of_one_moment_differ_by_their_random_bits(time: int, x: int, y: int) -> None:
    assert (job_id(time, x) == job_id(time, y)) == (x == y)


def test_a_job_waits_in_the_lane_of_its_queue_kind_priority_and_key() -> None:
    job = Job(
        id=job_id(0, 0),
        kind="send",
        queue="mail",
        priority=3,
        key="acme",
        state=State.PENDING,
        payload=b"{}",
        due_at=NOW,
        created_at=NOW,
    )
    assert job.lane == Lane("mail", "send", 3, "acme")


def test_a_fact_cannot_be_changed() -> None:
    new = NewJob(id=job_id(0, 0), kind="send", payload=b"{}")
    with pytest.raises(AttributeError):
        new.kind = "other"  # type: ignore[misc]


def test_two_jobs_do_not_share_their_default_headers() -> None:
    one = NewJob(id=job_id(0, 1), kind="send", payload=b"{}")
    other = NewJob(id=job_id(0, 2), kind="send", payload=b"{}")
    one.headers["trace"] = "1"
    assert other.headers == {}


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ErrorInfo(type="ValueError", message="bad"), "ValueError: bad"),
        (ErrorInfo(type="ValueError", message=""), "ValueError"),
    ],
)
def test_an_error_is_shown_by_its_type_and_message(error: ErrorInfo, shown: str) -> None:
    assert str(error) == shown


def test_a_job_survives_the_json_that_stores_and_pages_make_of_it() -> None:
    job = Job(
        id=job_id(1, 1),
        kind="send",
        queue="mail",
        priority=0,
        key="",
        state=State.DEAD,
        payload=b'{"to":"a"}',
        due_at=NOW,
        created_at=NOW,
        error=ErrorInfo(type="ValueError", message="bad"),
    )
    assert msgspec.json.decode(msgspec.json.encode(job), type=Job) == job
