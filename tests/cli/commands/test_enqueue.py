"""`windlass enqueue`: checked by the app where there is one, and never silently wrong."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import psycopg
import pytest

from windlass.core.jobs.states import State

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

TO = '{"to": "a@example.org"}'


def test_the_id_of_the_new_job_is_all_that_stdout_says(shop: Shell) -> None:
    said = shop.ok("enqueue", "send_email", TO, "--app", "shop:app")
    job = shop.job(UUID(said.out.strip()))
    assert (job.kind, job.queue, job.priority, job.state) == (
        "send_email",
        "mail",
        3,
        State.PENDING,
    )
    assert json.loads(job.payload) == {"to": "a@example.org"}
    assert said.err == ""


def test_the_payload_may_come_from_stdin(shop: Shell) -> None:
    said = shop.ok("enqueue", "send_email", "-", "--app", "shop:app", stdin=TO)
    assert json.loads(shop.job(UUID(said.out.strip())).payload) == {"to": "a@example.org"}


def test_an_alias_is_enqueued_under_the_name_that_the_kind_has_now(shop: Shell) -> None:
    said = shop.ok("enqueue", "mail_out", TO, "--app", "shop:app")
    assert shop.job(UUID(said.out.strip())).kind == "send_email"


def test_the_options_arrive_with_the_job(shop: Shell) -> None:
    options = "--queue slow --priority -4 --delay 1h30m --expires 2d --max-retries 0 --timeout 45"
    said = shop.ok("enqueue", "send_email", TO, "--app", "shop:app", *options.split())
    job = shop.job(UUID(said.out.strip()))
    assert (job.queue, job.priority, job.max_retries) == ("slow", -4, 0)
    assert job.timeout == timedelta(seconds=45)
    assert job.state is State.SCHEDULED
    assert job.expires_at is not None
    assert abs(job.due_at - job.created_at - timedelta(minutes=90)) < timedelta(seconds=1)
    assert abs(job.expires_at - job.created_at - timedelta(days=2)) < timedelta(seconds=1)


def test_a_job_may_be_due_and_expire_at_an_instant(shop: Shell) -> None:
    said = shop.ok(
        *("enqueue", "send_email", TO, "--app", "shop:app"),
        *("--at", "2090-03-01T09:00:00+01:00", "--expires", "2090-03-02T00:00:00Z"),
    )
    job = shop.job(UUID(said.out.strip()))
    assert job.due_at == datetime(2090, 3, 1, 8, tzinfo=UTC)
    assert job.expires_at == datetime(2090, 3, 2, tzinfo=UTC)


def test_a_second_job_under_a_unique_key_is_the_first(shop: Shell) -> None:
    args = ("enqueue", "send_email", TO, "--app", "shop:app", "--unique", "welcome:42")
    first = shop.ok(*args, "--json").json
    second = shop.ok(*args, "--json").json
    assert first["is_duplicate"] is False
    assert second == {"id": first["id"], "is_duplicate": True}
    said = shop.ok(*args)
    assert said.out.strip() == first["id"]
    assert "nothing was added" in said.err


def test_a_second_job_may_change_the_first_and_both_may_have_an_idempotency_key(
    shop: Shell,
) -> None:
    args = ("--app", "shop:app", "--unique", "k", "--unique-scope", "global")
    more = ("--on-duplicate", "replace", "--idempotency-key", "mail-7", "--json")
    first = shop.ok("enqueue", "send_email", TO, *args, *more).json
    other = '{"to": "bob@example.org"}'
    assert shop.ok("enqueue", "send_email", other, *args, *more).json["id"] == first["id"]
    job = shop.job(UUID(first["id"]))
    assert (job.unique_key, job.idempotency_key) == (":global:k", "mail-7")
    assert b"bob@example.org" in job.payload


def test_without_an_app_a_note_says_that_nothing_is_checked(shell: Shell) -> None:
    said = shell.ok("enqueue", "anything", "[1, 2]", "--json")
    assert "only the worker checks the payload" in said.err
    assert f"created {shell.file}" in said.err
    assert shell.job(UUID(said.json["id"])).payload == b"[1,2]"


def test_a_wrong_url_is_named_as_the_option_that_it_came_from(shell: Shell) -> None:
    shell("enqueue", "anything", "--url", "x.db").refused("error: --url must be a URL like")


def test_a_kind_that_is_not_known_is_refused_with_those_that_come_near(shop: Shell) -> None:
    shop("enqueue", "send_mail", TO, "--app", "shop:app").refused("'send_mail'", "send_email")


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ('{"to": 5}', "field 'to'"),
        ("{}", "'to'"),
        ('{"to": "a", "too": 1}', "'too'"),
        ('{"to": "a", "copies": "many"}', "field 'copies'"),
        ('{"to": "a\\u0000"}', "field 'to'"),
        ("[]", "the payload"),
    ],
)
def test_a_payload_that_does_not_fit_is_refused_with_its_field_named(
    shop: Shell, payload: str, field: str
) -> None:
    shop("enqueue", "send_email", payload, "--app", "shop:app").refused("'send_email'", field)
    assert shop.ok("jobs", "list", "--json").json["jobs"] == []


def test_a_payload_that_is_too_large_is_refused(
    shop: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WINDLASS_MAX_PAYLOAD", "10")
    shop("enqueue", "send_email", TO, "--app", "shop:app").refused("the limit is 10")


@pytest.mark.parametrize(
    "args",
    [
        ("send_email", "{to: a}"),
        ("send_email", ""),
        ("send_email", '{"to": NaN}'),
        ("send_email", "[" * 100_000),
        ("send_email", TO, "--delay", "5x"),
        ("send_email", TO, "--delay=-5"),
        ("send_email", TO, "--delay", "nan"),
        ("send_email", TO, "--delay", "inf"),
        ("send_email", TO, "--at", "tomorrow"),
        ("send_email", TO, "--at", "2090-03-01T09:00:00"),
        ("send_email", TO, "--at", "2090-03-01T09:00:00Z", "--delay", "5m"),
        ("send_email", TO, "--expires", "2090-03-01"),
        ("send_email", TO, "--priority", "1001"),
        ("send_email", TO, "--priority", "high"),
        ("send_email", TO, "--max-retries=-1"),
        ("send_email", TO, "--timeout", "soon"),
        ("send_email", TO, "--queue", ""),
        ("send_email", TO, "--queue", "a\nb"),
        ("send_email", TO, "--unique", ""),
        ("send_email", TO, "--unique", "k", "--unique-scope", "host"),
        ("send_email", TO, "--unique", "k", "--unique-until", "started"),
        ("send_email", TO, "--unique", "k", "--on-duplicate", "raise"),
        ("send_email", TO, "--on-duplicate", "replace"),
        ("send_email", TO, "--idempotency-key", ""),
    ],
    ids=lambda args: " ".join(args)[:50],
)
def test_wrong_values_are_wrong_usage_and_enqueue_nothing(
    shop: Shell, args: tuple[str, ...]
) -> None:
    shop("enqueue", *args, "--app", "shop:app").refused("Error", code=2)
    assert shop.ok("jobs", "list", "--json").json["jobs"] == []


@pytest.mark.parametrize("kind", ["", "   ", "x" * 201, "a\x1bb"])
def test_without_an_app_a_kind_still_needs_a_name_that_can_be_shown(
    shell: Shell, kind: str
) -> None:
    said = shell("enqueue", kind)
    said.refused("a kind", code=2)
    assert "\x1b" not in said.err


def test_memory_cannot_be_enqueued_into_from_another_process(shell: Shell) -> None:
    shell("enqueue", "anything", "--url", "memory://").refused("app.run_worker()")


def test_an_enqueue_of_unknown_fate_says_how_to_look_for_the_job(
    shell: Shell, postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: the command is called again, and makes a second job."""
    monkeypatch.setenv("WINDLASS_ENQUEUE_TIMEOUT", "2s")
    shell.ok("migrate", "--url", postgres_url)
    with psycopg.connect(postgres_url) as db:
        db.execute("LOCK TABLE windlass.jobs")
        said = shell("enqueue", "send_email", "{}", "--url", postgres_url)
    said.refused("may or may not have been enqueued", "windlass jobs show 0")


@pytest.mark.parametrize("text", ["2090-03-01", "2090-03-01T09:00", "2090-03-01 09:00:00"])
def test_a_time_without_a_zone_is_refused_with_times_that_are_taken(shop: Shell, text: str) -> None:
    """Prevents: `2090-03-01Z`, which is no time in ISO format, as the remedy."""
    said = shop("enqueue", "send_email", TO, "--at", text, "--app", "shop:app")
    said.refused("has no time zone; add one: ", code=2)
    for advised in said.err.partition("add one: ")[2].strip().split(", or "):
        shop.ok("enqueue", "send_email", TO, "--at", advised, "--app", "shop:app")


def test_a_url_that_is_given_is_taken_although_the_one_of_the_settings_is_wrong(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{shell.file}"
    monkeypatch.setenv("WINDLASS_URL", "x.db")
    said = shell.ok("enqueue", "anything", "--url", url, "--json")
    monkeypatch.setenv("WINDLASS_URL", url)
    assert shell.job(UUID(said.json["id"])).kind == "anything"
