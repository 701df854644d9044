"""Owns the sheet of a row: its figures at length, and its jobs, of which one can be opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

from rich.console import RenderableType
from rich.text import Text
from textual.binding import BindingType
from textual.geometry import Region

from windlass.cli.top.actions import pause_or_resume, redrive_group
from windlass.cli.top.content.details import details
from windlass.cli.top.content.panels import PANELS, Row
from windlass.cli.top.screens.base import Lines, keys
from windlass.cli.top.screens.job import JobScreen
from windlass.cli.top.screens.sheet import ReadSheet


class RowScreen(ReadSheet):
    """A row at length."""

    BINDINGS: ClassVar[list[BindingType]] = keys(
        ("enter", "open"), ("p", "pause"), ("r", "redrive")
    )

    def __init__(self, row: Row, panel: int) -> None:
        super().__init__()
        self._row = row
        self._read_figures = row.figures
        self._panel = PANELS[panel]
        self._jobs: tuple[UUID, ...] = ()
        self._selected = 0

    async def read(self) -> RenderableType:
        self._read_figures = self._row.figures
        row = await details(self.top.windlass, self._row)
        selected = self._jobs[self._selected] if self._jobs else None
        self._jobs = row.jobs
        self._selected = row.jobs.index(selected) if selected in row.jobs else 0
        return row.body

    def show(self) -> None:
        """Show the sheet; read it again if the figures of its row are no longer the same."""
        snapshot = self.top.snapshot
        rows = () if snapshot is None else self._panel.rows(snapshot)
        self._row = next((row for row in rows if row.key == self._row.key), self._row)
        super().show()
        is_reading = self._reading is not None and not self._reading.done()
        if self._row.figures != self._read_figures and self.is_mounted and not is_reading:
            self.action_read()

    def key_effects(self) -> Sequence[tuple[str, str]]:
        arrows = "job" if len(self._jobs) > 1 else "more"
        enter = "the job" if self._jobs else "look again"
        return (("esc", "back"), ("↑↓", arrows), ("enter", enter))

    def marked(self, lines: list[Text]) -> list[Text]:
        """Mark the line of the selected job."""
        if (y := self._line_of_job(lines)) is not None:
            lines[y].stylize("reverse")
        return lines

    def _line_of_job(self, lines: Sequence[Text]) -> int | None:
        job = str(self._jobs[self._selected]) if self._jobs else "\0"
        return next((y for y, line in enumerate(lines) if job in line.plain), None)

    def action_move(self, step: int) -> None:
        if len(self._jobs) < 2:
            super().action_move(step)
            return
        self._selected = min(max(self._selected + step, 0), len(self._jobs) - 1)
        self.show()
        y = self._line_of_job(self.query_one("#text", Lines).lines) or 0
        self.query_one("#scroll").scroll_to_region(Region(0, y, 1, 1), animate=False)

    def action_open(self) -> None:
        if self._jobs:
            self.app.push_screen(JobScreen(self._jobs[self._selected]))
        else:
            self.action_read()

    def action_pause(self) -> None:
        self.top.ask(pause_or_resume(self._row, self.top.snapshot))

    def action_redrive(self) -> None:
        self.top.ask(redrive_group(self._row))
