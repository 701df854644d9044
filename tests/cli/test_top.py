"""`windlass top` in a real terminal: what is seen, and what is done from there."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.cli.glass import Sit, given_back
from windlass.app.stats import Slow
from windlass.cli.screen.live import look
from windlass.cli.target import load
from windlass.core.states import State

if TYPE_CHECKING:
    from tests.cli.conftest import Shell, Start

NASTY = "\x1b[2J\x1b[31m\a东京😀👩\u200d👧\u202e"
_UP, _DOWN = "\x1b[A", "\x1b[B"


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


def test_what_takes_long_to_read_is_read_seldom_and_after_a_change(shop: Shell) -> None:
    """Prevents: every two seconds a walk over all dead jobs, for each who looks."""
    shop.dead(message="no route")

    async def watch() -> list[int]:
        app = load("shop:app")
        try:
            slow = Slow(app.store)
            seen = [await look(app, slow)]
            await app.control.redrive([each.newest for each in await app.control.error_groups()])
            seen.append(await look(app, slow))
            slow.forget()
            seen.append(await look(app, slow))
        finally:
            await app.aclose()
        return [sum(error.dead for error in each.stats.errors) for each in seen]

    assert asyncio.run(watch()) == [1, 1, 0]


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


def test_a_slow_look_into_a_row_does_not_end_up_on_the_sheet_of_another(
    shop: Shell, sit: Sit
) -> None:
    shop.write("slow.py", SLOW)
    shop.enqueue(queue="slow", count=2)
    shop.enqueue("resize", queue="mail")
    glass = sit("--app", "slow:app")
    glass.sees("▸slow")
    glass.type("\r")
    glass.sees("looking")
    glass.type("q")
    glass.sees("1 queues", "▸slow")
    glass.type(f"{_DOWN}\r")
    glass.sees("queue mail")
    glass.look(1.2)
    assert "queue mail" in glass.text
    assert "queue slow" not in glass.text


SLOW = """
import asyncio
from windlass import Windlass
from windlass.cli.screen import live

details = live.details


async def slowly(app, row):
    if row.key == "slow":
        await asyncio.sleep(0.8)
    return await details(app, row)


live.details = slowly
app = Windlass()
"""


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
    shop.fill_queues(300)
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


def test_a_job_is_chosen_on_a_sheet_asked_why_and_run_once_more(shop: Shell, sit: Sit) -> None:
    (waits,) = shop.enqueue(queue="mail")
    (died,) = shop.dead("charge", queue="mail", message="no money")
    (later,) = shop.enqueue("remind", queue="mail", due=timedelta(hours=1))
    glass = sit(columns=110, lines=40)
    glass.sees("▸mail")
    glass.type("\r")
    glass.sees(str(waits), str(died), str(later), "enter the job")
    glass.type("\r")
    glass.sees(f"job {waits}  pending", "r retry")
    glass.type("r")
    glass.sees("this is neither")
    glass.type("q")
    glass.sees("queue mail")
    glass.type(f"{_DOWN}\r")
    glass.sees(f"job {later}  scheduled")
    glass.type("r")
    glass.sees(f"retry job {later} of remind? y/n")
    glass.type("y")
    glass.sees(f"job {later} is due now", f"job {later}  pending")
    glass.type("q")
    glass.sees("queue mail")
    glass.type("G\r")
    glass.sees(f"job {died}  dead")
    glass.type("ry")
    glass.sees(f"job {died} redriven", f"job {died}  pending")
    assert shop.states([waits, died, later]) == {State.PENDING}
    glass.type("qqq")
    given_back(glass, 0)


def test_what_is_pasted_confirms_nothing(shop: Shell, sit: Sit) -> None:
    shop.enqueue(queue="mail")
    glass = sit()
    glass.sees("▸mail")
    glass.type("p\x1b[200~y\x1b[201~")
    glass.sees("nothing was changed")
    assert _paused(shop) == (set(), set())


def test_what_is_pasted_in_pieces_confirms_nothing(shop: Shell, sit: Sit) -> None:
    (died,) = shop.dead(message="no route")
    glass = sit()
    glass.sees("no route")
    glass.type("3")
    glass.type("\x1b[200~hello")
    glass.look(0.3)
    glass.type("ry\x1b[201~?")
    glass.sees("choose a panel")
    assert shop.states([died]) == {State.DEAD}


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
    for part in ("no queue has jobs", "no run is recorded", "no job has failed", "no worker runs"):
        assert part in out
