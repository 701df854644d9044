"""`windlass top` in a real terminal: seen, used, and given back as it was, however it ends."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from tests.cli.glass import PROMPT, TOP, TYPED, Glass, bash_in, python_in, windlass_in
from tests.postgres.proxy import Proxy
from windlass.cli.target import load
from windlass.core.job import NewJob
from windlass.core.states import State
from windlass.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start

Sit = Callable[..., Glass]
NASTY = "\x1b[2J\x1b[31m\a东京😀👩\u200d👧\u202e"
_UP, _DOWN = "\x1b[A", "\x1b[B"
_LEFT = b"\x1b[?1049l"


@pytest.fixture
def glasses() -> Iterator[list[Glass]]:
    """Take terminals, and close them."""
    opened: list[Glass] = []
    yield opened
    for glass in opened:
        glass.close()


@pytest.fixture
def sit(shell: Shell, glasses: list[Glass]) -> Sit:
    """Sit down before a terminal in which `windlass top` runs, or a shell, in the directory."""

    def open_one(
        *args: str, columns: int = 80, lines: int = 24, bash: bool = False, **environ: str
    ) -> Glass:
        called = windlass_in(shell.directory, *TOP, *args, **environ)
        program = bash_in(shell.directory) if bash else called
        glasses.append(Glass(program, columns=columns, lines=lines))
        return glasses[-1]

    return open_one


def given_back(glass: Glass, code: int) -> None:
    """Wait for the end, and check that the terminal is as it was: screen, cursor, modes."""
    glass.until(glass.has_ended)
    glass.look(0.02)
    assert glass.code == code, glass.text
    for ours, before in ((b"\x1b[?1049h", _LEFT), (b"\x1b[?25l", b"\x1b[?25h")):
        assert glass.received.rindex(before) > glass.received.rindex(ours)
    assert glass.modes_now == glass.modes


# -- looking ---------------------------------------------------------------------------------------


def test_a_store_is_watched_and_left_with_q(shop: Shell, sit: Sit) -> None:
    shop.enqueue(queue="mail", count=3)
    shop.dead(queue="slow", message="no route")
    glass = sit()
    glass.sees("1 queues", "▸mail", "ValueError: no route", "w1", "q quit")
    assert len(glass.colours) > 2
    shop.enqueue(queue="late", count=7)
    glass.type("?")
    glass.sees("choose a panel", "not known, or there is nothing to know")
    glass.type("\x1b")
    glass.sees("1 queues")
    glass.type("q")
    given_back(glass, 0)


def test_only_what_changed_is_sent(shop: Shell, sit: Sit) -> None:
    glass = sit()
    glass.sees("4 workers", "q quit")
    began = len(glass.received)
    glass.look(1.2)
    assert len(glass.received) - began < 600, "two clocks, and no picture"


@pytest.mark.parametrize(("columns", "lines"), [(120, 40), (40, 10)])
def test_a_window_of_any_size_is_filled_and_may_change(
    shop: Shell, sit: Sit, columns: int, lines: int
) -> None:
    shop.enqueue(queue="mail", count=3)
    glass = sit(columns=columns, lines=lines)
    glass.sees("▸mail", "q quit")
    assert "q quit" in glass.lines[-1]
    assert glass.lines[0].rstrip().endswith("UTC")
    assert len(glass.lines[0]) == columns
    glass.resize(80, 24)
    glass.until(lambda: len(glass.lines[0]) == 80 and "q quit" in glass.lines[-1])
    glass.sees("1 queues", "2 kinds", "3 errors", "4 workers")
    assert sum("1 queues" in line for line in glass.lines) == 1


def test_rows_are_looked_into(shop: Shell, sit: Sit) -> None:
    (waits,) = shop.enqueue("resize", queue="images")
    (died,) = shop.dead(message="no route", queue="mail")
    (runs,) = shop.enqueue("crawl", queue="mail")
    shop.start("crawl", queue="mail", worker="w9")
    glass = sit(columns=100, lines=40)
    glass.sees("▸images")
    glass.type("\r")
    glass.sees("queue images", str(waits), "oldest of each")
    glass.type(f"q3{_DOWN}{_UP}\r")
    glass.sees("traceback", "line no route", str(died))
    glass.type("q4G\r")
    glass.sees("worker w9", "crawl", str(runs), "40% half way")


def test_a_worker_is_watched_while_it_works(shop: Shell, sit: Sit, start: Start) -> None:
    """What a worker runs is looked into; dead jobs are redriven, and a queue is paused."""
    shop.write("post.py", POST)
    dead = shop.dead("post", queue="mail", message="no route", count=2)
    shop.retire("w1")
    shop.enqueue("post", queue="mail", count=4, payload=b'{"to": "ada"}')
    brief = {"WINDLASS_SHUTDOWN_TIMEOUT": "100ms"}
    start("-m", "windlass", "worker", "post:app", "--slots", "2", **brief)
    glass = sit(columns=120, lines=40)
    glass.until(lambda: re.search(r"running +2/2 ", glass.text))
    glass.type("4\r")
    glass.sees("2 of 2 in use", "running, the longest first", "post ")
    glass.type("\x1b")
    glass.sees("4 workers")
    glass.type("3r")
    glass.sees("redrive 2 dead jobs of post, ValueError: no route? y/n")
    glass.type("y1p")
    glass.sees("pause queue mail")
    glass.type("y")
    glass.sees("queue mail is paused")
    assert shop.states(dead) == {State.PENDING}, "both slots are taken"
    assert _paused(shop) == ({"mail"}, set())


POST = """
import asyncio
from windlass import Windlass

app = Windlass()


@app.job(queue="mail")
async def post(to: str) -> None:
    await asyncio.sleep(300)
"""


def test_a_kind_is_looked_into(shop: Shell, sit: Sit) -> None:
    shop.enqueue(queue="mail", payload=b'{"to": "ada"}', count=2)
    asyncio.run(_work_off("shop:app"))
    glass = sit()
    glass.sees("send_email")
    glass.type("2\r")
    glass.sees("kind send_email", "2 runs: 2 completed", "p50", "p99", "ago    runs  failed")


async def _work_off(reference: str) -> None:
    app = load(reference)
    await app.run_worker(burst=True)
    await app.aclose()


def test_what_is_in_a_store_cannot_steer_the_terminal(shop: Shell, sit: Sit) -> None:
    wide = "东京😀" * 20
    shop.enqueue(wide, queue=wide, count=2)
    shop.dead(message=NASTY, kind="nasty")
    shop.ok("queues", "pause", "--kind", wide)
    glass = sit(columns=140, lines=30)
    glass.sees("▸东京😀", "paused 东京😀", "\\x1b[31m\\x07东京😀👩👧\\u202e")
    assert b"\x1b[31m\a" not in glass.received
    assert "".join(glass.lines).isprintable()
    glass.type("3\r")
    glass.sees("error ValueError: \\x1b[2J", "traceback")
    assert b"\x1b[31m\a" not in glass.received


def test_300_queues_are_scrolled(shop: Shell, sit: Sit) -> None:
    _fill_queues(shop, 300)
    glass = sit()
    glass.sees("▸other", "100", "q000", "2 kinds", "4 workers")
    glass.type("p")
    glass.sees("these are several queues")
    glass.type("G")
    glass.sees("▸q199", "2 kinds", "4 workers")
    glass.type("/q10")
    glass.sees("filter: q10", "q109")
    glass.type("\r")
    glass.sees("▸q100", "esc all, not only 'q10'")
    glass.type("\x1b")
    glass.sees("▸q199")


def _fill_queues(shop: Shell, number: int) -> None:
    store = SqliteStore(shop.file)
    jobs = [
        NewJob(id=shop.ids.next(), kind="fill", queue=f"q{each:03}", payload=b"{}")
        for each in range(number)
    ]
    shop.store(store.enqueue(jobs), store)


def test_colours_are_off_with_no_color(shop: Shell, sit: Sit) -> None:
    shop.dead()
    glass = sit(NO_COLOR="1")
    glass.sees("3 errors", "ValueError: no", "▸")
    assert glass.colours == set()


def test_a_terminal_without_unicode_gets_plain_signs(shop: Shell, sit: Sit) -> None:
    shop.enqueue("东京", queue="mail")
    glass = sit(encoding="ascii")
    glass.sees(">mail", "q quit")
    assert glass.text.isascii()


# -- doing -----------------------------------------------------------------------------------------


def test_a_queue_and_a_kind_are_paused_and_resumed(shop: Shell, sit: Sit) -> None:
    shop.enqueue(queue="mail", count=3)
    shop.ok("queues", "pause", "--kind", "send_email")
    glass = sit()
    glass.sees("▸mail", "kind send_email is paused")
    glass.type("p")
    glass.sees("pause queue mail, 3 waiting; what runs goes on? y/n")
    glass.type("n")
    glass.sees("nothing was changed")
    assert _paused(shop) == (set(), {"send_email"})
    glass.type("py")
    glass.sees("queue mail is paused", "○ queue mail is paused, and 3 jobs wait")
    assert _paused(shop) == ({"mail"}, {"send_email"})
    glass.type("py")
    glass.sees("queue mail goes on")
    glass.type("2p")
    glass.sees("resume kind send_email? y/n")
    glass.type("y")
    glass.sees("kind send_email goes on")
    assert _paused(shop) == (set(), set())


def _paused(shop: Shell) -> tuple[set[str], set[str]]:
    listed = shop.ok("queues", "list", "--json").json
    queues = {each["queue"] for each in listed["queues"] if each["paused"]}
    return queues, set(listed["paused"]["kinds"])


def test_the_dead_jobs_of_an_error_are_redriven_and_no_others(shop: Shell, sit: Sit) -> None:
    meant = shop.dead(message="no route", count=2)
    others = shop.dead(kind="charge", message="no money")
    glass = sit()
    glass.sees("no route", "no money")
    glass.type("3/route\rr")
    glass.sees("redrive 2 dead jobs of send_email, ValueError: no route? y/n")
    glass.type("y")
    glass.sees("2 dead jobs redriven")
    assert shop.states(meant) == {State.PENDING}
    assert shop.states(others) == {State.DEAD}


def test_what_is_pasted_confirms_nothing(shop: Shell, sit: Sit) -> None:
    shop.enqueue(queue="mail")
    glass = sit()
    glass.sees("▸mail")
    glass.type("p\x1b[200~y\x1b[201~")
    glass.sees("nothing was changed")
    assert _paused(shop) == (set(), set())


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
    assert glass.received.rindex(_LEFT) < glass.received.rindex(b"Stopped")
    assert glass.answer("stty -g") == before
    began = len(glass.received)
    glass.type("fg\n")
    glass.until(lambda: b"4 workers" in glass.received[began:])
    assert b"\x1b[?1049h" in glass.received[began:]
    glass.type("q")
    glass.until(lambda: glass.received.endswith(PROMPT.encode()))
    assert glass.answer("stty -g") == before


def test_an_error_that_nobody_foresaw_is_told_after_the_terminal_is_given_back(
    shop: Shell, sit: Sit
) -> None:
    shop.write(
        "broken.py",
        "from windlass import Windlass\n"
        "class Broken(Windlass):\n"
        "    async def stats(self, **_):\n"
        "        raise ZeroDivisionError('what nobody foresaw')\n"
        "app = Broken()\n",
    )
    glass = sit("--app", "broken:app")
    given_back(glass, 1)
    assert glass.received.rindex(_LEFT) < glass.received.rindex(b"what nobody foresaw")


def test_a_terminal_that_goes_away_leaves_no_process_behind(shop: Shell, sit: Sit) -> None:
    glass = sit()
    glass.sees("4 workers")
    glass.hang_up()
    glass.until(glass.has_ended)


def test_a_line_that_takes_nothing_in_keeps_nobody_from_ending_it(shop: Shell, sit: Sit) -> None:
    """Prevents: a picture that waits for ever to be written, deaf to keys and signals."""
    _fill_queues(shop, 200)
    glass = sit(columns=500, lines=300)
    glass.until(lambda: b"q199" in glass.received)
    for _ in range(50):
        glass.type("\x0c")  # The whole picture again, and nobody reads it.
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
        shell.ok("enqueue", "send_email", "{}", "--queue", "mail", "--url", url)
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


# -- on paper --------------------------------------------------------------------------------------


def test_once_prints_a_picture_and_ends(shop: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    shop.enqueue(queue="mail", count=3)
    shop.dead(message=NASTY)
    monkeypatch.setenv("COLUMNS", "100")
    said = shop.ok("top", "--once")
    assert said.err == ""
    assert "\x1b" not in said.out
    assert " mail  " in said.out
    assert max(map(len, said.out.splitlines())) <= 100
    assert not any(line != line.rstrip() for line in said.out.splitlines())


def test_once_of_an_empty_store_says_so(shop: Shell) -> None:
    out = shop.ok("top", "--once").out
    for part in ("no queue has jobs", "no job has run", "no job has failed", "no worker runs"):
        assert part in out
