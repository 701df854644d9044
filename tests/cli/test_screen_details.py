"""What `windlass top` shows of a row that somebody looks into, without a terminal."""

from __future__ import annotations

import asyncio
import io
import time
from datetime import timedelta
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from tests.cli.sights import queue
from windlass.cli.screen.details import details
from windlass.cli.screen.panels import Figures, Row
from windlass.cli.target import load
from windlass.store.sqlite import SqliteStore

if TYPE_CHECKING:
    from tests.cli.conftest import Shell


def sheet(figures: Figures) -> str:
    """Return what is written on the sheet of a row."""

    async def look() -> str:
        app = load("shop:app")
        try:
            row = Row(key="", figures=figures, cells=(Text(),), found_by="")
            console = Console(file=io.StringIO(), width=150)
            with console.capture() as captured:
                console.print(await details(app, row))
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
