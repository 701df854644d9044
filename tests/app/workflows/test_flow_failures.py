"""What becomes of a flow whose jobs die, expire, or are cancelled, purged and redriven."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from tests.app.workflows.flow_shop import FAILS, Shop, on_a_shop, on_an_idle_shop, states
from tests.support.app_on_store import in_state, serving, until
from windlass import After, Flow, FlowResult, JobCancelled, JobDead, State, Windlass
from windlass.core.jobs.ids import member_id
from windlass.testing import travel
from windlass.worker.services.flow_advancer import FlowAdvancer

pytestmark = pytest.mark.stores("postgres")


# -- parents that fail -----------------------------------------------------------------------------


@on_a_shop
async def test_a_dead_parent_stops_what_comes_after_it(shop: Shop) -> None:
    flow = shop.app.flow("x")
    dead = flow.add(shop.add.draft(-1))
    child = flow.add(shop.total.draft(), after=[dead])
    grandchild = flow.add(shop.total.draft(), after=[child])
    other = flow.add(shop.add.draft(1))
    handle = await flow.aenqueue()
    with pytest.raises(JobCancelled, match=r"3 of 4 jobs did not complete: add \(1\), total"):
        await handle.aresult("60s")
    assert await states(flow, dead, child, grandchild, other) == [
        State.DEAD,
        State.CANCELLED,
        State.CANCELLED,
        State.COMPLETED,
    ]
    assert (await child.handle.ainfo()).reason == "'add' (job 1 of the flow) is dead"


@on_a_shop
async def test_a_job_may_go_on_after_a_parent_that_failed(shop: Shop) -> None:
    flow = shop.app.flow("x")
    good = flow.add(shop.add.draft(1), name="good")
    bad = flow.add(shop.add.draft(-1), name="bad")
    flow.add(shop.note.draft("both"), after=[good, After(bad, on_failure="continue")])
    assert await (await flow.aenqueue()).aresult("60s") == FlowResult(completed=2, dead=1)
    ((_, (one, error)),) = shop.noted
    assert one == 1
    assert isinstance(error, JobDead)
    assert error.job_id == bad.id
    assert FAILS in str(error)


@on_a_shop
async def test_the_last_job_runs_however_the_others_ended(shop: Shop) -> None:
    flow = shop.app.flow("x")
    dead = flow.add(shop.add.draft(-1))
    flow.add(shop.total.draft(), after=[dead])
    flow.on_finished(shop.note.draft("settled"))
    handle = await flow.aenqueue()
    await in_state(handle, State.CANCELLED)
    ((what, results),) = shop.noted
    assert what == "settled"
    assert [type(each) for each in results] == [JobDead, JobCancelled]


# -- compensation ----------------------------------------------------------------------------------


@on_a_shop
async def test_compensation_undoes_what_completed_in_reverse(shop: Shop) -> None:
    flow = shop.app.flow("order", on_failure="compensate")
    reserve = flow.add(shop.add.draft(7), undo=shop.note.draft("release"))
    charge = flow.add(shop.add.draft(8), after=[reserve], undo=shop.note.draft("refund"))
    flow.add(shop.add.draft(-1), after=[charge], undo=shop.note.draft("recall"), name="ship")
    flow.on_finished(shop.note.draft("settled"))
    with pytest.raises(JobCancelled, match="undone: 'ship'"):
        await (await flow.aenqueue()).aresult("60s")
    assert shop.noted[:2] == [("refund", [8]), ("release", [7])]
    assert [what for what, _ in shop.noted[2:]] == ["settled"]


@on_a_shop
async def test_a_flow_that_completes_undoes_nothing(shop: Shop) -> None:
    flow = shop.app.flow("order", on_failure="compensate")
    flow.add(shop.add.draft(7), undo=shop.note.draft("release"))
    assert await (await flow.aenqueue()).aresult("60s") == FlowResult(completed=1)
    undo = await shop.app.handle(member_id(flow.id, 2)).ainfo()
    assert (undo.state, undo.reason) == (State.CANCELLED, "nothing to undo")
    assert shop.noted == []


@on_a_shop
async def test_an_undo_that_is_dead_is_redriven_and_the_rest_follows(shop: Shop) -> None:
    flow = shop.app.flow("order", on_failure="compensate")
    reserve = flow.add(shop.add.draft(7), undo=shop.note.draft("release"))
    charge = flow.add(shop.add.draft(8), after=[reserve], undo=shop.add.draft(-2))
    flow.add(shop.add.draft(-1), after=[charge], name="ship")
    handle = await flow.aenqueue()
    job = await in_state(handle, State.DEAD)
    assert job.error is not None
    assert "compensation failed: undo of add (5) dead; 0 undone, 1 left" in job.error.message
    assert shop.noted == []
    undo = member_id(flow.id, 5)
    await shop.app.control.aredrive_with(undo, b'{"number": 2}')
    job = await in_state(handle, State.CANCELLED)
    assert "undone: 'ship'" in (job.reason or "")
    assert shop.noted == [("release", [7])]


@on_a_shop
async def test_a_job_that_is_redriven_while_others_are_undone_is_undone(shop: Shop) -> None:
    flow = shop.app.flow("order", on_failure="compensate")
    flow.add(shop.add.draft(7), undo=shop.wait.draft())
    charge = flow.add(shop.add.draft(-1), undo=shop.note.draft("refund"))
    handle = await flow.aenqueue()
    await in_state(shop.app.handle(member_id(flow.id, 3)), State.RUNNING)
    refund = await shop.app.handle(member_id(flow.id, 4)).ainfo()
    assert (refund.state, refund.waiting_for) == (State.SCHEDULED, f"flow:{flow.id}:held:4")
    await shop.app.control.aredrive_with(charge.id, b'{"number": 1}')
    await in_state(charge.handle, State.COMPLETED)
    shop.gate.set()
    await in_state(handle, State.CANCELLED)
    assert shop.noted == [("refund", [1])]


# -- every way to end ------------------------------------------------------------------------------


@on_a_shop
async def test_members_that_are_cancelled_count_wherever_they_were(shop: Shop) -> None:
    flow = shop.app.flow("x", on_failure="continue")
    running = flow.add(shop.wait.draft())
    waiting = flow.add(shop.add.using(delay="1h").draft(1))
    parked = flow.add(shop.add.draft(1), after=[waiting])
    end = flow.add(shop.note.draft("end"), after=[running, waiting, parked])
    handle = await flow.aenqueue()
    await in_state(running.handle, State.RUNNING)
    for node in (parked, waiting, running):
        await shop.app.control.acancel(node.id)
    assert await handle.aresult("60s") == FlowResult(completed=1, cancelled=3)
    assert await states(flow, end) == [State.COMPLETED]
    assert [type(each) for each in shop.noted[0][1]] == [JobCancelled] * 3


@on_a_shop
async def test_members_that_expire_count(shop: Shop) -> None:
    flow = shop.app.flow("x", on_failure="continue")
    gate = flow.add(shop.wait.draft())
    late = flow.add(shop.add.using(expires="1ms").draft(1), after=[gate])
    flow.add(shop.note.draft("end"), after=[late])
    handle = await flow.aenqueue()
    shop.gate.set()
    assert await handle.aresult("60s") == FlowResult(completed=2, cancelled=1)


@on_a_shop
async def test_a_member_that_is_purged_has_counted_before(shop: Shop) -> None:
    flow = shop.app.flow("x", on_failure="continue")
    dead = flow.add(shop.add.draft(-1))
    gate = flow.add(shop.wait.draft())
    flow.add(shop.add.draft(1), after=[dead, gate])
    handle = await flow.aenqueue()
    await in_state(dead.handle, State.DEAD)
    await shop.app.control.apurge([dead.id])
    shop.gate.set()
    assert await handle.aresult("60s") == FlowResult(completed=2, dead=1)


@on_a_shop
async def test_a_redriven_member_does_not_bring_back_what_was_cancelled(shop: Shop) -> None:
    flow = shop.app.flow("x")
    dead = flow.add(shop.add.draft(-1))
    child = flow.add(shop.note.draft("child"), after=[dead])
    handle = await flow.aenqueue()
    await in_state(handle, State.CANCELLED)
    await shop.app.control.aredrive_with(dead.id, b'{"number": 1}')
    await in_state(dead.handle, State.COMPLETED)
    topic = f"flow:{flow.id}"
    await until(lambda: heard(shop.app, topic))
    assert await states(flow, child) == [State.CANCELLED]
    assert shop.noted == []
    assert await shop.app.store.records("flow:") == {}


async def heard(app: Windlass, topic: str) -> bool:
    return topic not in await app.store.topics(100)


@on_a_shop
async def test_nothing_is_left_of_a_flow_that_ended(shop: Shop) -> None:
    handle = await shop.app.chain(*[shop.total.draft() for _ in range(3)]).aenqueue()
    await handle.aresult("60s")
    await until(lambda: _is_forgotten(shop.app))


async def _is_forgotten(app: Windlass) -> bool:
    return not await app.store.records("flow:") and not await app.store.topics(10)


def _dead_by_compensation(shop: Shop) -> Flow:
    flow = shop.app.flow("order", on_failure="compensate")
    reserve = flow.add(shop.add.draft(7), undo=shop.add.draft(-2))
    flow.add(shop.add.draft(-1), after=[reserve])
    return flow


@on_a_shop
async def test_a_dead_flow_is_remembered_until_its_job_is_gone(shop: Shop) -> None:
    flow = _dead_by_compensation(shop)
    await in_state(await flow.aenqueue(), State.DEAD)
    topic = f"flow:{flow.id}"
    await until(lambda: heard(shop.app, topic))
    upcoming = await shop.app.store.ringing(1)
    assert upcoming.next is not None, "somebody looks after it"
    minding = FlowAdvancer(shop.app.store)
    await minding.forget([topic])
    assert list(await shop.app.store.records("flow:")) == [topic]
    await shop.app.control.apurge([flow.id])
    await minding.forget([topic])
    assert await shop.app.store.records("flow:") == {}


def test_workers_forget_a_dead_flow_that_was_purged() -> None:
    shop = Shop(Windlass("memory://"))
    with travel(shop.app) as t:
        flow = _dead_by_compensation(shop)
        handle = flow.enqueue()
        t.advance("3d")
        assert handle.info().state is State.DEAD
        assert list(asyncio.run(_records(shop.app))) == [f"flow:{flow.id}"]
        asyncio.run(shop.app.control.apurge([flow.id]))
        t.advance("25h")
        assert not asyncio.run(_records(shop.app))


async def _records(app: Windlass) -> Mapping[str, Any]:
    return await app.store.records("flow:")


# -- cancelling a flow -----------------------------------------------------------------------------


@on_an_idle_shop
async def test_cancelling_a_flow_needs_no_worker(shop: Shop) -> None:
    flow = shop.app.flow("x")
    first = flow.add(shop.add.draft(1), undo=shop.note.draft("undo"))
    second = flow.add(shop.note.draft("second"), after=[first])
    flow.on_finished(shop.note.draft("settled"))
    handle = await flow.aenqueue()
    assert await handle.acancel("not today") is State.CANCELLED
    jobs = await shop.app.store.get_many([member_id(flow.id, number) for number in range(5)])
    assert {job.state for job in jobs.values()} == {State.CANCELLED}
    assert len(jobs) == 5
    assert (await second.handle.ainfo()).reason == "its flow was cancelled"
    async with serving(shop.app):
        await until(lambda: heard(shop.app, f"flow:{flow.id}"))
    assert await shop.app.store.records("flow:") == {}


@on_a_shop
async def test_cancelling_a_flow_asks_what_runs_to_end(shop: Shop) -> None:
    flow = shop.app.flow("x")
    done = flow.add(shop.add.draft(1))
    running = flow.add(shop.wait.draft(), after=[done])
    waiting = flow.add(shop.note.draft("never"), after=[running])
    handle = await flow.aenqueue()
    await in_state(running.handle, State.RUNNING)
    await handle.acancel()
    await in_state(running.handle, State.CANCELLED)
    assert await states(flow, done, waiting) == [State.COMPLETED, State.CANCELLED]
    assert await heard_soon(shop.app, flow)
    assert await shop.app.store.records("flow:") == {}


async def heard_soon(app: Windlass, flow: Flow) -> bool:
    await until(lambda: heard(app, f"flow:{flow.id}"))
    return True
