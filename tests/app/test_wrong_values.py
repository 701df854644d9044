"""Wrong values given to public functions: each is refused by name, with what to write instead."""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.support.app_on_store import in_state, serving
from windlass import (
    Backoff,
    Cancel,
    PermanentError,
    Retry,
    RetryAfter,
    Snooze,
    State,
    Windlass,
    WindlassError,
)
from windlass.core.payloads.redaction import Redaction
from windlass.core.values.job_options import checked_memory
from windlass.observability import http_endpoint as endpoint

Call = Callable[[Windlass, Any], Any]
MISSPELT: Any = {"slotz": 3}
TEXT: Any = "1s"


def app_and_handler() -> tuple[Windlass, Any]:
    app = Windlass("memory://")

    @app.job
    async def send(n: int = 1) -> Any:
        return n

    return app, send


def refused(call: Call) -> Exception:
    """Return what a call raises, or the coroutine that it returns."""
    app, send = app_and_handler()

    async def awaited(coroutine: Coroutine[Any, Any, Any]) -> None:
        await coroutine

    with pytest.raises((TypeError, ValueError)) as raised:
        answer = call(app, send)
        if asyncio.iscoroutine(answer):
            asyncio.run(awaited(answer))
    return raised.value


HANDLER = "got Handler('send'); write send.draft(...)"
ITERABLE = "drafts must be an iterable of drafts, got"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda app, send: app.fan_out(send), f"{ITERABLE} Handler('send'); write a list, [send."),
        (lambda app, send: app.fan_out([send]), f"each of drafts must be a draft, {HANDLER}"),
        (lambda app, send: app.fan_out(5), f"{ITERABLE} 5; write a list, [handler.draft(...)]"),
        (lambda app, send: app.afan_out(send), f"{ITERABLE} Handler('send')"),
        (lambda app, send: app.afan_out([send]), f"each of drafts must be a draft, {HANDLER}"),
        (lambda app, send: app.enqueue_many(send.draft()), f"{ITERABLE} one; put it into a list"),
        (lambda app, send: app.enqueue_many([send]), f"each of drafts must be a draft, {HANDLER}"),
        (lambda app, send: app.enqueue_many([{"n": 1}]), "must be a draft, got a dict; write"),
        (lambda app, send: app.aenqueue_many([send.enqueue]), "must be a draft, got a method"),
        (lambda app, send: app.chain(send, send), f"a job of a flow must be a draft, {HANDLER}"),
        (lambda app, send: app.chain([send.draft(7)]), "a job of a flow must be a draft, got a li"),
        (lambda app, send: app.group(send.draft()), f"{ITERABLE} one"),
        (lambda app, send: app.group([send.draft()], then=send), f"must be a draft, {HANDLER}"),
        (lambda app, send: app.flow("f").add(send), f"a job of a flow must be a draft, {HANDLER}"),
        (
            lambda app, send: app.flow("f").add(send.draft(), undo=send),
            f"undo must be a draft, {HANDLER}",
        ),
        (lambda app, send: app.flow("f").on_finished(send), f"must be a draft, {HANDLER}"),
        (
            lambda app, send: (flow := app.flow("f")).add(
                send.draft(), after=flow.add(send.draft())
            ),
            "after must be a list of nodes, got Node('send', 1); write after=[...]",
        ),
        (
            lambda app, send: app.producer(None),
            "producer must be given a Kind or the name of one, got N",
        ),
        (
            lambda app, send: app.producer(send),
            "producer must be given a Kind or the name of one, got Han",
        ),
        (
            lambda app, send: app.producer(5),
            "a Kind or the name of one, got 5; write Kind(name, payload)",
        ),
        (lambda app, send: app.handle(5), "job_id must be a UUID, or the text of one, got 5"),
        (lambda app, send: app.handle("0197"), "app.jobs.job_id() finds one by its prefix"),
        (lambda app, send: app.control.acancel("0197"), "job_id must be a UUID, got '0197'"),
        (lambda app, send: app.control.aretry(send.draft().job), "job_id must be a UUID, got"),
        (
            lambda app, send: app.control.aredrive(send.draft().job.id),
            "job_ids must be an iterable of UUIDs",
        ),
        (lambda app, send: app.control.apurge("0197"), "must be an iterable of UUIDs, got '0197'"),
    ],
)
def test_the_error_for_an_invalid_draft_shows_how_to_write_one(call: Call, says: str) -> None:
    assert says in str(refused(call))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"at": "2026-01-01"}, "at must be a datetime with a time zone, got '2026-01-01'; write"),
        ({"at": "5m"}, "or delay= for a duration"),
        ({"at": 5}, "at must be a datetime with a time zone, got 5"),
        ({"at": timedelta(1)}, "at must be a datetime"),
        ({"at": datetime(2030, 1, 1)}, "at must have a time zone"),  # noqa: DTZ001
        ({"delay": datetime(2030, 1, 1, tzinfo=UTC)}, "delay must be a duration like '5m', got"),
        ({"delay": "2026-01-01"}, "delay must be a number and a unit, got '2026-01-01'"),
        ({"delay": []}, "delay must be text like '30s', a number of seconds or a timedelta"),
        ({"delay": "-5s"}, "delay must not be negative, got '-5s'"),
        ({"delay": -5}, "delay must not be negative, got -5"),
        ({"delay": -1e300}, "delay must not be negative, got -1e+300"),
        ({"delay": 1e300}, "delay must be at most 100 years, got 1e+300"),
        ({"expires": "x"}, "expires must be a number and a unit, got 'x'; write it like '30s'"),
        ({"expires": "-1s"}, "expires must not be negative, got '-1s'"),
        ({"priority": 1_001}, "priority must be a whole number between -1,000 and 1,000, got"),
        ({"delay": True}, "got True"),
        ({"delay": b"1s"}, "got b'1s'"),
        ({"delay": float("nan")}, "got nan"),
        ({"expires": "2030-01-01T00:00Z"}, "datetime.fromisoformat('2030-01-01T00:00Z')"),
        ({"expires": None, "timeout": []}, "timeout must be a duration, got []; write it like"),
        ({"headers": 5}, "headers must be a mapping of text to text, got 5"),
        ({"headers": "ab"}, "headers must be a mapping of text to text, got 'ab'"),
    ],
)
def test_the_error_for_an_invalid_time_shows_how_to_write_one(
    options: dict[str, Any], says: str
) -> None:
    assert says in str(refused(lambda _, send: send.using(**options)))


@pytest.mark.parametrize(
    ("steer", "says"),
    [
        (lambda: Snooze("2026-01-01"), "due of Snooze must be a duration or a datetime, got the"),
        (lambda: Snooze("-1s"), "due of Snooze must not be negative, got '-1s'"),
        (lambda: Snooze(None), "due of Snooze must be text like '30s', a number of seconds or"),  # type: ignore[arg-type]
        (lambda: RetryAfter([]), "a duration must be text like '30s'"),  # type: ignore[arg-type]
    ],
)
def test_a_wrong_time_for_snooze_or_retry_after_is_refused(
    steer: Callable[[], object], says: str
) -> None:
    with pytest.raises((TypeError, ValueError), match=re.escape(says)):
        steer()


@pytest.mark.parametrize(
    ("result", "says"),
    [
        (Cancel, "the class Cancel has no JSON form; give an instance, Cancel(...)"),
        (Snooze, "the class Snooze has no JSON form; give an instance, Snooze(...)"),
        ({"why": Cancel}, "why: the class Cancel has no JSON form"),
        (PermanentError("no"), "the exception PermanentError has no JSON form; raise it instead"),
        (iter([1]), "a list_iterator has no JSON form; make a list of it"),
        (refused, "a function has no JSON form; call it first"),
        (asyncio.Lock(), "a value of type Lock has no JSON form"),
    ],
)
def test_a_result_that_cannot_be_stored_says_what_was_meant(result: Any, says: str) -> None:
    app = Windlass("memory://")

    @app.job(max_retries=0)
    async def give() -> Any:
        return result

    async def main() -> None:
        handle = await give.aenqueue()
        async with serving(app):
            job = await in_state(handle, State.DEAD)
        assert job.error is not None
        assert says in job.error.message

    asyncio.run(main())


def test_a_coroutine_that_was_not_awaited_is_reported() -> None:
    app = Windlass("memory://")

    async def inner() -> int:
        return 1

    @app.job(max_retries=0)
    async def give() -> Any:
        coroutine = inner()
        coroutine.close()
        return coroutine

    async def main() -> None:
        handle = await give.aenqueue()
        async with serving(app):
            job = await in_state(handle, State.DEAD)
        assert job.error is not None
        assert "a coroutine has no JSON form; await it first" in job.error.message

    asyncio.run(main())


def test_no_remedy_is_masked_as_if_it_were_a_secret() -> None:
    for said in (endpoint._CLOSED, endpoint._STRANGE):
        assert Redaction().text(said) == said
        assert "set WINDLASS_METRICS_TOKEN" in said


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda app, send: Windlass("memory://", **MISSPELT),
            "'slotz' is not a setting; there",
        ),
        (
            lambda app, send: app.job(amount=2),
            "@app.job has no option 'amount'; there are: aliases,",
        ),
        (lambda app, send: app.job(cpu=True), "no option 'cpu'; did you mean 'cpu_bound'?"),
        (lambda app, send: app.job(timout=5), "no option 'timout'; did you mean 'timeout'?"),
        (lambda app, send: send.enqueue(1, 2), "send takes 1 argument, got 2"),
        (
            lambda app, send: app.control.pause(),
            "exactly one of queue, kind and key must be given, got none of them",
        ),
        (
            lambda app, send: app.control.pause(queue="a", kind="b"),
            "exactly one of queue, kind and key must be given, got queue='a', kind='b'",
        ),
        (lambda app, send: app.job(retries=5), "no option 'retries'; did you mean 'max_retries'?"),
        (lambda app, send: app.job(name="a", retry=5)(lambda: 1), "retry must be a Retry, got 5"),
        (
            lambda app, send: app.job(name="b", max_retries="5")(lambda: None),
            "max_retries must be a whole number between 0 and 1,000,000, got '5'",
        ),
        (lambda app, send: app.producer("sned"), "UnknownKind('sned'): no handler is registered"),
        (lambda app, send: app.enqueue("sned", {}), "Did you mean send?"),
        (lambda app, send: Backoff(base=TEXT), "base must be a timedelta, got '1s'; write Retry("),
        (
            lambda app, send: app.job(name="c", timeout=0)(lambda: None),
            "timeout must be greater than zero, got 0; @app.job(timeout=None) lets a job run",
        ),
        (lambda app, send: send.using(timeout=0), "timeout must be greater than zero, got 0"),
    ],
)
def test_each_wrong_option_has_one_clear_message(call: Call, says: str) -> None:
    app, send = app_and_handler()
    with pytest.raises((TypeError, ValueError, WindlassError)) as raised:
        call(app, send)
    assert says in str(raised.value)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: Retry(initial="x"), "initial must be a number and a unit, got 'x'; write it like"),
        (
            lambda: checked_memory("x"),
            "memory must be a number and a unit, got 'x'; write it like '512MB' or '2GiB'",
        ),
    ],
)
def test_a_wrong_value_is_quoted_once(call: Callable[[], object], says: str) -> None:
    with pytest.raises(ValueError, match=re.escape(says)) as raised:
        call()
    assert str(raised.value).count("'x'") == 1


def test_the_names_of_an_app_are_those_that_programs_use() -> None:
    app, _ = app_and_handler()
    shown = {name for name in dir(app) if not name.startswith("__")}
    assert not [name for name in shown if name.startswith("_")]
    assert {"enqueue", "aenqueue", "producer", "handle", "job", "provide", "stats"} <= shown
    assert not shown & {"registry", "portal", "vault", "ids", "providers", "encryption"}
    assert "enqueue_draft" not in shown
    assert all(inspect.getdoc(getattr(app, name)) for name in shown)
