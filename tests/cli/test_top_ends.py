"""How `windlass top` ends, and what it does in trouble: the terminal is left as it was."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.cli.glass import LEFT, PROMPT, TOP, TYPED, Glass, Sit, given_back, python_in
from tests.postgres.proxy import Proxy
from windlass.cli.screen.levers import pull
from windlass.cli.screen.view import Lever
from windlass.cli.target import load
from windlass.core.states import State

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


# -- leaving ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "code"),
    [("\x03", 130), ("\x1c", 131), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_however_it_ends_the_terminal_is_as_it_was(
    shop: Shell, sit: Sit, end: str | signal.Signals, code: int
) -> None:
    glass = sit()
    glass.sees("4 workers", "q quit")
    if isinstance(end, str):
        glass.type(end)
    else:
        os.kill(glass.pid, end)
    given_back(glass, code)
    assert b"Traceback" not in glass.received


def test_it_is_stopped_and_goes_on(shop: Shell, sit: Sit) -> None:
    """Prevents: a shell without echo after Ctrl-Z, and half a picture after `fg`."""
    glass = sit(bash=True)
    glass.sees(PROMPT)
    before = glass.answer("stty -g")
    glass.type(f"{TYPED}\n")
    glass.sees("4 workers", "q quit")
    glass.type("\x1a")
    glass.until(lambda: b"Stopped" in glass.received)
    assert glass.received.rindex(LEFT) < glass.received.rindex(b"Stopped")
    assert glass.answer("stty -g") == before
    began = len(glass.received)
    glass.type("fg\n")
    glass.until(lambda: b"4 workers" in glass.received[began:])
    assert b"\x1b[?1049h" in glass.received[began:]
    glass.type("q")
    glass.until(lambda: glass.received.endswith(PROMPT.encode()))
    assert glass.answer("stty -g") == before


def test_whoever_leaves_during_a_redrive_is_told_how_far_it_got(shop: Shell, sit: Sit) -> None:
    """Prevents: a redrive that is cut off somewhere, and nobody knows."""
    died = shop.dead(count=600, message="no route")
    glass = sit(columns=150)
    glass.sees("no route")
    glass.type("3ryq")
    given_back(glass, 0)
    assert re.search(
        rb"0 of 600 redriven; the others: "
        rb"windlass dead redrive --group [0-9a-f]+ --kind send_email",
        glass.received[glass.received.rindex(LEFT) :],
    )
    assert shop.states(died) == {State.DEAD}


def test_a_redrive_ends_the_step_that_it_is_at(shop: Shell) -> None:
    died = shop.dead(count=600, message="no route")
    group = shop.ok("dead", "groups", "--json").json["groups"][0]["group"]
    lever = Lever(verb="redrive", what="error", name=group, kind="send_email")
    steps: list[str] = []

    async def redrive() -> str:
        app = load("shop:app")
        try:
            return await pull(app, lever, steps.append, lambda: bool(steps))
        finally:
            await app.aclose()

    assert asyncio.run(redrive()).startswith("500 of 600 redriven; the others: ")
    assert shop.states(died[:500]) == {State.PENDING}
    assert shop.states(died[500:]) == {State.DEAD}


def test_a_pause_that_was_confirmed_is_made_and_told_however_soon_somebody_leaves(
    shop: Shell, sit: Sit
) -> None:
    shop.enqueue(queue="mail")
    glass = sit()
    glass.sees("▸mail")
    glass.type("pyq")
    given_back(glass, 0)
    assert b"queue mail is paused" in glass.received[glass.received.rindex(LEFT) :]
    assert shop.ok("queues", "list", "--json").json["queues"][0]["paused"]


def test_an_error_that_nobody_foresaw_is_told_after_the_terminal_is_given_back(
    shop: Shell, sit: Sit
) -> None:
    shop.write(
        "broken.py",
        "from windlass import Windlass\n"
        "from windlass.cli.screen import live\n"
        "async def broken(*_):\n"
        "    raise ZeroDivisionError('what nobody foresaw')\n"
        "live.look = broken\n"
        "app = Windlass()\n",
    )
    glass = sit("--app", "broken:app")
    given_back(glass, 1)
    assert glass.received.rindex(LEFT) < glass.received.rindex(b"what nobody foresaw")


def test_a_terminal_that_goes_away_leaves_no_process_behind(shop: Shell, sit: Sit) -> None:
    glass = sit()
    glass.sees("4 workers")
    glass.hang_up()
    glass.until(glass.has_ended)


def test_a_line_that_takes_nothing_in_keeps_nobody_from_ending_it(shop: Shell, sit: Sit) -> None:
    """Prevents: a picture that waits for ever to be written, deaf to keys and signals."""
    shop.fill_queues(200)
    glass = sit(columns=500, lines=300)
    glass.until(lambda: b"q199" in glass.received)
    for _ in range(50):
        glass.type("\x0c")  # The whole picture again, and nobody reads it.
    glass.until_full()
    os.kill(glass.pid, signal.SIGTERM)
    deadline = time.monotonic() + 10
    while not glass.has_ended():
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.02)
    assert glass.code == 143


def test_somebody_who_may_not_open_the_terminal_anew_uses_what_was_handed_down(
    shop: Shell, sit: Sit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `su`: the terminal is another user's."""

    def refuse(_: int) -> str:
        raise PermissionError

    monkeypatch.setattr(os, "ttyname", refuse)
    glass = sit()
    glass.sees("4 workers", "q quit")
    glass.type("?")
    glass.sees("choose a panel")
    glass.type("qq")
    given_back(glass, 0)


def test_it_draws_all_anew_after_it_was_frozen(shop: Shell, sit: Sit) -> None:
    glass = sit()
    glass.sees("4 workers")
    os.kill(glass.pid, signal.SIGSTOP)
    began = len(glass.received)
    os.kill(glass.pid, signal.SIGCONT)
    glass.until(lambda: b"\x1b[?1049h" in glass.received[began:])
    glass.until(lambda: b"4 workers" in glass.received[began:])


# -- trouble ---------------------------------------------------------------------------------------


def test_a_store_that_is_lost_is_told_and_found_again(
    shell: Shell, glasses: list[Glass], postgres_url: str
) -> None:
    with Proxy(postgres_url) as proxy:
        url = proxy.url(postgres_url)
        shell.ok("migrate", "--url", url)
        told = shell.ok("enqueue", "send_email", "{}", "--queue", "mail", "--url", url, "--json")
        program = python_in(shell.directory, "-m", "windlass", *TOP, "--url", url)
        glasses.append(glass := Glass(program, columns=80, lines=24))
        glass.sees("▸mail", "q quit")
        proxy.refuse()
        proxy.reset()
        glass.sees("store lost for ", "trying again", "▸mail")
        glass.type("py")
        glass.sees("that failed: ")
        glass.type("2")
        proxy.accept()
        glass.until(lambda: "q quit" in glass.lines[-1])
        glass.type("1py")
        glass.sees("○ queue mail is paused, and 1 job waits")
        glass.type("\r")
        glass.sees("queue mail", "yes: workers start nothing of it", told.json["id"])


def test_where_there_is_no_terminal_it_is_said_what_to_use_instead(shop: Shell) -> None:
    shop("top").refused("not a terminal", "windlass top --once", "windlass stats --json")


def test_a_dumb_terminal_is_not_drawn_on(shop: Shell, sit: Sit) -> None:
    glass = sit(TERM="dumb")
    glass.sees("error: ", "TERM='dumb'", "--once")
    assert b"\x1b" not in glass.received
    once = sit("--once", TERM="dumb")
    once.sees("4 workers", "no worker runs")
    assert b"\x1b" not in once.received


def test_a_store_that_is_not_there_is_not_made(shell: Shell) -> None:
    shell("top", "--once").refused("there is no store", "windlass migrate")
    assert not shell.file.exists()


@pytest.mark.parametrize("every", ["0", "0.4", "-1", "soon"])
def test_nobody_looks_more_often_than_a_store_can_bear(shop: Shell, every: str) -> None:
    shop("top", "--every", every).refused(code=2)
