"""The screens of `windlass top`: what is seen, what keys do, and what is done from there."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Group
from rich.text import Text
from textual import events

from tests.support.screen_contents import busy, snapshot
from tests.support.viewers import Viewer, view
from windlass.app import Windlass
from windlass.app.snapshot import Snapshot
from windlass.cli.app_target import load
from windlass.cli.top.actions import Action
from windlass.cli.top.content.details import Details
from windlass.cli.top.content.panels import Row
from windlass.cli.top.screens.row import RowScreen
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.states import State

if TYPE_CHECKING:
    from tests.cli.conftest import Shell

DOCS = Path(__file__).parents[3] / "docs" / "top.md"
NASTY = "\x1b[2J\x1b[31m\a东京😀👩\u200d👧\u202e"


class Figures:
    """A store that answers with these figures, and keeps the actions that are asked of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.snapshot: Snapshot = busy()
        self.jobs = tuple(job_id(number, number) for number in range(1, 51))
        self.actions: list[Action] = []

        async def take(*_: object) -> Snapshot:
            return self.snapshot

        async def perform(_: Windlass, action: Action, *__: object) -> str:
            self.actions.append(action)
            return "done"

        async def details(_: Windlass, row: Row) -> Details:
            lines = [Text(f"{row.key} line {number}") for number in range(30)]
            lines += [Text(f"  2s  send_email  {job}") for job in self.jobs]
            return Details(body=Group(*lines), jobs=self.jobs)

        monkeypatch.setattr("windlass.cli.top.app.take_snapshot", take)
        monkeypatch.setattr("windlass.cli.top.app.perform", perform)
        monkeypatch.setattr("windlass.cli.top.screens.row.details", details)

    def view(self, script: Any, **size: int) -> int | None:
        return view(Windlass(url="memory://"), script, **size)


@pytest.fixture
def figures(monkeypatch: pytest.MonkeyPatch) -> Figures:
    return Figures(monkeypatch)


# -- the panels ------------------------------------------------------------------------------------


def test_the_picture_in_the_docs_is_this(figures: Figures) -> None:
    shown = re.findall(r"^```text\n(.*?)^```$", DOCS.read_text("utf-8"), re.DOTALL | re.MULTILINE)

    async def script(viewer: Viewer) -> None:
        await viewer.sees("▸mail")
        assert f"{viewer.text}\n" == shown[0]

    figures.view(script)


@pytest.mark.parametrize(("columns", "lines"), [(120, 40), (40, 10)])
def test_a_window_of_any_size_is_filled_and_may_change(
    figures: Figures, columns: int, lines: int
) -> None:
    async def script(viewer: Viewer) -> None:
        await viewer.sees("▸mail", "q quit")
        shown = viewer.text.splitlines()
        assert (len(shown), len(shown[0])) == (lines, columns)
        assert "q quit" in shown[-1]
        await viewer.resize(80, 24)
        await viewer.sees("1 queues", "2 kinds", "3 errors", "4 workers", "! wrong")
        await viewer.until(lambda: len(viewer.text.splitlines()[0]) == 80)
        for tiny in ((1, 1), (5, 3), (19, 5)):
            await viewer.resize(*tiny)
            await viewer.press("p", "n", "question_mark", "q")

    figures.view(script, columns=columns, lines=lines)


def test_panels_and_rows_are_selected(figures: Figures) -> None:
    async def script(viewer: Viewer) -> None:
        await viewer.sees("▸mail")
        for keys, selected in (
            (("up", "pageup"), "mail"),
            (("j",), "billing"),
            (("G", "down"), "images"),
            (("home",), "mail"),
            (("3",), "ConnectionError"),
            (("tab",), "web1"),
            (("tab",), "mail"),
            (("shift+tab",), "web1"),
            (("left", "left"), "send_email"),
            (("5", "9", "0"), "send_email"),
        ):
            await viewer.press(*keys)
            assert viewer.selected.startswith(f"▸{selected}"), keys

    figures.view(script)


def test_a_filter_is_typed_kept_and_taken_back(figures: Figures) -> None:
    async def script(viewer: Viewer) -> None:
        await viewer.sees("▸mail")
        await viewer.press("/")
        await viewer.type("qpr?1")
        await viewer.sees("nothing matches 'qpr?1'", "enter keep")
        await viewer.press("ctrl+u", *"Bix", "backspace", "l")
        await viewer.sees("▸billing")
        await viewer.press("enter")
        await viewer.sees("esc all, not only 'Bil'")
        await viewer.press("p", "y")
        await viewer.press("escape")
        await viewer.sees("▸billing", " mail", "q quit")
        await viewer.press("/", "z", "escape")
        await viewer.sees("▸billing", " mail")

    figures.view(script)
    assert [(action.verb, action.name) for action in figures.actions] == [("resume", "billing")]


def test_q_ends_it(figures: Figures) -> None:
    async def script(viewer: Viewer) -> None:
        await viewer.press("?", "q")
        assert viewer.top.is_running
        await viewer.press("q")

    assert figures.view(script) == 0


# -- questions -------------------------------------------------------------------------------------


def test_only_y_is_yes(figures: Figures) -> None:
    async def script(viewer: Viewer) -> None:
        await viewer.sees("▸mail")
        for key in ("n", "escape", "enter", "p", "q", "space", "tab", "paste"):
            await viewer.press("p")
            await viewer.sees("pause queue mail, 1,204 waiting; running jobs finish? y/n")
            if key == "paste":
                viewer.top.post_message(events.Paste("y"))
            else:
                await viewer.press(key)
            await viewer.sees("nothing was changed", "▸mail")
            await viewer.press("home")
        viewer.top.post_message(events.Paste("py"))
        await viewer.press("3", "4", "p")
        await viewer.sees("p pauses a queue or a kind")
        assert figures.actions == []
        await viewer.press("1", "p", "y")
        await viewer.sees("done")

    figures.view(script)
    assert [(action.verb, action.name) for action in figures.actions] == [("pause", "mail")]


def test_the_row_that_was_asked_about_is_meant_whichever_comes_first_since(
    figures: Figures,
) -> None:
    async def script(viewer: Viewer) -> None:
        await viewer.sees("▸mail")
        await viewer.press("p")
        others = tuple(queue for queue in busy().stats.queues if queue.name != "mail")
        figures.snapshot = snapshot(queues=others)
        await viewer.until(lambda: viewer.top.snapshot is figures.snapshot)
        await viewer.press("y")
        await viewer.sees("done")

    figures.view(script)
    assert [action.name for action in figures.actions] == ["mail"]


# -- sheets ----------------------------------------------------------------------------------------


def test_help_and_alarms_are_opened_and_closed(figures: Figures) -> None:
    async def script(viewer: Viewer) -> None:
        await viewer.sees("▸mail")
        await viewer.press("?")
        await viewer.sees("select a panel", "unknown, or not applicable", "esc back")
        assert "…" not in "\n".join(viewer.text.splitlines()[4:])
        await viewer.press("escape", "!")
        await viewer.sees("○ queue billing is paused, and 30 jobs wait", "esc back")
        await viewer.press("!")
        await viewer.sees("▸mail", "q quit")

    figures.view(script)


def test_the_selected_job_of_a_sheet_is_seen_and_marked_and_opened(figures: Figures) -> None:
    async def script(viewer: Viewer) -> None:
        await viewer.sees("▸mail")
        await viewer.press("enter")
        await viewer.sees("mail line 1", "enter the job")
        await viewer.press("end", "down")
        await viewer.sees(str(figures.jobs[49]))
        await viewer.press("up")
        await viewer.sees(str(figures.jobs[48]))
        await viewer.press("enter")
        await viewer.sees("r retry")
        await viewer.press("r")
        await viewer.sees("this job is neither")
        await viewer.press("escape", "escape")
        await viewer.sees("▸mail", "q quit")
        await viewer.press("j", "enter", "p")
        await viewer.sees("resume queue billing, 30 waiting?")
        await viewer.press("y")

    figures.view(script)
    assert [(action.verb, action.name) for action in figures.actions] == [("resume", "billing")]


def test_a_sheet_without_several_jobs_is_scrolled(figures: Figures) -> None:
    figures.jobs = figures.jobs[:1]

    async def script(viewer: Viewer) -> None:
        await viewer.press("enter")
        await viewer.sees("mail line 0", "↑↓ more")
        await viewer.press("end")
        await viewer.sees("mail line 29", str(figures.jobs[0]))
        assert "mail line 0\n" not in viewer.text
        await viewer.press("g")
        await viewer.sees("mail line 0")

    figures.view(script)


def test_a_slow_look_into_a_row_does_not_end_up_on_the_sheet_of_another(
    figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = asyncio.Event()

    async def details(_: Windlass, row: Row) -> Details:
        if row.key == "mail":
            await slow.wait()
        return Details(body=Text(f"sheet of {row.key}"))

    monkeypatch.setattr("windlass.cli.top.screens.row.details", details)

    async def script(viewer: Viewer) -> None:
        await viewer.sees("▸mail")
        await viewer.press("enter")
        await viewer.sees("looking…")
        await viewer.press("q", "down", "enter")
        await viewer.sees("sheet of billing")
        slow.set()
        await viewer.press("up")
        assert "sheet of billing" in viewer.text
        assert isinstance(viewer.top.screen, RowScreen)

    figures.view(script)


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
