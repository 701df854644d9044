"""What makes a job unique: which words are taken, and which keys are found."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest

from windlass.core.errors import ConfigError, PayloadInvalid
from windlass.core.jobs.job import Job, NewJob, UniqueKey
from windlass.core.jobs.states import State
from windlass.core.jobs.unique import NO_IDENTITY, Identity, Unique, amended, identity_of

NOW = datetime(2030, 1, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Colour(StrEnum):
    RED = "red"


def holder(**fields: Any) -> Job:
    base: dict[str, Any] = {
        "id": UUID(int=1),
        "kind": "index",
        "queue": "default",
        "priority": 0,
        "key": "",
        "state": State.PENDING,
        "payload": b"1",
        "due_at": NOW,
        "created_at": NOW,
    }
    return Job(**base | fields)


def duplicate(told: Any, **fields: Any) -> NewJob:
    unique = UniqueKey(key="k", on_duplicate=told)
    base: dict[str, Any] = {"id": UUID(int=2), "kind": "index", "payload": b"2", "unique": unique}
    return NewJob(**base | fields)


@pytest.mark.parametrize(
    ("wrong", "remedy"),
    [
        ({"scope": "host"}, "'kind', 'queue', 'global'"),
        ({"on_duplicate": "raise"}, "'keep', 'replace', 'push', 'supersede'"),
        ({"until": "started"}, "'claimed', 'settled' or a duration like '24h'"),
        ({"until": "0s"}, "'claimed', 'settled'"),
        ({"until": timedelta(-1)}, "'claimed', 'settled'"),
        ({"until": None, "key": 7}, "text or a function"),
    ],
)
def test_a_word_that_says_nothing_is_refused_with_those_that_do(
    wrong: dict[str, Any], remedy: str
) -> None:
    with pytest.raises(ConfigError, match=remedy):
        Unique(**{"key": "k"} | wrong)


@pytest.mark.parametrize(
    ("unique", "span"),
    [
        (Unique("k"), "settled"),
        (Unique("k", on_duplicate="replace"), "claimed"),
        (Unique("k", on_duplicate="push"), "claimed"),
        (Unique("k", on_duplicate="supersede", until="settled"), "settled"),
        (Unique("k", until="24h"), timedelta(days=1)),
        (Unique("k", until=90), timedelta(seconds=90)),
    ],
)
def test_a_key_is_held_as_long_as_its_duplicates_need(unique: Unique, span: object) -> None:
    """Prevents: a debounced change that is lost, since the job that it would change runs."""
    assert unique.held_as("v", kind="kind", queue="queue").until == span


def test_scopes_never_share_a_key() -> None:
    """Not even where a kind, a queue and a key have each other's names."""
    by_kind, by_queue, everywhere = (
        Unique("k"),
        Unique("k", scope="queue"),
        Unique("k", scope="global"),
    )
    held = {
        unique.held_as("v", kind=kind, queue=queue).key
        for unique, kind, queue in (
            (by_kind, "a", "b"),
            (by_kind, "queue", "b"),
            (by_kind, "global", "b"),
            (by_queue, "a", "a"),
            (by_queue, "a", "b"),
            (everywhere, "a", "b"),
        )
    }
    assert len(held) == 6
    assert by_queue.held_as("v", kind="x", queue="b").key in held
    assert everywhere.held_as("v", kind="x", queue="x").key in held


@pytest.mark.parametrize(
    ("key", "value", "found"),
    [
        ("n", {"n": 42}, "42"),
        ("n", {"n": UUID(int=1)}, str(UUID(int=1))),
        ("n", {"n": Colour.RED}, "red"),
        ("n", {}, "7"),
        ("n", {"n": None}, None),
        (lambda n, **_: f"{n}!", {"n": 1, "m": 2}, "1!"),
        (lambda n, m, **_: f"{n}:{m}", {"m": 2}, "7:2"),
    ],
)
def test_a_key_is_found_in_the_arguments(key: Any, value: object, found: str | None) -> None:
    """One that is not given has its default, and None holds no key."""
    identity = identity_of("kind", unique=key, parameters={"n", "m"}, defaults={"n": 7})
    assert identity.unique_key_of("kind", value) == found


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("n", {"n": ""}, "unique key must have a name"),
        ("n", {"n": "x" * 201}, "at most 200"),
        ("n", {"n": "a\nb"}, "printable"),
        ("n", {"n": object()}, "cannot be a key"),
        (lambda n: n / 0, {"n": 1}, "ZeroDivisionError"),
        (lambda other: other, {"n": 1}, "TypeError"),
    ],
)
def test_invalid_keys_are_refused_with_the_reason(key: Any, value: object, reason: str) -> None:
    identity = Identity(unique=Unique(key), idempotency_key=key)
    with pytest.raises(PayloadInvalid, match=f"unique key failed.*{reason}"):
        identity.unique_key_of("kind", value)
    with pytest.raises(PayloadInvalid, match="idempotency key failed"):
        identity.idempotency_key_of("kind", value)


def test_a_kind_that_declares_nothing_costs_nothing() -> None:
    assert identity_of("kind", parameters={"n"}, defaults={"n": 1}) is NO_IDENTITY


@pytest.mark.parametrize(
    ("told", "due", "payload", "due_at", "state"),
    [
        ("replace", HOUR, b"2", NOW, State.PENDING),
        ("push", HOUR, b"1", NOW + HOUR, State.SCHEDULED),
        ("push", NOW + HOUR, b"1", NOW + HOUR, State.SCHEDULED),
        ("supersede", HOUR, b"2", NOW + HOUR, State.SCHEDULED),
        ("supersede", None, b"2", NOW, State.PENDING),
    ],
)
def test_a_duplicate_changes_the_waiting_job_as_on_duplicate_says(
    told: str, due: Any, payload: bytes, due_at: datetime, state: State
) -> None:
    after = amended(holder(), duplicate(told, due=due), NOW)
    assert after is not None
    assert (after.payload, after.due_at, after.state) == (payload, due_at, state)


@pytest.mark.parametrize(
    ("job", "new"),
    [
        (holder(), duplicate("keep", due=HOUR)),
        (holder(), duplicate("push")),
        (holder(due_at=NOW - HOUR), duplicate("push", due=NOW - timedelta(minutes=1))),
        (holder(due_at=NOW + HOUR), duplicate("push", due=timedelta(minutes=1))),
        (holder(attempt=1), duplicate("supersede", due=HOUR)),
        (holder(state=State.RUNNING), duplicate("supersede", due=HOUR)),
        (holder(state=State.COMPLETED), duplicate("replace")),
        (holder(kind="other"), duplicate("replace")),
    ],
)
def test_a_duplicate_leaves_alone_what_it_must(job: Job, new: NewJob) -> None:
    assert amended(job, new, NOW) is None
