"""Flows: jobs that wait for each other, from the enqueue to the last of them, on every store."""

from __future__ import annotations

import asyncio
import re
from datetime import date
from typing import Any

import psycopg
import pytest

from tests.app.workflows.flow_shop import Shop, on_a_shop, on_an_idle_shop, states
from tests.support.app_on_store import (
    Bed,
    in_state,
    on_embedded_stores,
    serving,
    serving_in_a_thread,
    until,
)
from windlass import (
    After,
    CalledFromEventLoop,
    Context,
    FlowInvalid,
    FlowResult,
    JobCancelled,
    Node,
    State,
    SyncContext,
    UnknownJob,
)
from windlass.core.jobs.ids import flow_of

pytestmark = pytest.mark.stores("postgres")
ENDED = (State.COMPLETED, State.CANCELLED, State.DEAD)


# -- graphs ----------------------------------------------------------------------------------------


@on_a_shop
async def test_a_chain_hands_results_on(shop: Shop) -> None:
    chain = shop.app.chain(shop.add.draft(1), shop.total.draft(), shop.total.draft())
    handle = await chain.aenqueue()
    assert await handle.aresult("60s") == FlowResult(completed=3)
    assert handle.id == chain.id


@on_a_shop
async def test_a_fan_in_gets_the_results_in_the_order_of_its_parents(shop: Shop) -> None:
    flow = shop.app.flow("sums")
    one = flow.add(shop.add.draft(1))
    many = [flow.add(shop.add.draft(number), after=[one]) for number in range(10, 30)]
    flow.add(shop.note.draft("all"), after=[many[3], one, *many[7:2:-1][:-1]])
    total = flow.add(shop.total.draft(), after=many)
    await (await flow.aenqueue()).aresult("60s")
    assert shop.noted == [("all", [13, 1, 17, 16, 15, 14])]
    assert await total.handle.aresult() == sum(range(10, 30))


@on_a_shop
async def test_a_group_ends_in_one_job(shop: Shop) -> None:
    group = shop.app.group([shop.add.draft(n) for n in range(5)], then=shop.note.draft("then"))
    assert await (await group.aenqueue()).aresult("60s") == FlowResult(completed=6)
    assert shop.noted == [("then", [0, 1, 2, 3, 4])]


@on_a_shop
async def test_a_job_waits_until_its_parents_have_ended(shop: Shop) -> None:
    flow = shop.app.flow("x")
    first = flow.add(shop.wait.draft())
    second = flow.add(shop.note.draft("second"), after=[first])
    handle = await flow.aenqueue()
    await in_state(first.handle, State.RUNNING)
    parked = await second.handle.ainfo()
    assert (parked.state, parked.waiting_for) == (State.SCHEDULED, f"flow:{flow.id}:2")
    assert flow_of(parked.id) == flow.id == parked.flow
    shop.gate.set()
    await handle.aresult("60s")
    assert shop.noted == [("second", [1])]


@on_a_shop
async def test_retries_of_a_member_are_its_own_affair(shop: Shop) -> None:
    handle = await shop.app.chain(shop.stubborn.draft(), shop.note.draft("after")).aenqueue()
    assert await handle.aresult("60s") == FlowResult(completed=2)
    assert shop.noted == [("after", [2])]


@on_a_shop
async def test_a_member_may_be_due_later(shop: Shop) -> None:
    flow = shop.app.flow("x")
    first = flow.add(shop.add.draft(1))
    later = flow.add(shop.note.using(delay="1h").draft("later"), after=[first])
    await flow.aenqueue()
    await until(lambda: freed(later))
    assert await states(flow, later) == [State.SCHEDULED]


async def freed(node: Node[Any]) -> bool:
    return (await node.handle.ainfo()).waiting_for is None


@on_a_shop
async def test_a_flow_may_be_enqueued_twice_and_is_enqueued_once(shop: Shop) -> None:
    flow = shop.app.group([shop.add.draft(number) for number in range(3)])
    handle = await flow.aenqueue()
    await handle.aresult("60s")
    again = await flow.aenqueue()
    assert again.id == handle.id
    assert await again.aresult("60s") == FlowResult(completed=3)


def test_a_flow_is_built_in_blocking_code_too(bed: Bed) -> None:
    shop = Shop(bed.app())
    with serving_in_a_thread(shop.app):
        handle = shop.app.chain(shop.add.draft(1), shop.total.draft()).enqueue()
        assert handle.result("60s") == FlowResult(completed=2)
    flow = shop.app.chain(shop.add.draft(1))

    async def main() -> None:
        with pytest.raises(CalledFromEventLoop):
            flow.enqueue()

    asyncio.run(main())


@on_embedded_stores
def test_a_worker_hears_at_once_of_what_it_settled(bed: Bed) -> None:
    """Without that, each job of a chain would wait for half a second for the next look."""
    shop = Shop(bed.app())

    async def main() -> None:
        async with serving(shop.app):
            handle = await shop.app.chain(*[shop.total.draft() for _ in range(40)]).aenqueue()
            await handle.aresult("15s")

    asyncio.run(main())


@on_embedded_stores
def test_a_burst_works_off_a_whole_flow(bed: Bed) -> None:
    async def main() -> None:
        shop = Shop(bed.app())
        handle = await shop.app.chain(*[shop.total.draft() for _ in range(5)]).aenqueue()
        await asyncio.wait_for(shop.app.arun_worker(burst=True), 60)
        assert await handle.astate() is State.COMPLETED

    asyncio.run(main())


@on_embedded_stores
def test_a_burst_hears_what_happened_before_it(bed: Bed) -> None:
    shop = Shop(bed.app())
    flow = shop.app.flow("x", on_failure="continue")
    first = flow.add(shop.add.draft(1))
    flow.add(shop.note.draft("after"), after=[first])

    async def main() -> None:
        handle = await flow.aenqueue()
        await shop.app.control.acancel(first.id)
        await asyncio.wait_for(shop.app.arun_worker(burst=True), 60)
        assert await handle.astate() is State.COMPLETED

    asyncio.run(main())


# -- results ---------------------------------------------------------------------------------------


@on_embedded_stores
def test_results_are_read_as_their_handlers_declare_them(bed: Bed) -> None:
    app, seen = bed.app(), []

    @app.job
    async def day() -> date:
        return date(2026, 3, 1)

    @app.job
    def in_a_thread(ctx: SyncContext) -> None:
        seen.extend(ctx.results())

    @app.job
    def wrongly(ctx: SyncContext) -> None:
        async def inside() -> None:
            with pytest.raises(CalledFromEventLoop, match="await ctx"):
                ctx.results()
            seen.append("refused")

        asyncio.run(inside())

    async def main() -> None:
        async with serving(app):
            await (await app.chain(day.draft(), in_a_thread.draft()).aenqueue()).aresult("60s")
            await (await app.chain(day.draft(), wrongly.draft()).aenqueue()).aresult("60s")

    asyncio.run(main())
    assert seen == [date(2026, 3, 1), "refused"]


@on_a_shop
async def test_a_job_after_nothing_has_no_results(shop: Shop) -> None:
    await (await shop.app.chain(shop.note.draft("first")).aenqueue()).aresult("60s")
    await (await shop.note.aenqueue("plain")).aresult("60s")
    assert shop.noted == [("first", []), ("plain", [])]


@on_a_shop
async def test_a_result_that_is_not_kept_any_more_is_named(shop: Shop) -> None:
    flow = shop.app.flow("x", on_failure="continue")
    dead = flow.add(shop.add.draft(-1))
    gate = flow.add(shop.wait.draft())
    after = flow.add(shop.note.using(max_retries=0).draft(), after=[dead, gate])
    await flow.aenqueue()
    await in_state(dead.handle, State.DEAD)
    assert await shop.app.control.apurge([dead.id])
    shop.gate.set()
    job = await in_state(after.handle, State.DEAD)
    assert job.error is not None
    assert "is no longer kept; WINDLASS_RETENTION" in job.error.message


# -- what is refused -------------------------------------------------------------------------------


@on_embedded_stores
def test_invalid_flows_are_refused(bed: Bed) -> None:
    shop = Shop(bed.app())
    flow, other = shop.app.flow("x"), shop.app.flow("y")
    elsewhere = other.add(shop.add.draft(1))
    with pytest.raises(FlowInvalid, match=r"Node\('add', 1\) is not in the flow 'x'"):
        flow.add(shop.add.draft(1), after=[elsewhere])
    with pytest.raises(FlowInvalid, match="'add' depends on a job twice; name each parent once"):
        other.add(shop.add.draft(1), after=[elsewhere, elsewhere])
    with pytest.raises(FlowInvalid, match="has a unique key, so it might not be added"):
        flow.add(shop.add.using(unique="one").draft(1))
    with pytest.raises(FlowInvalid, match="has a unique key, so it might not be added"):
        flow.add(shop.add.draft(1), undo=shop.add.using(unique="one").draft(1))
    with pytest.raises(FlowInvalid, match="has a unique key, so it might not be added"):
        flow.on_finished(shop.add.using(unique="one").draft(1))
    with pytest.raises(FlowInvalid, match="leave out `expires` for an undo"):
        flow.add(shop.add.draft(1), undo=shop.add.using(expires="1h").draft(1))
    wrong: Any = "panic"
    with pytest.raises(FlowInvalid, match="one of cancel, continue, compensate, got 'panic'"):
        flow.add(shop.add.draft(1), on_failure=wrong)
    with pytest.raises(FlowInvalid, match="one of cancel"):
        After(elsewhere, on_failure=wrong)
    with pytest.raises(FlowInvalid, match="has no jobs"):
        flow.enqueue()
    with pytest.raises(ValueError, match="a flow must have a name"):
        shop.app.flow("")


@on_an_idle_shop
async def test_nothing_is_added_to_a_flow_that_was_enqueued(shop: Shop) -> None:
    flow = shop.app.flow("x")
    with pytest.raises(FlowInvalid, match="has no jobs"):
        await flow.aenqueue()
    first = flow.add(shop.add.draft(1))
    await flow.aenqueue()
    told = "'x' is already enqueued, so 'add' cannot be added; add it before enqueue()"
    with pytest.raises(FlowInvalid, match=re.escape(told)):
        flow.add(shop.add.draft(2), after=[first])
    with pytest.raises(FlowInvalid, match="already enqueued, so 'add' cannot be added"):
        flow.on_finished(shop.add.draft(2))
    assert (await flow.aenqueue()).id == flow.id, "it may be enqueued again as it is"


# -- in a transaction ------------------------------------------------------------------------------


@pytest.mark.parametrize("bed", ["postgres"], indirect=True)
def test_a_flow_is_there_at_the_commit_and_gone_at_the_rollback(bed: Bed) -> None:
    shop = Shop(bed.app())
    flow = shop.app.group([shop.add.draft(n) for n in range(3)], then=shop.total.draft())
    with psycopg.connect(bed.url) as db:
        flow.enqueue(tx=db)
        db.rollback()
        assert db.execute("SELECT count(*) FROM windlass.jobs").fetchone() == (0,)
        handle = flow.enqueue(tx=db)
        with pytest.raises(UnknownJob):
            handle.info()
        db.commit()

    async def main() -> None:
        async with serving(shop.app):
            assert await handle.aresult("60s") == FlowResult(completed=4)
            async with await psycopg.AsyncConnection.connect(bed.url) as db:
                second = await shop.app.chain(shop.add.draft(1)).aenqueue(tx=db)
            assert await second.aresult("60s") == FlowResult(completed=1)

    asyncio.run(main())


# -- many ------------------------------------------------------------------------------------------


many = pytest.mark.parametrize(
    "count", [1_200, pytest.param(10_000, marks=pytest.mark.long)], ids=["some", "many"]
)


@many
def test_a_fan_in_of_thousands_ends_once(bed: Bed, count: int) -> None:
    app = bed.app(store=bed.store(size=20_000) if bed.kind == "memory" else None)
    runs: list[int] = []

    @app.job
    async def part(number: int) -> int:
        return number

    @app.job
    async def join(ctx: Context) -> int:
        runs.append(1)
        return sum(await ctx.results())

    async def main() -> None:
        flow = app.flow("many")
        first = flow.add(part.draft(0))
        parts = [flow.add(part.draft(number), after=[first]) for number in range(count)]
        last = flow.add(join.draft(), after=parts)
        async with serving(app, concurrency=500):
            handle = await flow.aenqueue()
            assert await handle.aresult("60s") == FlowResult(completed=count + 2)
            assert await last.handle.aresult() == sum(range(count))

    asyncio.run(main())
    assert runs == [1]


@many
def test_thousands_are_cancelled_with_their_parent(bed: Bed, count: int) -> None:
    shop = Shop(bed.app(store=bed.store(size=20_000) if bed.kind == "memory" else None))

    async def main() -> None:
        flow = shop.app.flow("many")
        first = flow.add(shop.add.draft(-1))
        for _ in range(count):
            flow.add(shop.add.draft(1), after=[first])
        async with serving(shop.app):
            handle = await flow.aenqueue()
            with pytest.raises(JobCancelled, match=f"{count + 1:,} jobs did not complete"):
                await handle.aresult("60s")

    asyncio.run(main())
