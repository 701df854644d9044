"""The command line shows messages that are stored as bytes, where it knows their class."""

from __future__ import annotations

import json
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest

from tests.core.payloads.protobuf.shop_messages import New, SendEmail
from windlass import Windlass
from windlass.cli.actions import bulk_moves
from windlass.core.jobs.states import State

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

ROOT = Path(__file__).parents[3]
SHOP = """
from typing import Annotated

from tests.core.payloads.protobuf.shop_messages import SendEmail
from windlass import Protobuf, Windlass

app = Windlass(redact=["html"])
Email = Annotated[SendEmail, Protobuf(binary=True)]


@app.job(max_retries=0)
async def send_email(email: Email) -> Email:
    if not email.to_address:
        raise ValueError("nobody")
    return SendEmail(to_address=email.to_address, html="hidden")
"""
WITH_IMPORTS = "from windlass import Windlass\napp = Windlass()\n@app.job\ndef x() -> None: ...\n"
HANDLERS = SHOP.replace('Windlass(redact=["html"])', "shop.app").replace(
    "from windlass", "import shop\nfrom windlass"
)


def stored(message: Any) -> dict[str, str]:
    return {
        "$protobuf": "shop.SendEmail",
        "data": b64encode(message.SerializeToString(deterministic=True)).decode(),
    }


def payload_of(message: Any) -> bytes:
    return json.dumps({"email": stored(message)}).encode()


EMAIL = payload_of(SendEmail(to_address="ada@example.org", tries=3, html="hidden"))


@pytest.fixture
def mail(shop: Shell, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    shop.write("shop.py", SHOP)
    monkeypatch.setenv("WINDLASS_APP", "shop:app")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # The messages are those of the tests.
    yield shop
    sys.modules.pop("shop_handlers", None)


def test_a_job_is_shown_with_the_fields_of_its_message_masked_by_their_names(mail: Shell) -> None:
    (job,) = mail.enqueue(payload=EMAIL)
    text, document = mail.ok("jobs", "show", job).out, mail.ok("jobs", "show", job, "--json").json
    assert "ada@example.org" in text
    assert document["payload"] == {
        "email": {"to_address": "ada@example.org", "tries": "3", "html": "***"}
    }
    for said in (text, json.dumps(document)):
        assert "$protobuf" not in said
        assert "hidden" not in said


def test_without_the_class_the_type_and_the_size_are_shown_and_no_bytes(
    mail: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WINDLASS_APP")
    (job,) = mail.enqueue(payload=EMAIL)
    data = json.loads(EMAIL)["email"]["data"]
    shown = mail.ok("jobs", "show", job, "--json").json["payload"]["email"]
    size = SendEmail(to_address="ada@example.org", tries=3, html="hidden").ByteSize()
    assert shown == {"$protobuf": "shop.SendEmail", "size": size}
    assert data not in mail.ok("jobs", "show", job).out


def test_a_class_is_known_by_the_modules_that_the_settings_import(
    mail: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    mail.write("shop.py", WITH_IMPORTS)
    mail.write("shop_handlers.py", HANDLERS)
    (job,) = mail.enqueue(payload=EMAIL)
    assert "ada@example.org" not in mail.ok("jobs", "show", job).out
    monkeypatch.setenv("WINDLASS_IMPORTS", "nowhere")
    assert "$protobuf" in mail.ok("jobs", "show", job).out
    monkeypatch.setenv("WINDLASS_IMPORTS", "shop_handlers")
    assert "ada@example.org" in mail.ok("jobs", "show", job).out


def test_a_run_here_shows_payload_and_result(mail: Shell) -> None:
    (job,) = mail.enqueue(payload=EMAIL)
    shown = mail.ok("jobs", "run", job, "--here", "--json").json
    assert shown["payload"]["email"]["to_address"] == "ada@example.org"
    assert shown["result"] == {"to_address": "ada@example.org", "html": "***"}
    assert "ada@example.org" in mail.ok("jobs", "run", job, "--here").out


def test_a_worker_records_bytes_and_people_read_the_result(mail: Shell) -> None:
    mail.ok("enqueue", "send_email", '{"email": {"to_address": "eve@example.org"}}')
    mail.ok("worker", "shop:app", "--burst")
    (job,) = mail.ok("jobs", "list", "--state", "completed", "--json").json["jobs"]
    assert json.loads(mail.job(UUID(job["id"])).result or b"").keys() == {"$protobuf", "data"}
    shown = mail.ok("jobs", "show", job["id"], "--json").json
    assert shown["result"] == {"to_address": "eve@example.org", "html": "***"}


def test_a_schedule_is_shown_with_its_message(mail: Shell) -> None:
    app = Windlass(f"sqlite:///{mail.file}")
    app.schedules.put("daily", "send_email", json.loads(EMAIL), cron="0 7 * * *")
    app.close()
    shown = mail.ok("schedules", "show", "daily", "--json").json["payload"]["email"]
    assert (shown["to_address"], shown["html"]) == ("ada@example.org", "***")


def died(mail: Shell, message: Any) -> UUID:
    (job,) = mail.enqueue(payload=payload_of(message))
    mail.ok("worker", "shop:app", "--burst")
    assert mail.job(job).state is State.DEAD
    return job


def edit(mail: Shell, monkeypatch: pytest.MonkeyPatch, job: UUID, command: str) -> str:
    """Edit the payload of a dead job by a command of sed, and return what was shown."""
    monkeypatch.setattr(bulk_moves, "can_ask", lambda: True)
    editor = mail.directory / "editor"
    editor.write_text(f'#!/bin/sh\ncp "$1" {mail.directory}/seen\nsed -i \'{command}\' "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("VISUAL", str(editor))
    mail("dead", "redrive", job, "--edit")
    return (mail.directory / "seen").read_text()


def test_a_message_is_edited_by_its_fields(mail: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    job = died(mail, SendEmail(tries=3))
    seen = edit(mail, monkeypatch, job, 's/"tries": "3"/"to_address": "b", "tries": "4"/')
    assert json.loads(seen) == {"email": {"tries": "3"}}
    mail.ok("worker", "shop:app", "--burst")
    assert mail.job(job).state is State.COMPLETED
    assert json.loads(mail.job(job).payload) == {"email": {"to_address": "b", "tries": "4"}}


def test_a_message_with_unknown_fields_is_edited_as_bytes_so_that_nothing_is_lost(
    mail: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = SendEmail.FromString(
        New["SendEmail"](reply={"to": "x"}).SerializeToString() + b"\xf8\x07\x01"
    )
    job = died(mail, newer)
    before = mail.job(job).payload
    assert json.loads(edit(mail, monkeypatch, job, "s/x/x/")) == json.loads(before)
    assert mail.job(job).payload == before


def test_a_check_before_a_deploy_finds_messages_that_no_longer_decode(mail: Shell) -> None:
    (fits,) = mail.enqueue(payload=EMAIL)
    (unknown,) = mail.enqueue(payload=b'{"email": {"subject": "of a newer release"}}')
    assert mail.ok("check", "shop:app").code == 0
    mail.enqueue(payload=b'{"email": {"tries": "many"}}')
    mail.enqueue(payload=b'{"email": {"$protobuf": "shop.SendSms", "data": ""}}')
    said = mail("check", "shop:app", "--json")
    assert said.code == 1
    problems = sorted(each["problem"] for each in said.json["findings"])
    assert len(problems) == 2
    assert "field 'email': a shop.SendEmail is expected, got a shop.SendSms" in problems[0]
    assert "field 'email.tries': int64 is expected" in problems[1]
    assert fits != unknown
