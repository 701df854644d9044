"""`windlass events`: sending one, and looking at those that were heard of."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

SHOP = """
from windlass import Windlass

app = Windlass()


@app.job
async def idle() -> None: ...
"""


def test_an_event_is_sent_and_seen_once_a_worker_heard_it(shell: Shell) -> None:
    shell.write("shop.py", SHOP)
    shell.ok("migrate")
    assert shell.ok("events", "send", "paid:42", '{"by": "card"}').out == "event paid:42 sent\n"
    assert shell.ok("events", "send", "paid:42", "--json").json["sent"] is True
    assert "a worker has yet to record it" in shell.ok("events", "show", "paid:42").err
    shell.ok("worker", "shop:app", "--burst")
    (first, second) = shell.ok("events", "show", "paid:42", "--json").json["sent"]
    assert (first["payload"], second["payload"]) == ({"by": "card"}, None)
    listed = shell.ok("events", "show", "paid:42").out
    assert first["id"] in listed
    assert '{"by": "card"}' in listed


def test_secrets_in_the_payload_of_an_event_are_masked(shell: Shell) -> None:
    shell.write("shop.py", SHOP)
    shell.ok("migrate")
    shell.ok("events", "send", "login", '{"user": "ada", "password": "hunter2"}')
    shell.ok("worker", "shop:app", "--burst")
    (event,) = shell.ok("events", "show", "login", "--json").json["sent"]
    assert event["payload"] == {"user": "ada", "password": "***"}
    assert "hunter2" not in shell.ok("events", "show", "login").out


@pytest.mark.parametrize(
    ("name", "payload", "why"),
    [
        ("", "null", "must have a name"),
        ("a\nb", "null", "printable"),
        ("paid:42", "{", "not JSON"),
        ("paid:42", "NaN", "not JSON"),
    ],
)
def test_rubbish_is_refused(shell: Shell, name: str, payload: str, why: str) -> None:
    shell("events", "send", name, payload).refused(why, code=2)
