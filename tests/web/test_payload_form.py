"""The form of a payload on the page: what it shows, what it keeps, and what it refuses."""

from __future__ import annotations

import asyncio
import html
import json
import re
from typing import Any, Literal
from uuid import UUID

import httpx
import msgspec

from tests.web.viewing import of_role, viewer
from windlass import PermanentError, Secret, State, Windlass
from windlass.web.payload_form.names import input_name


class Address(msgspec.Struct):
    city: str
    zip: int | None = None


def _app(**settings: Any) -> Windlass:
    app = Windlass("memory://", max_retries=0, **settings)

    @app.job
    async def ship(
        to: str,
        count: int,
        size: Literal["s", "m"],
        address: Address,
        api_token: str = "",
        note: str | None = None,
    ) -> None:
        raise PermanentError("no")

    return app


async def _dead(app: Windlass, payload: dict[str, Any]) -> UUID:
    handle = await app.producer("ship").aenqueue(payload)
    await app.arun_worker(burst=True)
    return handle.id


PAYLOAD = {
    "to": "ada",
    "count": 2,
    "size": "m",
    "address": {"city": "Rome", "zip": None},
    "api_token": "swordfish",
}


def _inputs(page: str) -> dict[str, str]:
    """Return what a browser would send: the inputs, areas and selects of a form."""
    form = page[page.index("<form method") :]
    found = {}
    for tag in re.findall(r"<input [^>]*>", form):
        name, value = re.search(r' name="([^"]*)"', tag), re.search(r' value="([^"]*)"', tag)
        if name is not None:
            found[name[1]] = value[1] if value else ""
    for name, value in re.findall(
        r'<textarea [^>]*name="([^"]*)"[^>]*>\n?(.*?)</textarea>', form, re.DOTALL
    ):
        found[name] = value
    for name, options in re.findall(
        r'<select [^>]*name="([^"]*)"[^>]*>(.*?)</select>', form, re.DOTALL
    ):
        chosen = re.search(r'value="([^"]*)" selected', options)
        first = re.search(r'value="([^"]*)"', options)
        found[name] = (chosen or first)[1]  # type: ignore[index]
    return {html.unescape(name): html.unescape(value) for name, value in found.items()}


async def _payload(app: Windlass, job_id: UUID) -> Any:
    job = await app.store.get(job_id)
    assert job is not None
    return json.loads(job.payload)


async def _asked(person: httpx.AsyncClient, job_id: UUID, **query: str) -> str:
    answer = await person.get("/actions/edit-job", params={"id": str(job_id), **query})
    assert answer.status_code == 200
    return answer.text


def test_a_form_that_is_sent_as_it_is_shown_changes_nothing_in_the_payload() -> None:
    async def main() -> None:
        app = _app()
        dead = await _dead(app, PAYLOAD)
        async with viewer(app.web()) as person:
            inputs = _inputs(await _asked(person, dead))
            answer = await person.post("/actions/edit-job", data=inputs)
            assert answer.status_code == 303
        assert await _payload(app, dead) == PAYLOAD
        job = await app.store.get(dead)
        assert job is not None
        assert job.state is State.PENDING

    asyncio.run(main())


def test_an_admin_edits_a_masked_field_and_sees_it() -> None:
    async def main() -> None:
        app = _app()
        dead = await _dead(app, PAYLOAD)
        async with viewer(app.web()) as person:
            assert "swordfish" not in (await person.get(f"/jobs/{dead}")).text
            assert "swordfish" in await _asked(person, dead)
        async with viewer(app.web(access=of_role("admin", payloads=False))) as person:
            answer = await person.get("/actions/edit-job", params={"id": str(dead)})
            assert answer.status_code == 403
            assert "swordfish" not in answer.text

    asyncio.run(main())


def test_an_error_names_its_field_and_the_form_keeps_what_was_typed() -> None:
    async def main() -> None:
        app = _app()
        dead = await _dead(app, PAYLOAD)
        async with viewer(app.web()) as person:
            inputs = _inputs(await _asked(person, dead))
            typed = inputs | {
                input_name("number", ("count",)): "seven",
                input_name("text", ("to",)): "<grace>",
                input_name("text", ("note",)): "",
                input_name("if", ("note",)): "null",
                "reason": "a reason",
            }
            refused = await person.post("/actions/edit-job", data=typed)
            assert refused.status_code == 422
            again = _inputs(refused.text)
            assert {name: again[name] for name in typed} == typed
            marked = re.findall(r'<input id="([^"]*)"[^>]*aria-invalid="true"', refused.text)
            assert len(marked) == 1
            assert f'id="{marked[0]}-wrong">a number is expected' in refused.text
            city = input_name("text", ("address", "city"))
            typed |= {input_name("number", ("count",)): "3", city: ""}
            typed[input_name("json", ("address", "zip"))] = ""
            assert await _payload(app, dead) == PAYLOAD

    asyncio.run(main())


def test_a_value_that_the_handler_s_types_refuse_is_shown_at_its_field() -> None:
    async def main() -> None:
        app = _app()
        dead = await _dead(app, PAYLOAD)
        async with viewer(app.web()) as person:
            inputs = _inputs(await _asked(person, dead))
            zip_code = input_name("number", ("address", "zip"))
            refused = await person.post("/actions/edit-job", data=inputs | {zip_code: "1.5"})
            assert refused.status_code == 422
            (marked,) = re.findall(r'<input id="[^"]*" name="([^"]*)"[^>]*aria-inv', refused.text)
            assert marked == zip_code
        assert await _payload(app, dead) == PAYLOAD

    asyncio.run(main())


def test_fields_that_the_handler_does_not_know_are_kept_and_refused_with_their_name() -> None:
    async def main() -> None:
        app = _app()
        dead = await _dead(app, PAYLOAD)
        await app.control.aredrive_with(dead, json.dumps({**PAYLOAD, "old": 1}).encode())
        await app.arun_worker(burst=True)
        async with viewer(app.web()) as person:
            inputs = _inputs(await _asked(person, dead))
            assert json.loads(inputs[input_name("rest", ())]) == {"old": 1}
            refused = await person.post("/actions/edit-job", data=inputs)
            assert refused.status_code == 422
            assert "unknown field" in refused.text
            assert "old" in refused.text
            answer = await person.post(
                "/actions/edit-job", data=inputs | {input_name("rest", ()): ""}
            )
            assert answer.status_code == 303
        assert await _payload(app, dead) == PAYLOAD

    asyncio.run(main())


def test_a_payload_may_be_edited_as_json_and_what_was_typed_is_kept() -> None:
    async def main() -> None:
        app = _app()
        dead = await _dead(app, PAYLOAD)
        async with viewer(app.web()) as person:
            assert "as=json" in await _asked(person, dead)
            raw = await _asked(person, dead, **{"as": "json"})
            inputs = _inputs(raw)
            assert json.loads(inputs["payload"]) == PAYLOAD
            assert "Edit as a form" in raw
            refused = await person.post("/actions/edit-job", data=inputs | {"payload": '{"to": 1}'})
            assert refused.status_code == 422
            assert _inputs(refused.text)["payload"] == '{"to": 1}'
            done = await person.post(
                "/actions/edit-job", data=inputs | {"payload": json.dumps({**PAYLOAD, "count": 9})}
            )
            assert done.status_code == 303
        assert await _payload(app, dead) == {**PAYLOAD, "count": 9}

    asyncio.run(main())


def test_a_kind_without_a_handler_here_is_edited_as_json() -> None:
    async def main() -> None:
        app = _app()
        dead = await _dead(app, PAYLOAD)
        other = Windlass("memory://")
        other._store = app.store
        async with viewer(other.web()) as person:
            inputs = _inputs(await _asked(person, dead))
            assert json.loads(inputs["payload"]) == PAYLOAD

    asyncio.run(main())


def test_a_job_is_enqueued_by_the_form_of_its_kind() -> None:
    async def main() -> None:
        app = _app()
        async with viewer(app.web()) as person:
            asked = await person.get("/actions/enqueue", params={"kind": "ship"})
            inputs = _inputs(asked.text)
            missing = await person.post("/actions/enqueue", data=inputs)
            assert missing.status_code == 422
            assert "missing required field" in missing.text
            filled = inputs | {
                input_name("text", ("to",)): "ada",
                input_name("number", ("count",)): "2",
                input_name("choice", ("size",)): '"s"',
                input_name("text", ("address", "city")): "Rome",
            }
            answer = await person.post("/actions/enqueue", data=filled)
            assert answer.status_code == 303, answer.text
            job_id = UUID(answer.headers["location"].partition("/jobs/")[2][:36])
        assert await _payload(app, job_id) == {
            "to": "ada",
            "count": 2,
            "size": "s",
            "address": {"city": "Rome"},
        }

    asyncio.run(main())


def test_an_encrypted_field_stays_as_it_is() -> None:
    async def main() -> None:
        app = Windlass("memory://", max_retries=0, encryption_keys=["k1:" + "A" * 43 + "="])

        @app.job
        async def call(token: Secret[str], count: int) -> None:
            raise PermanentError("no")

        handle = await call.aenqueue(token=Secret("swordfish"), count=1)
        await app.arun_worker(burst=True)
        before = await _payload(app, handle.id)
        async with viewer(app.web()) as person:
            page = await _asked(person, handle.id)
            assert "swordfish" not in page
            assert "Encrypted: leave it as it is." in page
            inputs = _inputs(page) | {input_name("number", ("count",)): "2"}
            answer = await person.post("/actions/edit-job", data=inputs)
            assert answer.status_code == 303, answer.text
        assert await _payload(app, handle.id) == {**before, "count": 2}

    asyncio.run(main())
