"""The screens of `windlass top`: what is seen, what keys do, and what is done from there."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from rich.console import Group
from rich.text import Text
from textual import events

from tests.support.screen_contents import busy, snapshot
from tests.support.viewers import Viewer, view
from windlass.app import Windlass
from windlass.app.snapshot import Snapshot
from windlass.cli.top.actions import Action
from windlass.cli.top.content.details import Details
from windlass.cli.top.content.panels import Row
from windlass.cli.top.screens.job import JobScreen
from windlass.cli.top.screens.row import RowScreen
from windlass.core.jobs.ids import job_id
from windlass.core.stats.stats import QueueFigures

DOCS = Path(__file__).parents[3] / "docs" / "top.md"


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


def test_an_open_sheet_shows_newer_figures_and_keeps_its_selection(
    figures: Figures, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Prevents: a queue is paused, and its sheet says for ever that it is not."""
    jobs = figures.jobs[:3]

    async def details(_: Windlass, row: Row) -> Details:
        assert isinstance(row.figures, QueueFigures)
        lines = [Text(f"paused {row.figures.paused}"), *(Text(str(job)) for job in jobs)]
        return Details(body=Group(*lines), jobs=jobs)

    monkeypatch.setattr("windlass.cli.top.screens.row.details", details)

    async def script(viewer: Viewer) -> None:
        await viewer.sees("▸mail")
        await viewer.press("enter")
        await viewer.sees("paused False")
        await viewer.press("down")
        queues = [replace(queue, paused=True) for queue in busy().stats.queues]
        figures.snapshot = snapshot(queues=tuple(queues))
        await viewer.sees("paused True")
        await viewer.press("enter")
        assert isinstance(viewer.top.screen, JobScreen)
        assert viewer.top.screen._job_id == jobs[1]

    figures.view(script)
