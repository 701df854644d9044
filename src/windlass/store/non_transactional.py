"""Owns the behaviour shared by stores that cannot join a user's database transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from windlass.core.errors import ConfigError
from windlass.core.jobs.job import Enqueued, NewJob
from windlass.core.jobs.settle import Transition
from windlass.core.records import News
from windlass.core.stats.depths import Connections, Disk
from windlass.store.protocol import Transaction


class NonTransactional:
    """Refuses transactions; its stores need no notice of busy workers: every change wakes all."""

    @property
    def listening(self) -> bool:
        """Return True: waiting needs no connection that could be lost."""
        return True

    @property
    def connections(self) -> Connections | None:
        """Return None: there is no pool."""
        return None

    @property
    def location(self) -> str:
        """Return where the jobs are stored."""
        raise NotImplementedError

    async def busy(self) -> None:
        """Do nothing: every change wakes all waiting workers."""

    async def disk(self) -> Disk | None:
        return None

    async def lineage(self) -> str | None:
        """Return None: nothing in a copy of the data differs from the original."""
        return None

    def enqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        del transaction, jobs
        self._refuse("using(tx=...)")

    async def aenqueue_in(self, transaction: object, jobs: Sequence[NewJob]) -> list[Enqueued]:
        del transaction, jobs
        self._refuse("using(tx=...)")

    def send_in(self, transaction: object, news: Sequence[News]) -> None:
        del transaction, news
        self._refuse("send_event(tx=...)")

    async def asend_in(self, transaction: object, news: Sequence[News]) -> None:
        del transaction, news
        self._refuse("send_event(tx=...)")

    def transaction(self, settling: Transition) -> Transaction:
        del settling
        self._refuse("ctx.transaction()")

    def _refuse(self, call: str) -> NoReturn:
        raise ConfigError(
            f"{call} needs the jobs in the same database as your data, but they are in "
            f"{self.location}; use a postgresql:// URL"
        )
