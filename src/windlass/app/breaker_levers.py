"""Owns how circuit breakers are looked at, and kept open or closed by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Literal

from windlass.core.breaker import OWN, Rule
from windlass.core.breaker_record import (
    RECORD,
    BreakerStatus,
    force,
    read_status,
    record_of,
)
from windlass.core.changes import Changes
from windlass.core.errors import ConfigError
from windlass.core.job import Json
from windlass.core.text import storable
from windlass.registry import Registry
from windlass.store import Store

_NAME_LIMIT = 500


class BreakerLevers:
    """What `app.control` does to breakers."""

    _store: Callable[[], Store]
    _registry: Registry

    async def breakers(self) -> list[BreakerStatus]:
        """Return how it stands with the breakers: those of this app, and those of any worker.

        Those that kinds have of their own are known once there was a system error.
        """
        records = await self._store().records(RECORD)
        known = {name.removeprefix(RECORD): record for name, record in records.items()}
        named = {rule.name for rule in self._rules() if not rule.name.startswith(OWN)}
        return [read_status(name, known.get(name)) for name in sorted(named | known.keys())]

    async def open_breaker(self, name: str, *, by: str = "an operator") -> BreakerStatus:
        """Keep a breaker open: nothing of its kinds starts until somebody says otherwise.

        Raises:
            ConfigError: there is no such breaker.
        """
        return await self._force(name, "open", by)

    async def close_breaker(self, name: str, *, by: str = "an operator") -> BreakerStatus:
        """Keep a breaker closed, whatever fails, until somebody says otherwise.

        Raises:
            ConfigError: there is no such breaker.
        """
        return await self._force(name, "closed", by)

    async def reset_breaker(self, name: str, *, by: str = "an operator") -> BreakerStatus:
        """Let a breaker go by itself again; one that was kept open begins with probes.

        Raises:
            ConfigError: there is no such breaker.
        """
        return await self._force(name, None, by)

    def _rules(self) -> Collection[Rule]:
        return self._registry.rules().values()

    async def _force(
        self, name: str, to: Literal["open", "closed"] | None, by: str
    ) -> BreakerStatus:
        breakers = {each.name for each in await self.breakers()}
        if name not in breakers and name not in {rule.name for rule in self._rules()}:
            known = ", ".join(sorted(breakers)) or "none"
            raise ConfigError(
                f"there is no breaker {name!r}; there are: {known}. One is known once a worker "
                "has it, or from the app that has it"
            )
        record, said = RECORD + name, storable(by, _NAME_LIMIT)

        def decide(known: Mapping[str, Json], now: datetime) -> Changes[BreakerStatus]:
            status = read_status(name, known.get(record))
            forced = force(status, to, by=said, now=now)
            return Changes(answer=forced, records={record: record_of(forced)})

        return (await self._store().apply([record], decide)).answer
