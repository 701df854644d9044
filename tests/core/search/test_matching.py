"""A search selects the jobs that its terms describe."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.jobs.job import TAGS, ErrorInfo, Job
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import JobFilter, filter_for, filter_of
from windlass.core.jobs.states import State
from windlass.core.search.documents import text_at
from windlass.core.search.errors import SearchError
from windlass.core.search.matching import matches

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
JOB = Job(
    id=UUID("0199a8a0-0000-7000-8000-0000778e5900"),
    kind="send_email",
    queue="mail",
    priority=0,
    key="acme",
    state=State.SCHEDULED,
    payload=b'{"order": {"id": 42, "total": 12.50}, "card": {"$secret": "v1:x"}}',
    due_at=NOW,
    created_at=NOW,
    failures=1,
    worker="web1:42:ab12",
    headers={"trace": "4bf92f", TAGS: "vip,eu"},
    error=ErrorInfo(type="TimeoutError", message="Timed out", fingerprint="778e590056"),
    reason="stopped by an operator",
)


def found(text: str, **changes: Any) -> bool:
    job = msgspec.structs.replace(JOB, **changes)
    return matches(filter_of({"search": text}, NOW), job, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "kind:send_email queue:mail key:acme state:retrying",
        "kind:send_*,other -queue:bulk",
        "payload.order.id:42 payload.order.total:12.50",
        "tag:vip tag:e*",
        "header.trace:4b*",
        "worker:web1",
        "worker:web1:42",
        '"timed OUT" -refused',
        "operator",
        "error:778e",
        "error:timeout",
        "778e5900",
        "0199a8a0",
        "since:2026-01-01 until:2026-01-01",
        "-flow:*",
    ],
)
def test_a_job_is_found_by_what_it_is(text: str) -> None:
    assert found(text)


@pytest.mark.parametrize(
    "text",
    [
        "kind:send",
        "kind:SEND_EMAIL",
        "state:scheduled -state:retrying",
        "payload.order.id:42.0",
        "payload.order:*",
        "payload.card:*",
        "tag:vi",
        "worker:web",
        "worker:web1:4",
        "error:778",
        "-error:*",
        "-operator",
        "until:1h",
        "flow:*",
        "flow:0199a8a0",
    ],
)
def test_a_job_is_not_found_by_what_it_is_not(text: str) -> None:
    assert not found(text)


def test_a_job_without_a_value_is_found_by_its_absence() -> None:
    assert found("-key:* -tag:* -error:* -worker:*", key="", headers={}, error=None, worker=None)
    assert not found("key:*", key="")
    assert not found("state:retrying", failures=0)


def test_terms_for_which_a_filter_has_fields_become_these() -> None:
    which = filter_of({"search": "kind:a queue:b key:c -state:running tag:x"})
    states = tuple(state for state in State if state is not State.RUNNING)
    assert msgspec.structs.replace(which, terms=()) == JobFilter(
        kind="a", queue="b", key="c", states=states
    )
    assert len(which.terms) == 1


def test_a_filter_with_terms_survives_its_json() -> None:
    which = filter_of({"search": "tag:vip since:1h -payload.a:1,b* state:retrying"}, NOW)
    assert msgspec.json.decode(msgspec.json.encode(which), type=JobFilter) == which


def test_a_verb_restricts_the_states_of_a_search() -> None:
    cancel = filter_for(Verb.CANCEL, {"search": "kind:a -state:running"})
    assert cancel.states == (State.SCHEDULED, State.PENDING)
    assert filter_for(Verb.PURGE, {"search": "kind:a"}).states == (
        State.COMPLETED,
        State.DEAD,
        State.CANCELLED,
    )
    with pytest.raises(ValueError, match=r"states must be among .* got 'dead'"):
        filter_for(Verb.CANCEL, {"search": "state:dead"})
    with pytest.raises(ValueError, match="must be given a condition"):
        filter_for(Verb.CANCEL, {"search": " "})
    with pytest.raises(SearchError, match="at character 1 of"):
        filter_for(Verb.CANCEL, {"search": "knd:a"})


@pytest.mark.parametrize(
    ("document", "path", "text"),
    [
        (b'{"a": 1.50}', ["a"], "1.50"),
        (b'{"a": 12345678901234567890123}', ["a"], "12345678901234567890123"),
        (b'{"a": true}', ["a"], "true"),
        (b'{"a": null}', ["a"], None),
        (b'{"a": NaN}', ["a"], "NaN"),
        (b'{"a": [1, {"b": "x"}]}', ["a", "-1", "b"], "x"),
        (b'{"a": [1]}', ["a", "1"], None),
        (b'{"a": [1]}', ["a", "-2"], None),
        (b'{"a": [1]}', ["a", "b"], None),
        (b'{"a": {"1": 2}}', ["a", "1"], "2"),
        (b'{"a": "x"}', ["a", "0"], None),
        (b"[5]", ["0"], "5"),
        (b"no JSON", ["a"], None),
        (b"\xff", ["a"], None),
        (b"[" * 100_000, ["0"], None),
    ],
)
def test_a_value_is_compared_as_it_is_written(
    document: bytes, path: list[str], text: str | None
) -> None:
    assert text_at(document, path) == text


@given(st.binary(), st.lists(st.text()))
def test_no_document_breaks_a_search(document: bytes, path: list[str]) -> None:
    text_at(document, path)
