"""`app.control` on jobs that are found by what they have in common, on every store."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from tests.support.app_on_store import STORES, Bed, Clock, in_state, serving, until
from windlass import AmbiguousId, Context, PermanentError, State, UnknownJob, Windlass
from windlass.app.control import bulk
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import JobFilter
from windlass.core.workflows.flow_graph import FLOW_KIND

pytestmark = pytest.mark.stores(*STORES)
DEAD = JobFilter(states=(State.DEAD,))


def on_an_app(test: Callable[[Windlass], Coroutine[Any, Any, None]]) -> Callable[[Bed], None]:
    """Give a test an app on each store; one that is made in a loop could not migrate its store."""
    return lambda bed: asyncio.run(test(bed.app()))


def with_mail(app: Windlass) -> Any:
    @app.job(queue="mail", key=lambda to, **_: to)
    async def send_email(to: str, fails: str = "") -> str:
        if fails:
            raise PermanentError(fails)
        return to

    return send_email


async def states(app: Windlass, handles: Any) -> list[State]:
    return [(await handle.ainfo()).state for handle in handles]


@on_an_app
async def test_a_job_is_found_by_the_beginning_of_its_id(app: Windlass) -> None:
    send_email = with_mail(app)
    first = await send_email.aenqueue("ada")
    whole = str(first.id)
    for text in (whole[:13], whole[:18], whole.replace("-", "")[:20], whole.upper()[:23], whole):
        assert await app.jobs.ajob_id(text) == first.id
    with pytest.raises(UnknownJob, match="no job has an id that starts with 0000dead"):
        await app.jobs.ajob_id("0000dead")
    assert await app.jobs.ajob_id(whole[-8:]) == first.id, "as short log lines show it"
    with pytest.raises(UnknownJob):
        await app.jobs.ajob_id(("1" if whole[-8] == "0" else "0") + whole[-7:])
    nobody = UUID(int=7)
    assert await app.jobs.ajob_id(str(nobody)) == nobody, "a whole id is not looked for"
    others = [await send_email.aenqueue("bob") for _ in range(6)]
    with pytest.raises(AmbiguousId) as raised:
        await app.jobs.ajob_id(whole[:6])
    told = str(raised.value)
    assert f"{others[-1].id} (send_email, pending)" in told
    assert "and others; add more digits" in told
    assert await app.jobs.ajob_id(whole) == first.id


@on_an_app
async def test_a_job_is_found_by_the_beginning_of_its_id_however_it_ended(app: Windlass) -> None:
    send_email = with_mail(app)
    handles = [await send_email.aenqueue("ada"), await send_email.aenqueue("ada", fails="no")]
    async with serving(app):
        await in_state(handles[0], State.COMPLETED)
        await in_state(handles[1], State.DEAD)
    for handle in handles:
        assert await app.jobs.ajob_id(str(handle.id)[:35]) == handle.id


@on_an_app
async def test_a_flow_is_distinguished_from_its_jobs_by_its_kind(app: Windlass) -> None:
    send_email = with_mail(app)
    flow = app.flow("mails")
    flow.add(send_email.draft("ada"))
    handle = await flow.aenqueue()
    text = str(handle.id)[:18]
    assert await app.jobs.ajob_id(text, kind=FLOW_KIND) == handle.id
    with pytest.raises(AmbiguousId, match=r"windlass\.flow"):
        await app.jobs.ajob_id(text)


def test_jobs_are_found_and_counted_by_what_they_have_in_common(bed: Bed) -> None:
    clock = Clock()
    asyncio.run(_found_and_counted(bed.app(store=bed.store(clock=clock)), clock))


async def _found_and_counted(app: Windlass, clock: Clock) -> None:
    send_email = with_mail(app)

    @app.job
    async def other() -> None: ...

    old = await send_email.aenqueue("ada")
    clock.advance(hours=2)
    new = await send_email.aenqueue("bob")
    later = await send_email.using(delay="1h").aenqueue("ada")
    plain = await other.aenqueue()
    cases: list[tuple[dict[str, Any], set[UUID]]] = [
        ({}, {old.id, new.id, later.id, plain.id}),
        ({"kind": "send_email"}, {old.id, new.id, later.id}),
        ({"queue": "mail", "older_than": "1h"}, {old.id}),
        ({"queue": "mail", "newer_than": 3600}, {new.id, later.id}),
        ({"key": "ada"}, {old.id, later.id}),
        ({"states": ["scheduled"]}, {later.id}),
        ({"states": [State.PENDING], "kind": "other"}, {plain.id}),
        ({"error": "anything"}, set()),
    ]
    for where, expected in cases:
        page = await app.jobs.afind(**where)
        assert {job.id for job in page.jobs} == expected, where
        assert await app.jobs.acount(**where) == len(expected), where
    assert await app.jobs.acount(kind="send_email", limit=2) == 2


def test_only_jobs_that_are_meant_are_cancelled(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk, "CHUNK", 2)
    asyncio.run(_only_meant(bed.app()))


async def _only_meant(app: Windlass) -> None:
    send_email = with_mail(app)

    @app.job
    async def other() -> None: ...

    mails = [await send_email.aenqueue("ada") for _ in range(5)]
    later = await send_email.using(delay="1h").aenqueue("ada")
    kept = await other.aenqueue()
    assert await app.control.acancel_where(kind="send_email", states=["pending"], limit=3) == 3
    assert (await states(app, mails))[3:] == [State.PENDING] * 2, "the oldest go first"
    assert await app.control.acancel_where(kind="send_email", reason="withdrawn") == 3
    assert set(await states(app, [*mails, later])) == {State.CANCELLED}
    assert (await later.ainfo()).reason == "withdrawn"
    assert (await kept.ainfo()).state is State.PENDING
    assert await app.control.acancel_where(kind="send_email") == 0


@on_an_app
async def test_a_running_job_is_asked_to_end_and_a_flow_ends_with_its_jobs(app: Windlass) -> None:
    started = asyncio.Event()

    @app.job
    async def wait(ctx: Context) -> None:
        started.set()
        await asyncio.sleep(3600)

    flow = app.flow("waits")
    flow.add(wait.draft(), after=[flow.add(wait.draft())])
    async with serving(app):
        alone = await wait.aenqueue()
        whole = await flow.aenqueue()
        await started.wait()
        await until(lambda: _runs(app, 2))
        await app.control.acancel_where(states=["scheduled", "pending", "running"])
        await in_state(alone, State.CANCELLED)
        await until(lambda: _runs(app, 0))
    assert (await app.jobs.afind(states=["scheduled", "pending", "running"])).jobs == ()
    assert (await whole.ainfo()).state is State.CANCELLED


async def _runs(app: Windlass, number: int) -> bool:
    return await app.jobs.acount(states=["running"]) == number


@on_an_app
async def test_dead_jobs_are_redriven_by_their_error_and_the_rest_is_purged(app: Windlass) -> None:
    send_email = with_mail(app)
    refused = [await send_email.aenqueue("ada", fails="refused by the bank") for _ in range(2)]
    broken = await send_email.aenqueue("ada", fails="broken")
    sent = await send_email.aenqueue("bob")
    async with serving(app):
        for handle in (*refused, broken):
            await in_state(handle, State.DEAD)
        await in_state(sent, State.COMPLETED)
    (group,) = [
        each
        for each in await app.control.aerror_groups()
        if each.error is not None and each.error.message == "broken"
    ]
    assert await app.jobs.acount(fingerprint=group.fingerprint) == 1
    assert await app.control.aredrive_where(error="by the bank", reason="the bank is back") == 2
    assert await states(app, refused) == [State.PENDING] * 2
    assert (await refused[0].ainfo()).reason == "the bank is back"
    assert await app.control.apurge_where(states=["completed"], key="ada") == 0
    assert await app.control.apurge_where(kind="send_email", older_than=0) == 2
    assert await app.store.get(broken.id) is None
    assert await app.store.get(sent.id) is None
    assert await states(app, refused) == [State.PENDING] * 2


@on_an_app
async def test_a_job_that_changed_its_state_meanwhile_is_left_alone(app: Windlass) -> None:
    send_email = with_mail(app)
    handles = [await send_email.aenqueue("ada") for _ in range(2)]
    ids = [handle.id for handle in handles]
    await app.control.acancel(ids[0])
    moving = bulk.move_in_chunks(app.control, Verb.PURGE, ids, which=DEAD)
    assert [step async for step in moving] == [(2, 0)]
    assert await states(app, handles) == [State.CANCELLED, State.PENDING]


@on_an_app
async def test_ended_jobs_of_a_flow_that_is_under_way_are_kept(app: Windlass) -> None:
    go = asyncio.Event()

    @app.job
    async def one() -> int:
        return 1

    @app.job
    async def gate() -> int:
        await go.wait()
        return 1

    @app.job
    async def total(ctx: Context) -> int:
        return sum(await ctx.results())

    flow = app.flow("sum")
    flow.add(total.draft(), after=[flow.add(one.draft()), flow.add(gate.draft())])
    async with serving(app):
        handle = await flow.aenqueue()
        await until(lambda: _ended(app, 1))
        assert await app.control.apurge_where(states=["completed"]) == 0
        go.set()
        await in_state(handle, State.COMPLETED)
    assert await app.control.apurge_where(states=["completed"]) == 4
    assert (await app.jobs.afind()).jobs == ()


async def _ended(app: Windlass, number: int) -> bool:
    return await app.jobs.acount(states=["completed"]) == number


@pytest.mark.parametrize(
    ("call", "where", "says"),
    [
        ("cancel_where", {}, "cancel must be given a condition, got none"),
        ("purge_where", {}, "states=['completed', 'dead', 'cancelled']"),
        ("cancel_where", {"states": ["dead"]}, "for cancel, got 'dead'"),
        ("purge_where", {"states": [State.RUNNING]}, "for purge, got 'running'"),
        ("redrive_where", {"states": ["completed"]}, "states must be among ['dead'] for redrive"),
        ("find", {"states": ["done"]}, "got ['done']"),
        ("find", {"states": "dead"}, "states must be a list of states, got 'dead'; write ['dead']"),
        ("find", {"kind": 5}, "kind must be a string, got 5"),
        ("find", {"older_than": "soon"}, "'soon'"),
        ("count", {"color": "red"}, "jobs are selected by states, queue, kind"),
    ],
)
def test_invalid_conditions_are_refused(call: str, where: dict[str, Any], says: str) -> None:
    app = Windlass("memory://")
    face = app.jobs if call in ("find", "count") else app.control
    with pytest.raises((TypeError, ValueError), match=re.escape(says)):
        asyncio.run(getattr(face, call)(**where))
