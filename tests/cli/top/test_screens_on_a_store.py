"""The screens of `windlass top` on a real store: what is looked into, paused and redriven."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from tests.support.viewers import Viewer, view
from windlass.cli.app_target import load
from windlass.core.jobs.states import State

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


NASTY = "\x1b[2J\x1b[31m\a东京😀👩\u200d👧\u202e"


# -- a real store ----------------------------------------------------------------------------------


def test_rows_of_a_store_are_looked_into(shop: Shell) -> None:
    (waits,) = shop.enqueue("resize", queue="images")
    (died,) = shop.dead(message=f"no route {NASTY}", queue="mail")
    (runs,) = shop.enqueue("crawl", queue="mail")
    shop.start("crawl", queue="mail", worker="w9")

    async def script(viewer: Viewer) -> None:
        await viewer.sees("▸images", "w9")
        assert "".join(viewer.text.splitlines()).isprintable()
        await viewer.press("enter")
        await viewer.sees("queue images", str(waits), "oldest of each")
        await viewer.press("q", "3", "enter")
        await viewer.sees("error ValueError: no route \\x1b[2J", "traceback", str(died))
        assert not set("\x1b\a\u202e") & set(viewer.text)
        await viewer.press("q", "4", "G", "enter")
        await viewer.sees("worker w9", "crawl", str(runs), "40% half way")

    view(load("shop:app"), script, columns=100, lines=40)


def test_a_kind_is_looked_into(shop: Shell) -> None:
    shop.enqueue(queue="mail", payload=b'{"to": "ada"}', count=2)
    shop.ok("worker", "shop:app", "--burst")

    async def script(viewer: Viewer) -> None:
        await viewer.sees("send_email")
        await viewer.press("2", "enter")
        await viewer.sees(
            "kind send_email", "2 runs: 2 completed", "p50", "p99", "ago    runs  failed"
        )

    view(load("shop:app"), script)


def test_jobs_that_come_are_seen_though_a_worker_has_sampled_before(shop: Shell) -> None:
    """Prevents `no queue has jobs` for as long as a sample from before they came is believed."""
    shop.ok("worker", "shop:app", "--burst")

    async def script(viewer: Viewer) -> None:
        await viewer.sees("no queue has jobs", "rates unknown yet")
        await asyncio.to_thread(shop.enqueue, queue="late", count=58)
        await viewer.sees("late", "58", "no worker is running, and 58 jobs wait")

    view(load("shop:app"), script)


def test_a_queue_and_a_kind_are_paused_and_resumed(shop: Shell) -> None:
    shop.enqueue(queue="mail", count=3)
    shop.ok("queues", "pause", "--kind", "send_email")

    async def script(viewer: Viewer) -> None:
        await viewer.sees("▸mail", "kind send_email is paused")
        await viewer.press("p", "y")
        await viewer.sees("queue mail is paused", "○ queue mail is paused, and 3 jobs wait")
        await viewer.press("p", "y")
        await viewer.sees("queue mail resumed")
        await viewer.press("2", "p")
        await viewer.sees("resume kind send_email? y/n")
        await viewer.press("y")
        await viewer.sees("kind send_email resumed")

    view(load("shop:app"), script)
    paused = shop.ok("queues", "list", "--json").json
    assert (paused["queues"][0]["paused"], paused["paused"]["kinds"]) == (False, [])


def test_the_dead_jobs_of_an_error_are_redriven_and_no_others(shop: Shell) -> None:
    meant = shop.dead(message="no route", count=2)
    others = shop.dead(kind="charge", message="no money")

    async def script(viewer: Viewer) -> None:
        await viewer.sees("no route", "no money")
        await viewer.press("3", "/")
        await viewer.type("route")
        await viewer.until(lambda: "no money" not in viewer.text)
        await viewer.press("enter", "r")
        await viewer.sees("redrive 2 dead jobs of send_email, ValueError: no route? y/n")
        await viewer.press("y")
        await viewer.sees("2 dead jobs redriven")

    view(load("shop:app"), script)
    assert shop.states(meant) == {State.PENDING}
    assert shop.states(others) == {State.DEAD}


def test_a_job_is_chosen_on_a_sheet_asked_why_and_run_once_more(shop: Shell) -> None:
    (waits,) = shop.enqueue(queue="mail")
    (died,) = shop.dead("charge", queue="mail", message="no money")
    (later,) = shop.enqueue("remind", queue="mail", due=timedelta(hours=1))

    async def script(viewer: Viewer) -> None:
        await viewer.sees("▸mail")
        await viewer.press("enter")
        await viewer.sees(str(waits), str(died), str(later), "enter the job")
        await viewer.press("enter")
        await viewer.sees(f"job {waits}  pending", "r retry")
        await viewer.press("r")
        await viewer.sees("this job is neither")
        await viewer.press("q", "down", "enter")
        await viewer.sees(f"job {later}  scheduled")
        await viewer.press("r")
        await viewer.sees(f"retry job {later} of remind? y/n")
        await viewer.press("y")
        await viewer.sees(f"job {later} is due now", f"job {later}  pending")
        await viewer.press("q", "G", "enter")
        await viewer.sees(f"job {died}  dead")
        await viewer.press("r", "y")
        await viewer.sees(f"job {died} redriven", f"job {died}  pending")
        await viewer.press("q", "q", "q")

    assert view(load("shop:app"), script, columns=110, lines=40) == 0
    assert shop.states([waits, died, later]) == {State.PENDING}


def test_300_queues_are_scrolled(shop: Shell) -> None:
    shop.fill_queues(300)

    async def script(viewer: Viewer) -> None:
        await viewer.sees("▸other", "100", "q000", "2 kinds", "4 workers")
        await viewer.press("p")
        await viewer.sees("this row sums up several queues")
        await viewer.press("G")
        await viewer.sees("▸q199", "2 kinds", "4 workers")

    view(load("shop:app"), script)


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
    for part in (
        "no queue has jobs",
        "no runs in the last hour",
        "no job has failed",
        "no worker is running",
    ):
        assert part in out
