"""Owns the sheet of a job: its history, why it does not run, and its retry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar
from uuid import UUID

from rich.console import RenderableType
from textual.binding import BindingType

from windlass.cli.top.actions import retry_job
from windlass.cli.top.content.details import job_details
from windlass.cli.top.screens.base import keys
from windlass.cli.top.screens.sheet import ReadSheet
from windlass.core.jobs.job import Job


class JobScreen(ReadSheet):
    """A job at length."""

    BINDINGS: ClassVar[list[BindingType]] = keys(("enter", "read"), ("r", "retry"))

    def __init__(self, job: UUID) -> None:
        super().__init__()
        self._job_id = job
        self._job: Job | None = None

    async def read(self) -> RenderableType:
        self._job, text = await job_details(self.top.windlass, self._job_id)
        return text

    def reload(self) -> None:
        self.action_read()

    def key_effects(self) -> Sequence[tuple[str, str]]:
        return (("esc", "back"), ("r", "retry"), ("↑↓", "more"), ("enter", "look again"))

    def action_retry(self) -> None:
        self.top.ask(retry_job(self._job))
