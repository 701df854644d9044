"""What `windlass top` shows of a row that somebody looks into, without a terminal."""

from __future__ import annotations

import asyncio
import io
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from rich.text import Text

from tests.support.screen_contents import error, queue
from windlass.cli.app_target import load
from windlass.cli.top.content.details import details
from windlass.cli.top.content.panels import Figures, Row
from windlass.core.jobs.queries import JobFilter, Page
from windlass.core.jobs.states import FINISHED, State
from windlass.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def sheet(figures: Figures) -> str:
    """Return what is written on the sheet of a row."""

    async def look() -> str:
        app = load("shop:app")
        try:
            row = Row("", figures, (Text(),), "")
            console = Console(file=io.StringIO(), width=150)
            with console.capture() as captured:
                console.print((await details(app, row)).body)
            return captured.get()
        finally:
            await app.aclose()

    return asyncio.run(look())


def promote(shop: Shell) -> None:
    """Make pending what is due."""
    store = SqliteStore(shop.file)
    shop.store(store.promote(100), store)


# -- a queue ---------------------------------------------------------------------------------------


def test_of_three_jobs_the_first_is_named(shop: Shell) -> None:
    first, *others = shop.enqueue(queue="mail", count=3)
    shown = sheet(queue("mail"))
    assert str(first) in shown
    assert not any(str(each) in shown for each in others)


def test_a_job_that_waited_for_its_time_is_at_the_head_by_that_time(shop: Shell) -> None:
    """Prevents: the newest job that was made before the head was due is taken for the head."""
    (late,) = shop.enqueue(queue="mail", due=timedelta(milliseconds=600))
    (head,) = shop.enqueue(queue="mail", due=timedelta(milliseconds=200))
    (later,) = shop.enqueue(queue="mail", due=timedelta(milliseconds=400))
    time.sleep(0.7)
    promote(shop)
    shown = sheet(queue("mail"))
    assert str(head) in shown
    assert str(late) not in shown
    assert str(later) not in shown


def test_no_job_is_named_where_it_would_be_a_guess(shop: Shell) -> None:
    shop.enqueue(queue="mail", count=150)
    shown = sheet(queue("mail"))
    assert "oldest of each" in shown
    assert "send_email" in shown
    assert "-7" not in shown, "no id, of the seventh version, is there"


def test_jobs_that_no_worker_runs_are_marked(shop: Shell) -> None:
    shop.register("w1", kinds=("send_email",))
    shop.enqueue(queue="mail")
    shop.enqueue("forgotten", queue="mail")
    marked = [line for line in sheet(queue("mail")).splitlines() if "no worker handles it" in line]
    assert ["forgotten" in line for line in marked] == [True]


def test_of_many_workers_some_are_asked_and_that_is_said(shop: Shell) -> None:
    for number in range(25):
        shop.register(f"w{number}", kinds=("send_email",))
    shop.enqueue(queue="mail")
    assert "running, on 20 of 25 workers" in sheet(queue("mail"))


# -- an error --------------------------------------------------------------------------------------


def test_no_finished_job_is_looked_for_where_none_is_dead(
    shop: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a look into an error that is over walks the whole store, for each of its jobs."""
    asked: list[State] = []
    find = SqliteStore.find

    async def heard(store: SqliteStore, which: JobFilter, **told: Any) -> Page:
        asked.extend(which.states)
        return await find(store, which, **told)

    monkeypatch.setattr(SqliteStore, "find", heard)
    assert "no job with this error was found" in sheet(error(dead=0))
    assert not FINISHED.intersection(asked)


def test_an_example_that_takes_long_to_find_is_done_without(
    shop: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object, **__: object) -> Page:
        await asyncio.sleep(60)
        raise AssertionError

    monkeypatch.setattr(SqliteStore, "find", never)
    monkeypatch.setattr("windlass.cli.top.content.details._FIND_SECONDS", 0.05)
    assert "no job with this error was found" in sheet(error())
    shop.enqueue(queue="mail")
    assert "oldest of each" in sheet(queue("mail", dead=1))
