"""Keys are made and rotated on the command line, which shows nothing that is secret."""

from __future__ import annotations

import asyncio
from base64 import b64decode
from typing import TYPE_CHECKING

import pytest

from windlass import Secret, Windlass

if TYPE_CHECKING:
    from uuid import UUID

    from tests.cli.conftest import Shell

PAYLOAD = b'{"to":"anna","password":"planted","url":"redis://:planted@host","nested":[{"pin2":1}]}'


def test_a_new_key_is_one_that_is_taken(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    text = shell.ok("keys", "new").out.strip()
    assert len(b64decode(text, validate=True)) == 32
    assert text != shell.ok("keys", "new").out.strip()
    named = shell.ok("keys", "new", "--name", "k2", "--json").json
    assert named["id"] == "k2"
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", f"{named['key']},{text}")
    assert Windlass("memory://").settings.encryption_keys[0].id == "k2"


def test_a_key_cannot_have_any_name(shell: Shell) -> None:
    shell("keys", "new", "--name", "a.b").refused("letters, digits", code=2)


def enqueue(key: str) -> UUID:
    app = Windlass(encryption_keys=key)

    @app.job
    async def charge(card: Secret[str]) -> None: ...

    handle = charge.enqueue(card=Secret("4111-planted"))
    asyncio.run(app.aclose())
    return handle.id


def test_keys_are_rotated_and_the_number_of_jobs_is_reported(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new = (shell.ok("keys", "new", "--name", name).out.strip() for name in ("old", "new"))
    enqueue(old)
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", f"{new},{old}")
    said = shell.ok("keys", "rotate", "--dry-run")
    assert said.out == "the secrets of 1 job would be re-encrypted\n"
    counts = {"looked_at": 1, "outdated": 1, "rotated": 1, "unreadable": 0, "in_steps": 0}
    counts["dry_run"] = False
    assert shell.ok("keys", "rotate", "--json").json == counts
    assert shell.ok("keys", "rotate").out == "the secrets of 0 jobs were re-encrypted\n"
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", old)
    left = shell("keys", "rotate")
    assert left.code == 1
    assert "1 job cannot be decrypted" in left.err


def test_keys_cannot_be_rotated_without_any(shell: Shell) -> None:
    shell.enqueue()
    shell("keys", "rotate").refused("windlass keys new")


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_secrets_in_a_payload_are_not_shown(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, form: tuple[str, ...]
) -> None:
    key = shell.ok("keys", "new", "--name", "old").out.strip()
    monkeypatch.setenv("WINDLASS_REDACT", r"pin\d")
    sealed, (plain,) = enqueue(key), shell.enqueue(payload=PAYLOAD)
    shown = shell.ok("jobs", "show", sealed, *form).out
    assert '"card": "Secret(***)"' in shown
    assert "old." not in shown
    shown = shell.ok("jobs", "show", plain, *form).out
    assert "planted" not in shown
    assert '"password": "***"' in shown
    assert '"pin2": "***"' in shown
    assert '"to": "anna"' in shown


def test_the_doctor_tells_which_keys_there_are_and_nothing_of_them(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = shell.ok("keys", "new", "--name", "k7").out.strip()
    monkeypatch.setenv("WINDLASS_ENCRYPTION_KEYS", key)
    shell.enqueue()
    for form in ((), ("--json",)):
        said = shell("doctor", *form)
        assert "k7" in said.out
        assert key[3:] not in said.out + said.err
