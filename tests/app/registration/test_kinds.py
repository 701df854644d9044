"""A kind can be declared apart from its handler; producers and workers meet on the declaration."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest

from tests.support.app_on_store import Bed, in_state, serving
from windlass import PIPELINE, ConfigError, Context, Kind, PayloadInvalid, State, SyncContext


@dataclass
class Email:
    to: str
    copies: int = 1


class Parcel(msgspec.Struct):
    weight: int


class Order(TypedDict):
    number: int


SEND_EMAIL = Kind("send_email", Email)
SEND_PARCEL = Kind("send_parcel", Parcel)
TAKE_ORDER = Kind("take_order", Order)
COUNT = Kind("count", int)


def test_a_producer_that_does_not_know_the_handler_enqueues_by_the_kind(bed: Bed) -> None:
    store = bed.store()
    producer, consumer = bed.app(store=store), bed.app(store=store)

    @consumer.job(SEND_EMAIL, queue="mail")
    async def send_email(email: Email) -> str:
        assert isinstance(email, Email)
        return f"{email.to} x{email.copies}"

    async def main() -> None:
        by_kind = await producer.producer(SEND_EMAIL).aenqueue(Email("anna", copies=2))
        by_handler = await send_email.aenqueue(Email("bert"))
        async with serving(consumer):
            assert await by_kind.aresult("60s") == "anna x2"
            assert await by_handler.aresult("60s") == "bert x1"

    asyncio.run(main())
    assert "send_email" not in producer.registry


def test_handlers_of_a_kind_may_take_the_context_and_may_be_sync(bed: Bed) -> None:
    app = bed.app()

    @app.job(SEND_PARCEL)
    def send_parcel(ctx: SyncContext, parcel: Parcel) -> str:
        return f"{ctx.kind} {parcel.weight}"

    @app.job(TAKE_ORDER)
    async def take_order(ctx: Context, order: Order) -> str:
        return f"{ctx.kind} {order['number']}"

    @app.job(COUNT)
    def count(number: int) -> int:
        return number + 1

    async def main() -> None:
        async with serving(app):
            parcel = await app.producer(SEND_PARCEL).aenqueue(Parcel(weight=3))
            assert await parcel.aresult("60s") == "send_parcel 3"
            order = await app.producer(TAKE_ORDER).aenqueue({"number": 7})
            assert await order.aresult("60s") == "take_order 7"
            assert await (await app.producer(COUNT).aenqueue(1)).aresult("60s") == 2
            assert await (await count.aenqueue(5)).aresult("60s") == 6

    asyncio.run(main())


def test_a_payload_of_another_type_is_refused_at_enqueue(bed: Bed) -> None:
    producer: Any = bed.app().producer(SEND_PARCEL)
    with pytest.raises(PayloadInvalid, match="weight"):
        producer.draft({"weight": "heavy"})


def test_a_payload_that_is_missing_or_one_too_many_is_a_type_error(bed: Bed) -> None:
    app = bed.app()

    @app.job(COUNT)
    def count(number: int) -> int:
        return number

    by_kind: Any = app.producer(COUNT)
    by_handler: Any = count
    for producer in (by_kind, by_handler):
        with pytest.raises(TypeError, match="count"):
            producer.draft()
        with pytest.raises(TypeError, match="count"):
            producer.draft(1, 2)


def test_a_handler_of_a_kind_takes_the_payload_and_nothing_else(bed: Bed) -> None:
    job: Any = bed.app().job(SEND_EMAIL)

    async def two(email: Email, urgent: bool) -> None: ...

    async def none(ctx: Context) -> None: ...

    for function in (two, none):
        with pytest.raises(ConfigError, match="must take one argument, its payload"):
            job(function)


def test_a_kind_shows_what_it_is_and_refuses_a_name_that_is_none() -> None:
    assert repr(SEND_EMAIL) == "Kind('send_email', Email)"
    with pytest.raises(ValueError, match="a kind must have a name"):
        Kind(" ", Email)


RESERVED = r"must not begin with 'windlass\.', got 'windlass\.flow'; .* like 'my\.flow'"


def test_names_of_windlass_itself_are_refused(bed: Bed) -> None:
    """Prevents an app whose flows, or pipelines, are run by a handler of its own."""
    app = bed.app()
    job: Any = app.job

    async def work(email: Email) -> None: ...

    async def many(emails: list[Email]) -> None: ...

    with pytest.raises(ValueError, match=RESERVED):
        Kind("windlass.flow", Email)
    for options in ({"name": "windlass.flow"}, {"aliases": ["windlass.flow"]}):
        with pytest.raises(ValueError, match=RESERVED):
            job(**options)(work)
    with pytest.raises(ValueError, match=RESERVED):
        app.job(name="windlass.flow", batch_size=2)(many)
    with pytest.raises(ValueError, match=r"got 'windlass\.pipeline'"):
        job(PIPELINE)(lambda pipeline: None)
    with pytest.raises(ValueError, match=RESERVED):
        app.pipeline("windlass.flow", ["work"])
    assert list(app.registry) == []


def test_a_job_of_an_unserved_kind_waits(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def other() -> None: ...

    async def main() -> None:
        async with serving(app):
            stranger = await app.producer(SEND_PARCEL).aenqueue(Parcel(weight=1))
            for _ in range(5):
                await (await other.aenqueue()).aresult("60s")
            assert (await in_state(stranger, State.PENDING)).attempt == 0

    asyncio.run(main())
