"""Owns the app that enqueues in users' transactions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import psycopg

from tests.support.app_on_store import Bed
from windlass.app import Handler

Note = Handler[[int], int, [int], Any]


class Shop:
    """An app with one kind of job, and a look at what others see of them."""

    def __init__(self, bed: Bed) -> None:
        self.app = bed.app()
        self.url = bed.url

        @self.app.job
        async def note(n: int) -> int:
            return n

        self.note: Note = note

    def has_a_sleeper(self) -> bool:
        """Say whether a worker wants to be woken."""
        with psycopg.connect(self.url) as db:
            return db.execute("SELECT FROM windlass.sleepers").fetchone() is not None

    def seen(self) -> list[UUID]:
        """Return the jobs that are committed, in their order."""
        with psycopg.connect(self.url) as db:
            return [row[0] for row in db.execute("SELECT id FROM windlass.jobs ORDER BY seq")]
