"""`windlass top` in a real terminal: it starts, ends however it may, and leaves all as it was."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.support.network_proxy import Proxy
from tests.support.screens import LEFT, PROMPT, TOP, TYPED, Glass, Sit, given_back, python_in
from windlass.core.jobs.states import State

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


NASTY = "\x1b[2J\x1b[31m\a东京😀👩\u200d👧\u202e"

# -- looking ---------------------------------------------------------------------------------------


def test_a_store_is_watched_and_left_with_q(shop: Shell, sit: Sit) -> None:
    wide = "东京😀" * 20
    shop.enqueue(wide, queue=wide, count=3)
    shop.dead(queue="slow", message=NASTY)
    glass = sit(columns=140)
    glass.sees("1 queues", "▸东京😀", "\\x1b[31m\\x07东京😀👩👧\\u202e", "w1", "q quit")
    assert b"\x1b[31m\a" not in glass.received
    assert len(glass.colours) > 2
    glass.type("?")
    glass.sees("select a panel", "unknown, or not applicable")
    glass.type("\x1b")
    glass.sees("1 queues")
    glass.resize(60, 20)
    glass.until(lambda: len(glass.lines[0]) == 60 and "q quit" in glass.lines[-1])
    glass.type("q")
    given_back(glass, 0)


def test_only_what_changed_is_sent(shop: Shell, sit: Sit) -> None:
    glass = sit()
    glass.sees("no queue has jobs", "q quit")
    clock = glass.lines[0]
    glass.until(lambda: glass.lines[0] != clock)
    began, clock = len(glass.received), glass.lines[0]
    glass.until(lambda: glass.lines[0] != clock)
    assert len(glass.received) - began < 1_000, "clocks, and no picture"


def test_pasted_text_confirms_nothing(shop: Shell, sit: Sit) -> None:
    (died,) = shop.dead(message="no route")
    glass = sit()
    glass.sees("no route")
    glass.type("3")
    glass.type("\x1b[200~hello")
    glass.look(0.3)
    glass.type("ry\x1b[201~r")
    glass.sees("redrive 1 dead job")
    glass.type("\x1b[200~y\x1b[201~")
    glass.sees("nothing was changed")
    assert shop.states([died]) == {State.DEAD}


def test_colours_are_off_with_no_color(shop: Shell, sit: Sit) -> None:
    shop.dead()
    glass = sit(NO_COLOR="1")
    glass.sees("3 errors", "ValueError: no", "▸")
    assert glass.colours == set()


def test_a_terminal_without_unicode_gets_plain_signs(shop: Shell, glasses: list[Glass]) -> None:
    shop.enqueue("东京", queue="mail")
    program = python_in(shop.directory, "-m", "windlass", *TOP, PYTHONIOENCODING="ascii")
    glasses.append(glass := Glass(program, columns=80, lines=24))
    glass.sees(">mail", "q quit")
    assert glass.text.isascii()


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


def test_top_is_suspended_and_resumed(shop: Shell, sit: Sit) -> None:
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


def test_quitting_top_during_a_redrive_prints_its_progress(shop: Shell, sit: Sit) -> None:
    """Prevents: a redrive that is cut off somewhere, and nobody knows."""
    died = shop.dead(count=600, message="no route")
    glass = sit(columns=150)
    glass.sees("no route")
    glass.type("3r")
    glass.sees("redrive 600 dead jobs")
    glass.type("yq")
    given_back(glass, 0)
    end = glass.received[glass.received.rindex(LEFT) :].decode()
    rest = r" of 600 redriven; for the others: windlass dead redrive --group [0-9a-f]+ --kind \w+"
    how_far = re.search(rf"(\d+){rest}|600 dead jobs redriven", end)
    assert how_far, end
    expected = {"0": {State.DEAD}, "500": {State.DEAD, State.PENDING}, None: {State.PENDING}}
    assert shop.states(died) == expected[how_far[1]]


def test_a_confirmed_pause_is_made_and_reported_even_if_top_is_quit_at_once(
    shop: Shell, sit: Sit
) -> None:
    shop.enqueue(queue="mail")
    glass = sit()
    glass.sees("▸mail")
    glass.type("p")
    glass.sees("pause queue mail")
    glass.type("yq")
    given_back(glass, 0)
    assert b"queue mail is paused" in glass.received[glass.received.rindex(LEFT) :]
    assert shop.ok("queues", "list", "--json").json["queues"][0]["paused"]


def test_an_unexpected_error_is_printed_after_the_terminal_is_restored(
    shop: Shell, sit: Sit
) -> None:
    shop.write(
        "broken.py",
        "from windlass import Windlass\n"
        "from windlass.cli.top import app as top\n"
        "async def broken(*_):\n"
        "    raise ZeroDivisionError('what nobody foresaw')\n"
        "top.take_snapshot = broken\n"
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
    shop.fill_queues(60)
    glass = sit(columns=200, lines=100)
    glass.until(lambda: b"q059" in glass.received)
    for _ in range(50):
        glass.type("\x0c")  # The whole picture again, and nobody reads it.
    glass.until_full()
    os.kill(glass.pid, signal.SIGTERM)
    deadline = time.monotonic() + 60
    while not glass.has_ended():
        assert time.monotonic() < deadline, "it still runs"
        time.sleep(0.02)
    assert glass.code == 143


def test_top_redraws_the_screen_after_it_was_suspended(shop: Shell, sit: Sit) -> None:
    glass = sit()
    glass.sees("4 workers")
    os.kill(glass.pid, signal.SIGSTOP)
    began = len(glass.received)
    os.kill(glass.pid, signal.SIGCONT)
    glass.until(lambda: b"\x1b[?1049h" in glass.received[began:])
    glass.until(lambda: b"4 workers" in glass.received[began:])
    glass.type("q")
    given_back(glass, 0)


# -- trouble ---------------------------------------------------------------------------------------


def test_a_lost_store_is_reported_and_found_again(
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
        glass.type("p")
        glass.sees("pause queue mail")
        glass.type("y")
        glass.sees("that failed: ")
        proxy.accept()
        glass.until(lambda: "q quit" in glass.lines[-1])
        glass.type("p")
        glass.sees("pause queue mail")
        glass.type("y")
        glass.sees("○ queue mail is paused, and 1 job waits")
        glass.type("\r")
        glass.sees("queue mail", "yes; no job of it starts", told.json["id"])


def test_where_there_is_no_terminal_it_is_said_what_to_use_instead(shop: Shell) -> None:
    shop("top").refused("not a terminal", "windlass top --once", "windlass stats --json")


def test_a_dumb_terminal_is_not_drawn_on(shop: Shell, sit: Sit) -> None:
    glass = sit(TERM="dumb")
    glass.sees("error: ", "TERM='dumb'", "--once")
    assert b"\x1b" not in glass.received
    once = sit("--once", TERM="dumb")
    once.sees("4 workers", "no worker is running")
    assert b"\x1b" not in once.received


def test_a_store_that_is_not_there_is_not_made(shell: Shell) -> None:
    shell("top", "--once").refused("there is no store", "windlass migrate")
    assert not shell.file.exists()


def test_without_its_extra_it_says_what_to_install_and_the_rest_works(shop: Shell) -> None:
    shop.write("textual.py", "raise ModuleNotFoundError(\"No module named 'textual'\")")
    environ = {**os.environ, "PYTHONPATH": str(shop.directory), "TERM": "xterm"}
    script = (
        "import sys; sys.stdin.isatty = sys.stdout.isatty = sys.stderr.isatty = lambda: True; "
        "from windlass.cli import main; main()"
    )
    for arguments, code in (("top",), 1), (("top", "--once"), 0), (("stats",), 0):
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            env=environ,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stderr
        if code:
            assert "pip install 'windlass[top]'" in done.stderr
            assert done.stderr.count("\n") == 1
