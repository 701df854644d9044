"""Every action of an operator leaves one entry, together with its effect, on every store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.support.app_on_store import STORES, Bed, Through, log_lines
from windlass import Breaker, InvalidTransition, UnknownJob, Windlass
from windlass.app.control import audit_reader as reading
from windlass.app.control.bulk import move_in_chunks
from windlass.core.audit import RECORD, AuditEntry
from windlass.core.changes import Changes
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import WAITING

pytestmark = pytest.mark.stores(*STORES)


def on_an_app(test: Callable[[Windlass], Coroutine[Any, Any, None]]) -> Callable[[Bed], None]:
    """Give a test an app on each store; one that is made in a loop could not migrate its store."""
    return lambda bed: asyncio.run(test(bed.app()))


async def entries(app: Windlass, **where: Any) -> list[AuditEntry]:
    return list((await app.control.aaudit(**where)).entries)


async def actions(app: Windlass, **where: Any) -> list[tuple[str, str, int]]:
    """Return what was done, oldest first."""
    found = await entries(app, **where)
    return [(each.action, each.subject, each.count) for each in reversed(found)]


def with_mail(app: Windlass) -> Any:
    @app.job(queue="mail", breaker=Breaker("stripe"))
    async def send_email(to: str) -> str:
        return to

    return send_email


@on_an_app
async def test_moves_of_one_job_name_the_job(app: Windlass) -> None:
    send_email = with_mail(app)
    later = await send_email.using(delay="1h").aenqueue("ada")
    await app.control.aretry(later.id)
    await app.control.acancel(later.id, reason="moot")
    await app.control.apurge([later.id])
    subject = f"job:{later.id}"
    assert await actions(app) == [
        ("retry", subject, 1),
        ("cancel", subject, 1),
        ("purge", subject, 1),
    ]
    assert [each.reason for each in await entries(app)] == ["", "moot", ""]
    assert [each.action for each in await entries(app, job=later.id)] == [
        "purge",
        "cancel",
        "retry",
    ]
    assert await entries(app, job=uuid4()) == []


@on_an_app
async def test_an_action_that_changes_nothing_leaves_no_entry(app: Windlass) -> None:
    """Prevents: the log says that somebody cancelled a job that had completed."""
    send_email = with_mail(app)
    handle = await send_email.aenqueue("ada")
    await app.control.acancel(handle.id)
    with pytest.raises(InvalidTransition):
        await app.control.acancel(handle.id)
    with pytest.raises(UnknownJob):
        await app.control.acancel(uuid4())
    assert await app.control.aredrive([handle.id]) == []
    assert await app.control.acancel_where(kind="send_email") == 0
    assert not await app.control.aresume("mail")
    assert not await app.control.areset_limit("queue:mail")
    assert not await app.schedules.aremove("nightly")
    assert await actions(app) == [("cancel", f"job:{handle.id}", 1)]
    assert await app.control.apause("mail")
    assert not await app.control.apause("mail")
    assert len(await entries(app)) == 2


@on_an_app
async def test_moves_of_many_jobs_have_one_entry_with_their_number(app: Windlass) -> None:
    send_email = with_mail(app)
    handles = [await send_email.aenqueue("ada") for _ in range(25)]
    ids = [handle.id for handle in handles]
    await app.control.acancel(ids[0])
    await app.control.acancel_many(ids[:3])
    await app.control.acancel_where(queue="mail", newer_than="1h", reason="a wrong template")
    named, conditions = (await entries(app))[1::-1]
    assert (named.action, named.subject, named.count, named.jobs) == (
        "cancel",
        "jobs",
        2,
        tuple(ids[:3]),
    )
    assert (conditions.count, conditions.reason) == (22, "a wrong template")
    assert conditions.detail == "states=scheduled,pending,running queue=mail newer_than=1h"
    assert await entries(app, job=ids[1]) == [named]


@on_an_app
async def test_moves_in_several_changes_have_one_entry_that_grows(app: Windlass) -> None:
    send_email = with_mail(app)
    ids = [(await send_email.aenqueue("ada")).id for _ in range(7)]
    which = JobFilter(queue="mail", states=tuple(WAITING))
    counts = []
    async for _ in move_in_chunks(app.control, Verb.CANCEL, ids, which=which, size=3):
        (entry,) = await entries(app)
        counts.append(entry.count)
    assert counts == [3, 6, 7]


@on_an_app
async def test_every_lever_leaves_an_entry(app: Windlass) -> None:
    with_mail(app)
    app.limit("gpu", concurrency=8)
    control = app.control.acting_as("ada@example.org", via="web", reason="INC-42")
    await control.apause("mail")
    await control.apause(kind="send_email")
    await control.aresume("mail")
    await control.aset_limit("gpu", concurrency=4)
    await control.areset_limit("gpu")
    await control.aopen_breaker("stripe")
    await control.aprobe_breaker("stripe")
    await control.aclose_breaker("stripe")
    await control.areset_breaker("stripe")
    schedules = app.schedules.acting_as("ada@example.org", via="web", reason="INC-42")
    await schedules.aput("nightly", "send_email", {"to": "ada"}, every="1d")
    await schedules.aput("nightly", "send_email", {"to": "ada"}, every="1d")
    await schedules.apause("nightly")
    await schedules.aresume("nightly")
    ran = await schedules.arun("nightly")
    await schedules.aremove("nightly")
    assert [each[:2] for each in await actions(app)] == [
        ("pause", "queue:mail"),
        ("pause", "kind:send_email"),
        ("resume", "queue:mail"),
        ("set", "limit:gpu"),
        ("reset", "limit:gpu"),
        ("open", "breaker:stripe"),
        ("probe", "breaker:stripe"),
        ("close", "breaker:stripe"),
        ("reset", "breaker:stripe"),
        ("put", "schedule:nightly"),
        ("pause", "schedule:nightly"),
        ("resume", "schedule:nightly"),
        ("run", "schedule:nightly"),
        ("remove", "schedule:nightly"),
    ]
    found = await entries(app)
    assert {(each.by, each.via, each.reason) for each in found} == {
        ("ada@example.org", "web", "INC-42")
    }
    details = {(each.action, each.subject): each.detail for each in found}
    assert details["set", "limit:gpu"] == "concurrency=4"
    assert details["run", "schedule:nightly"] == f"job={ran.id}"
    assert "1d" in details["put", "schedule:nightly"]
    assert (await control.abreakers())[0].history[-1].by == "ada@example.org"


class Failing(Through):
    """A store whose changes fail where they are written."""

    async def apply(self, names: Any, decide: Any) -> Any:
        def broken(known: Any, now: Any) -> Changes[Any]:
            decide(known, now)
            raise LookupError("the store failed")

        return await self.inner.apply(names, broken)


def test_an_action_that_fails_leaves_no_entry(bed: Bed) -> None:
    app = bed.app(store=Failing(bed.store()))

    async def main() -> None:
        with pytest.raises(LookupError):
            await app.control.apause("mail")
        assert await entries(app) == []

    asyncio.run(main())


@on_an_app
async def test_an_entry_is_read_by_who_what_and_when(app: Windlass) -> None:
    ada, bob = app.control.acting_as("ada@web1"), app.control.acting_as("bob")
    await ada.apause("mail")
    await ada.aset_limit("queue:mail", rate="5/s")
    await bob.aresume("mail")
    assert await actions(app, by="ada") == [
        ("pause", "queue:mail", 0),
        ("set", "limit:queue:mail", 0),
    ]
    assert await actions(app, by="ada@web1") == await actions(app, by="ada")
    assert await actions(app, by="ad") == []
    assert await actions(app, action="resume") == [("resume", "queue:mail", 0)]
    assert len(await actions(app, subject="queue:mail")) == 2
    assert len(await actions(app, subject="queue")) == 2
    (first, *_) = await entries(app)
    assert len(await entries(app, since="1h")) == 3
    assert await entries(app, since=first.at + timedelta(seconds=1)) == []
    page = await app.control.aaudit(limit=2)
    rest = await app.control.aaudit(limit=2, after=page.after)
    assert [*page.entries, *rest.entries] == await entries(app)
    assert rest.after is None


@on_an_app
async def test_a_page_says_how_far_it_has_read(app: Windlass) -> None:
    """Prevents: a log of millions of entries is read to its end for one that is not there."""
    for queue in ("a", "b", "c", "d"):
        await app.control.apause(queue)
    a, _, c, _ = reversed(await entries(app))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reading, "_READ", 2)
        patch.setattr(reading, "_MAX_READ", 2)
        page = await app.control.aaudit(subject="queue:a")
        assert (page.entries, page.searched_to) == ((), c.at)
        page = await app.control.aaudit(subject="queue:a", after=page.after)
        assert (page.entries, page.searched_to) == ((a,), a.at)
        page = await app.control.aaudit(subject="queue:a", after=page.after)
        assert (page.entries, page.after, page.searched_to) == ((), None, None)


@on_an_app
async def test_changes_by_a_program_leave_no_entry(app: Windlass) -> None:
    send_email = with_mail(app)
    await (await send_email.aenqueue("ada")).acancel()
    handle = await send_email.aenqueue("ada")
    await app.control.unaudited.acancel(handle.id)
    await app.schedules.unaudited.aput("t", "send_email", {"to": "ada"}, every="1d")
    assert await entries(app) == []
    assert len(await app.schedules.alist()) == 1


@pytest.mark.stores("memory")
def test_an_action_is_logged_once(
    bed: Bed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("INFO", "windlass.audit")
    monkeypatch.setenv("WINDLASS_ACTOR", "deploy-bot")
    app = bed.app()

    async def main() -> None:
        await app.control.apause("mail")
        await app.control.apause("mail")
        await app.control.acancel_where(queue="mail")
        (line,) = log_lines(caplog, "operator.acted")
        acted = (line["by"], line["via"], line["action"], line["subject"])
        assert acted == ("deploy-bot", "python", "pause", "queue:mail")
        assert [each.by for each in await entries(app)] == ["deploy-bot"]

    asyncio.run(main())


@pytest.mark.stores("memory")
def test_the_variable_that_names_the_operator_is_known_and_harmless(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_ACTOR", "\x1b[31mada\n" + "x" * 1_000)
    app = bed.app()
    assert app.resolved.warnings == ()
    assert app.control.actor.by.startswith("\\x1b[31mada\\nxxx")
    assert app.control.acting_as(app.control.actor.by, via="cli").actor.via == "cli"
    monkeypatch.setenv("WINDLASS_ACTOR", " ")
    assert "@" in app.control.actor.by


def test_an_operator_has_a_name_and_a_known_way(bed: Bed) -> None:
    app = bed.app()
    with pytest.raises(ValueError, match="an operator must have a name"):
        app.control.acting_as(" ")
    with pytest.raises(ValueError, match="via must be one of python, cli, web, got 'ftp'"):
        app.control.acting_as("ada", via="ftp")  # type: ignore[arg-type]
    assert "@" in app.control.actor.by, "by default it is the user of the process at its host"


@on_an_app
async def test_hostile_texts_are_kept_within_bounds(app: Windlass) -> None:
    hostile = "\x00\ud800" + "x" * 100_000
    handle = await with_mail(app).aenqueue("ada")
    await app.control.acancel(handle.id, reason=hostile)
    (entry,) = await entries(app)
    assert entry.reason.startswith("\\x00\\ud800xxx")
    assert len(entry.reason) < 1_000


@on_an_app
async def test_entries_of_the_same_moment_are_all_kept(app: Windlass) -> None:
    send_email = with_mail(app)
    jobs = [(await send_email.aenqueue("ada")).id for _ in range(20)]
    await asyncio.gather(*(app.control.acancel(job) for job in jobs))
    assert len(await app.store.records(RECORD)) == 20
    assert {each.subject for each in await entries(app)} == {f"job:{job}" for job in jobs}
