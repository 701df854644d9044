"""The page shows messages that are stored as bytes, and has a form for them."""

from __future__ import annotations

import asyncio
import json
from typing import Annotated, Any
from uuid import UUID

from httpx import URL

from tests.core.payloads.protobuf.shop_messages import Record, SendEmail
from tests.web.test_payload_form import _inputs
from tests.web.viewing import viewer
from windlass import Job, PermanentError, Protobuf, Windlass
from windlass.web.payload_form.names import input_name

Email = Annotated[SendEmail, Protobuf(binary=True)]
EMAIL = SendEmail(
    to_address="ada@example.org", tries=2**60, color=1, html="swordfish", counts={"a": 1}
)


def _app() -> Windlass:
    app = Windlass("memory://", max_retries=0, redact=["html"])

    @app.job
    async def send_bytes(email: Email) -> Email:
        return email

    @app.job
    async def send_json(email: SendEmail) -> None:
        raise PermanentError("no")

    @app.job
    async def refuse_bytes(email: Email) -> None:
        raise PermanentError("no")

    @app.job
    async def record(record: Record) -> None: ...

    return app


async def _ended(app: Windlass, kind: str) -> UUID:
    handle = await app.producer(kind).aenqueue({"email": EMAIL})
    await app.arun_worker(burst=True)
    return handle.id


async def _job(app: Windlass, job_id: UUID) -> Job:
    job = await app.store.get(job_id)
    assert job is not None
    return job


def test_a_job_is_shown_with_the_fields_of_its_messages() -> None:
    async def main() -> None:
        app = _app()
        done = await _ended(app, "send_bytes")
        async with viewer(app.web()) as person:
            page = (await person.get(f"/jobs/{done}")).text
            facts = (await person.get(f"/api/v1/jobs/{done}")).json()
        assert "ada@example.org" in page
        for shown in (page, json.dumps(facts)):
            assert "$protobuf" not in shown
            assert "swordfish" not in shown
        wanted = {
            "to_address": "ada@example.org",
            "tries": str(2**60),
            "color": 1,
            "html": "***",
            "counts": {"a": 1},
        }
        assert facts["payload"] == {"email": wanted}
        assert facts["result"] == wanted

    asyncio.run(main())


def test_a_form_of_a_message_that_is_sent_as_it_is_shown_changes_nothing() -> None:
    async def main() -> None:
        app = _app()
        for kind in ("send_json", "refuse_bytes"):
            dead = await _ended(app, kind)
            async with viewer(app.web()) as person:
                asked = await person.get("/actions/edit-job", params={"id": str(dead)})
                assert "0 is NONE, 1 is RED." in asked.text
                inputs = _inputs(asked.text)
                answer = await person.post("/actions/edit-job", data=inputs)
                assert answer.status_code == 303
            decode = app.registry[kind].target.codec.decode
            assert decode((await _job(app, dead)).payload) == {"email": EMAIL}

    asyncio.run(main())


def test_an_error_in_a_message_names_its_field_in_the_form() -> None:
    async def main() -> None:
        app = _app()
        dead = await _ended(app, "send_json")
        async with viewer(app.web()) as person:
            asked = await person.get("/actions/edit-job", params={"id": str(dead)})
            typed = _inputs(asked.text) | {input_name("text", ("email", "tries")): "many"}
            refused = await person.post("/actions/edit-job", data=typed)
        assert refused.status_code == 422
        assert "int64 is expected" in refused.text

    asyncio.run(main())


def test_a_message_is_enqueued_by_its_form() -> None:
    async def main() -> None:
        app = _app()
        async with viewer(app.web()) as person:
            asked = await person.get("/actions/enqueue", params={"kind": "send_bytes"})
            assert asked.status_code == 200
            inputs = _inputs(asked.text)
            typed: dict[str, Any] = inputs | {
                input_name("text", ("email", "to_address")): "eve",
                input_name("choice", ("email", "color")): "1",
                input_name("text", ("email", "tries")): "7",
            }
            answer = await person.post("/actions/enqueue", data=typed)
            assert answer.status_code == 303, answer.text
            job = await _job(app, UUID(URL(answer.headers["location"]).path.rpartition("/")[2]))
        email = app.registry["send_bytes"].target.codec.decode(job.payload)["email"]
        assert email == SendEmail(to_address="eve", color=1, tries=7)

    asyncio.run(main())


def test_messages_of_protobuf_itself_have_a_form_too() -> None:
    async def main() -> None:
        app = _app()
        async with viewer(app.web()) as person:
            asked = await person.get("/actions/enqueue", params={"kind": "record"})
            typed = _inputs(asked.text) | {
                input_name("text", ("record", "at")): "2030-01-01T00:00:00Z",
                input_name("json", ("record", "extra")): '{"a": [1]}',
            }
            answer = await person.post("/actions/enqueue", data=typed)
            assert answer.status_code == 303, answer.text
            job = await _job(app, UUID(URL(answer.headers["location"]).path.rpartition("/")[2]))
        assert json.loads(job.payload) == {
            "record": {"at": "2030-01-01T00:00:00Z", "extra": {"a": [1]}}
        }

    asyncio.run(main())
