"""`unique=`: which enqueue adds a job, which one finds it there, and what that does to it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import psycopg
import pytest

from tests.support.app_on_store import STORES, Bed, Clock, in_state, on_embedded_stores, serving
from windlass import ConfigError, Context, Kind, PayloadInvalid, State, Unique, Windlass

pytestmark = pytest.mark.stores(*STORES)


@dataclass
class Invoice:
    customer: int
    month: str = "may"


def test_a_kind_may_be_unique_by_an_argument_or_by_a_function(bed: Bed) -> None:
    app = bed.app()

    @app.job(unique="invoice")
    async def pay(invoice: int, note: str = "") -> None: ...

    @app.job(unique=lambda customer, month, **_: f"{customer}/{month}")
    async def bill(customer: int, month: str = "may", draft: bool = False) -> None: ...

    async def main() -> None:
        first = await pay.aenqueue(1)
        again = await pay.aenqueue(invoice=1, note="again")
        assert (again.id, again.is_duplicate) == (first.id, True)
        assert (await first.ainfo()).unique_key == "pay:1"
        assert not (await pay.aenqueue(2)).is_duplicate
        first = await bill.aenqueue(1)
        assert (await bill.aenqueue(1, "may", draft=True)).id == first.id
        assert not (await bill.aenqueue(1, "june")).is_duplicate

    asyncio.run(main())


def test_a_key_that_is_none_holds_nothing(bed: Bed) -> None:
    app = bed.app()

    @app.job(unique="invoice")
    async def pay(invoice: int | None = None) -> None: ...

    async def main() -> None:
        for _ in range(2):
            handle = await pay.aenqueue()
            assert not handle.is_duplicate
            assert (await handle.ainfo()).unique_key is None

    asyncio.run(main())


def test_a_kind_declared_by_itself_is_unique_for_its_producers_and_its_handler(bed: Bed) -> None:
    app = bed.app()
    pay = Kind("pay", Invoice, unique=Unique("customer", on_duplicate="replace"))

    @app.job(pay)
    async def handle_pay(invoice: Invoice) -> None: ...

    async def main() -> None:
        first = await app.producer(pay).aenqueue(Invoice(1))
        again = await handle_pay.aenqueue(Invoice(1, "june"))
        assert (again.id, again.is_duplicate) == (first.id, True)
        assert b"june" in (await first.ainfo()).payload

    asyncio.run(main())


def test_a_class_may_be_unique_by_a_field(bed: Bed) -> None:
    app = bed.app()

    @dataclass
    class Pay:
        invoice: int
        times: int = 1

        async def execute(self, ctx: Context) -> None: ...

    pay = app.job(unique="invoice")(Pay)

    async def main() -> None:
        first = await pay.aenqueue(1)
        assert (await pay.aenqueue(1, times=2)).id == first.id

    asyncio.run(main())


def test_a_key_of_its_own_stands_instead_of_the_argument_and_is_held_as_the_kind_says(
    bed: Bed,
) -> None:
    app = bed.app()

    @app.job(unique=Unique("n", scope="global", on_duplicate="replace"))
    async def note(n: int) -> None: ...

    async def main() -> None:
        first = await note.using(unique="k").aenqueue(1)
        again = await note.using(unique="k").aenqueue(2)
        assert again.id == first.id
        job = await first.ainfo()
        assert (job.payload, job.unique_key) == (b'{"n":2}', ":global:k")
        kept = note.using(unique=Unique("k"))
        assert not (await kept.aenqueue(3)).is_duplicate, "in a scope of its own"
        assert (await kept.aenqueue(4)).is_duplicate

    asyncio.run(main())


def test_scopes_say_among_which_jobs_a_key_is_unique(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def one() -> None: ...

    @app.job
    async def two() -> None: ...

    async def main() -> None:
        queue, everywhere = Unique("k", scope="queue"), Unique("k", scope="global")
        first = await one.using(unique=queue).aenqueue()
        assert (await two.using(unique=queue).aenqueue()).id == first.id
        assert not (await two.using(unique=queue, queue="other").aenqueue()).is_duplicate
        first = await one.using(unique=everywhere).aenqueue()
        assert (await two.using(unique=everywhere, queue="other").aenqueue()).id == first.id

    asyncio.run(main())


def test_a_key_held_until_claimed_lets_the_next_job_in_while_the_first_runs(bed: Bed) -> None:
    app = bed.app()
    go, began = asyncio.Event(), asyncio.Event()
    ran: list[int] = []

    @app.job(unique=Unique("document", on_duplicate="replace"))
    async def index(document: int, version: int) -> None:
        began.set()
        await go.wait()
        ran.append(version)

    async def main() -> None:
        async with serving(app):
            first = await index.aenqueue(1, version=1)
            await began.wait()
            second = await index.aenqueue(1, version=2)
            assert not second.is_duplicate
            go.set()
            await second.aresult("60s")
            await first.aresult("60s")
        assert sorted(ran) == [1, 2]

    asyncio.run(main())


def test_a_debounced_job_runs_once_with_the_last_arguments_when_it_is_quiet(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))
    ran: list[int] = []

    @app.job(unique=Unique("document", on_duplicate="supersede"))
    async def index(document: int, version: int) -> None:
        ran.append(version)

    async def main() -> None:
        async with serving(app):
            handle = None
            for version in range(5):
                handle = await index.using(delay="5s").aenqueue(1, version)
                clock.advance(seconds=3)
            assert handle is not None
            assert ran == []
            assert (await handle.ainfo()).due_at == clock.now + timedelta(seconds=2)
            clock.advance(seconds=2)
            await handle.aresult("60s")
        assert ran == [4]

    asyncio.run(main())


def test_a_key_for_a_time_is_held_by_a_job_that_has_ended(bed: Bed) -> None:
    clock = Clock()
    app = bed.app(store=bed.store(clock=clock))

    @app.job(unique=Unique("day", until="24h"))
    async def digest(day: str) -> str:
        return day

    async def main() -> None:
        async with serving(app):
            first = await digest.aenqueue("monday")
            assert await first.aresult("60s") == "monday"
            again = await digest.aenqueue("monday")
            assert (again.id, again.is_duplicate) == (first.id, True)
            assert await again.aresult("60s") == "monday"
            clock.advance(hours=24)
            assert not (await digest.aenqueue("monday")).is_duplicate

    asyncio.run(main())


@on_embedded_stores
def test_wrong_declarations_are_refused_at_import(bed: Bed) -> None:
    app = bed.app()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"unique": "nope"}, "no argument 'nope'"),
        ({"unique": ""}, "key must be the name of an argument or a function"),
        ({"unique": Unique("nope")}, "no argument 'nope'"),
        ({"unique": 7}, "text or a function"),
        ({"idempotency_key": "nope"}, "no argument 'nope'"),
        ({"idempotent": True}, 'idempotent must be "result"'),
        ({"idempotent": "yes"}, 'idempotent must be "result"'),
    ]
    for options, reason in wrong:

        async def pay(invoice: int) -> None: ...

        with pytest.raises(ConfigError, match=reason):
            app.job(**options)(pay)
    assert list(app.registry) == []
    with pytest.raises(ConfigError, match="text or a function"):
        Kind("pay", Invoice, unique=7)  # type: ignore[arg-type]


@on_embedded_stores
def test_wrong_keys_are_refused_at_enqueue_and_nothing_is_added(bed: Bed) -> None:
    app = bed.app()

    @app.job(unique=lambda invoice, **_: 1 / invoice)
    async def pay(invoice: float, note: str = "") -> None: ...

    async def main() -> None:
        with pytest.raises(PayloadInvalid) as caught:
            await pay.aenqueue("no number")  # type: ignore[arg-type]
        assert caught.value.field == "invoice", "a wrong argument is named as such"
        with pytest.raises(PayloadInvalid, match="unique key failed: ZeroDivisionError"):
            await pay.aenqueue(0)
        with pytest.raises(PayloadInvalid):
            await app.aenqueue_many([pay.draft(1), pay.draft(0)])
        for wrong in ("", " ", "x" * 201, "a\n", Unique("x" * 201), Unique(lambda: "k")):
            with pytest.raises(ValueError, match="unique key"):
                pay.using(unique=wrong)
        with pytest.raises(ValueError, match="idempotency key"):
            pay.using(idempotency_key="")
        with pytest.raises(ValueError, match="idempotency key"):
            pay.using(headers={"idempotency-key": "x" * 201})
        assert await app.store.counts() == []

    asyncio.run(main())


@pytest.mark.parametrize("bed", ["postgres"], indirect=True)
def test_a_duplicate_in_a_transaction_changes_the_job_with_the_commit(bed: Bed) -> None:
    """And with a rollback, not at all."""
    app: Windlass = bed.app()

    @app.job(unique=Unique("document", on_duplicate="supersede"))
    async def index(document: int, version: int) -> None: ...

    first = index.using(delay="1h").enqueue(1, version=1)
    before = first.info()
    for version, end in ((2, "rollback"), (3, "commit")):
        with psycopg.connect(bed.url) as conn:
            again = index.using(tx=conn, delay="2h").enqueue(1, version=version)
            assert (again.id, again.is_duplicate) == (first.id, True)
            assert first.info() == before
            getattr(conn, end)()
        after = first.info()
        assert (after.payload == before.payload) == (end == "rollback")
    assert b"3" in after.payload
    assert after.due_at > before.due_at


def test_a_key_is_free_when_its_job_was_cancelled_or_is_dead(bed: Bed) -> None:
    app = bed.app()

    @app.job(unique="n", max_retries=0)
    async def fail(n: int) -> None:
        raise ValueError("no")

    async def main() -> None:
        first = await fail.aenqueue(1)
        await first.acancel()
        second = await fail.aenqueue(1)
        assert not second.is_duplicate
        async with serving(app):
            await in_state(second, State.DEAD)
        assert not (await fail.aenqueue(1)).is_duplicate

    asyncio.run(main())
