"""Handlers take and return protobuf messages, on every store, wherever arguments can be."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

from tests.core.payloads.protobuf.shop_messages import New, Old, SendEmail, SendSms
from tests.support.app_on_store import Bed, in_state, log_lines, on_embedded_stores, serving
from windlass import (
    ConfigError,
    Context,
    Handle,
    Job,
    Kind,
    PayloadInvalid,
    Protobuf,
    ResultError,
    Secret,
    State,
    Windlass,
)

KEY = f"k:{b64encode(bytes(32)).decode()}"
BINARY = Protobuf(binary=True)
EMAIL = SendEmail(to_address="ada@example.org", tries=3, html="<p>")
SEND_EMAIL = Kind("send_email", SendEmail, key="to_address")
SEND_BYTES = Kind("send_bytes", SendEmail, protobuf=BINARY)
OldEmail, NewEmail = Old["SendEmail"], New["SendEmail"]


@dataclass
class Order:
    number: int
    email: Annotated[SendEmail, BINARY]
    sms: SendSms | None = None


async def completed(app: Windlass, *handles: Handle[Any]) -> list[Job]:
    async with serving(app):
        return [await in_state(handle, State.COMPLETED) for handle in handles]


@pytest.mark.stores("sqlite", "postgres", "redis")
def test_a_message_reaches_its_handler_and_its_result_comes_back_in_either_form(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def as_json(email: SendEmail) -> SendEmail:
        assert type(email) is SendEmail
        return SendEmail(to_address=email.to_address, tries=email.tries + 1)

    @app.job
    def as_bytes(email: Annotated[SendEmail, BINARY]) -> Annotated[SendEmail, BINARY]:
        return SendEmail(to_address=email.to_address, tries=email.tries + 1)

    async def main() -> None:
        handles = [await as_json.aenqueue(EMAIL), await as_bytes.aenqueue(email=EMAIL)]
        plain, binary = await completed(app, *handles)
        assert json.loads(plain.payload)["email"]["to_address"] == "ada@example.org"
        assert json.loads(plain.result or b"") == {"to_address": "ada@example.org", "tries": "4"}
        assert json.loads(binary.payload)["email"].keys() == {"$protobuf", "data"}
        assert json.loads(binary.result or b"").keys() == {"$protobuf", "data"}
        for handle in handles:
            assert await handle.aresult() == SendEmail(to_address="ada@example.org", tries=4)

    asyncio.run(main())


@pytest.mark.parametrize("kind", [SEND_EMAIL, SEND_BYTES], ids=["JSON", "binary"])
@on_embedded_stores
def test_a_message_is_the_payload_of_a_kind(bed: Bed, kind: Kind[Any]) -> None:
    app = bed.app()
    seen: list[Any] = []

    @app.job(kind)
    async def send(email: SendEmail) -> None:
        seen.append(email)

    async def main() -> None:
        (job,) = await completed(app, await app.aenqueue(kind, EMAIL))
        assert ("$protobuf" in json.loads(job.payload)) is (kind is SEND_BYTES)
        assert job.key == ("" if kind is SEND_BYTES else "ada@example.org")

    asyncio.run(main())
    assert seen == [EMAIL]


def test_the_form_of_a_kind_is_for_messages_alone() -> None:
    assert repr(SEND_BYTES) == "Kind('send_bytes', SendEmail)"
    with pytest.raises(ConfigError, match=r"must annotate a class of messages, got int"):
        Windlass("memory://").producer(Kind("count", int, protobuf=BINARY))


def test_messages_are_in_dataclasses_lists_and_batches(bed: Bed) -> None:
    app = bed.app()
    order = Order(7, EMAIL, SendSms(number="1"))
    seen: list[Any] = []

    @app.job
    async def take(order: Order, copies: list[SendEmail]) -> Order:
        seen.extend((order, *copies))
        return order

    @app.job(batch_size=2, batch_timeout="10ms")
    async def many(emails: list[SendEmail]) -> None:
        seen.extend(emails)

    async def main() -> None:
        handle = await take.aenqueue(order, [EMAIL, EMAIL])
        await completed(app, handle, await many.aenqueue(EMAIL))
        assert await handle.aresult() == order

    asyncio.run(main())
    assert seen == [order, EMAIL, EMAIL, EMAIL]


def test_a_message_in_a_secret_is_encrypted_and_masked(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    app = bed.app(encryption_keys=KEY)
    hidden = SendEmail(to_address="hidden-address", files=[{"name": "hidden-file"}])

    @app.job(max_retries=0)
    async def send(
        email: Secret[SendEmail], copy: Secret[Annotated[SendEmail, BINARY]]
    ) -> Secret[SendEmail]:
        if copy.reveal() == EMAIL:
            raise RuntimeError(f"failed for {email.reveal().to_address} {email.reveal().files[0]}")
        return email

    async def main() -> None:
        good = await send.aenqueue(Secret(hidden), Secret(hidden))
        bad = await send.aenqueue(Secret(hidden), Secret(EMAIL))
        async with serving(app):
            done = await in_state(good, State.COMPLETED)
            dead = await in_state(bad, State.DEAD)
        assert await good.aresult() == Secret(hidden)
        for job in (done, dead):
            assert b"hidden" not in job.payload + (job.result or b"")
            assert b"$protobuf" not in job.payload
        assert dead.error is not None
        assert "failed for ***" in dead.error.message
        assert "hidden" not in str(dead.error) + dead.error.traceback
        assert "hidden" not in str(log_lines(caplog, "job.dead"))

    asyncio.run(main())


def test_a_message_is_the_result_of_a_step_and_a_chunk_of_a_stream(bed: Bed) -> None:
    app = bed.app()
    made: list[str] = []

    def make(to: str) -> Annotated[SendEmail, BINARY]:
        made.append(to)
        return SendEmail(to_address=to)

    @app.job
    async def write(ctx: Context, to: str) -> str:
        email = await ctx.step("make", make, to)
        await ctx.stream(email)
        if ctx.attempt == 1:
            raise RuntimeError("once more")
        return str(email.to_address)

    async def main() -> None:
        handle = await write.using(max_retries=1).aenqueue("ada")
        async with serving(app):
            await in_state(handle, State.SCHEDULED, State.COMPLETED)
            if await handle.astate() is State.SCHEDULED:
                await app.control.aretry(handle.id)
            job = await in_state(handle, State.COMPLETED)
        assert "$protobuf" in "".join(job.steps)
        chunks = [each async for each in handle.astream(SendEmail)]
        assert SendEmail(to_address="ada") in chunks

    asyncio.run(main())
    assert made == ["ada"]


def test_a_payload_that_is_no_such_message_makes_the_job_dead_with_the_reason(bed: Bed) -> None:
    producer, app = bed.app(), bed.app()
    app.store = producer.store

    @app.job
    async def send(email: SendEmail) -> None: ...

    async def main() -> None:
        wrong = {"email": {"files": [{"parts": "text"}]}}
        handle = await producer.producer("send").aenqueue(wrong)
        async with serving(app):
            job = await in_state(handle, State.DEAD)
        assert job.error is not None
        assert "'email.files[0].parts': an array is expected, got text" in job.error.message

    asyncio.run(main())


def test_another_value_in_place_of_a_message_is_refused_when_it_is_enqueued(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def send(email: SendEmail) -> None: ...

    anything: Any = send
    for wrong in (SendSms(number="1"), "text", {"tries": "many"}, None, 5):
        with pytest.raises(PayloadInvalid, match="'email"):
            anything.draft(wrong)
    assert anything.draft({"tries": 3}).job.payload == b'{"email":{"tries":3}}'
    for wrong in (EMAIL, "text", [EMAIL], None):
        with pytest.raises(PayloadInvalid):
            app.producer("send").draft(wrong)


def test_a_result_of_another_message_is_not_stored_as_the_declared_one(bed: Bed) -> None:
    app = bed.app(max_retries=0)

    @app.job
    async def send() -> SendEmail:
        return SendSms(number="1")

    async def main() -> None:
        handle = await send.aenqueue()
        async with serving(app):
            job = await in_state(handle, State.DEAD)
        assert job.error is not None
        assert "it must be a shop.SendEmail, got a shop.SendSms" in job.error.message

    asyncio.run(main())


def test_a_result_that_no_longer_fits_its_message_is_an_error_of_the_result(bed: Bed) -> None:
    app = bed.app()

    @app.job
    async def send() -> dict[str, str]:
        return {"to_address": "ada", "tries": "many"}

    async def main() -> None:
        handle = await send.aenqueue()
        await completed(app, handle)
        typed: Handle[Any] = Handle(app, handle.id, SendEmail)
        with pytest.raises(ResultError, match="does not match the return type"):
            await typed.aresult()

    asyncio.run(main())


@pytest.mark.stores("sqlite", "postgres", "redis")
@pytest.mark.parametrize("binary", [False, True], ids=["JSON", "binary"])
@pytest.mark.parametrize(
    ("writer", "reader"), [(NewEmail, OldEmail), (OldEmail, NewEmail)], ids=["newer", "older"]
)
def test_a_producer_of_another_release_is_understood_and_its_row_kept(
    bed: Bed, writer: Any, reader: Any, binary: bool
) -> None:
    producer, app = bed.app(), bed.app()
    app.store = producer.store
    kinds = [Kind("send", each, protobuf=Protobuf(binary=binary)) for each in (writer, reader)]
    seen: list[Any] = []

    @app.job(kinds[1])
    async def send(email: Any) -> None:
        seen.append(email)

    async def main() -> None:
        email = writer(to="ada", color=2, **{"subject": "hi"} if writer is NewEmail else {})
        handle = await producer.aenqueue(kinds[0], email)
        before = (await handle.ainfo()).payload
        (job,) = await completed(app, handle)
        assert json.loads(job.payload) == json.loads(before)
        assert producer.producer(kinds[0])._codec.decode(job.payload) == email

    asyncio.run(main())
    (read,) = seen
    assert type(read) is reader
    assert (read.to, read.color) == ("ada", 2)


def test_the_base_of_all_messages_is_no_argument_and_no_result(bed: Bed) -> None:
    from google.protobuf.message import Message

    app = bed.app()

    async def takes(message: Message) -> None: ...

    async def returns() -> Message:
        return Message()

    takes.__annotations__ = {"message": Message, "return": None}
    returns.__annotations__ = {"return": Message}
    for function in (takes, returns):
        with pytest.raises(ConfigError, match="got Message, the base of all of them"):
            app.job(function)


def test_jobs_are_found_by_the_fields_of_their_messages(bed: Bed) -> None:
    app = bed.app()

    @app.job(unique=lambda email: email.to_address)
    async def send(email: SendEmail) -> None: ...

    async def main() -> None:
        handle = await send.aenqueue(EMAIL)
        assert (await send.aenqueue(EMAIL)).is_duplicate
        found = await app.jobs.afind(search="payload.email.to_address:ada@example.org")
        assert [job.id for job in found.jobs] == [handle.id]

    asyncio.run(main())
