"""Owns how circuit breakers are listed, and forced open or closed by hand."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import partial

from windlass.app.control.part import ControlPart
from windlass.app.loop_thread import blocking
from windlass.core.changes import Changes
from windlass.core.errors import ConfigError
from windlass.core.policies.breaker import OWN, Rule
from windlass.core.policies.breaker_record import (
    RECORD,
    BreakerStatus,
    force,
    probe,
    read_status,
    record_of,
)
from windlass.core.records import Json
from windlass.core.values.text import storable

_NAME_LIMIT = 500


class BreakerControl(ControlPart):
    """The methods of `app.control` for breakers."""

    async def abreakers(self) -> list[BreakerStatus]:
        """Return the status of the breakers: those of this app, and those of any worker.

        A kind's own breaker is known once there was a system error.
        """
        records = await self._app.store.records(RECORD)
        known = {name.removeprefix(RECORD): record for name, record in records.items()}
        named = {rule.name for rule in self._rules() if not rule.name.startswith(OWN)}
        return [read_status(name, known.get(name)) for name in sorted(named | known.keys())]

    breakers = blocking(abreakers)

    async def aopen_breaker(self, name: str) -> BreakerStatus:
        """Force a breaker open: no job of its kinds starts until it is released.

        Raises:
            ConfigError: there is no such breaker.
        """
        return await self._change("open", name, partial(force, to="open"))

    open_breaker = blocking(aopen_breaker)

    async def aclose_breaker(self, name: str) -> BreakerStatus:
        """Force a breaker closed, whatever fails, until it is released.

        It protects nothing then; `probe_breaker` tries whether it may close by itself.

        Raises:
            ConfigError: there is no such breaker.
        """
        return await self._change("close", name, partial(force, to="closed"))

    close_breaker = blocking(aclose_breaker)

    async def aprobe_breaker(self, name: str) -> BreakerStatus:
        """Try an open breaker with a few jobs now: it closes if they succeed, else opens again.

        Raises:
            ConfigError: there is no such breaker.
        """
        return await self._change("probe", name, probe)

    probe_breaker = blocking(aprobe_breaker)

    async def areset_breaker(self, name: str) -> BreakerStatus:
        """Release a breaker; one that was forced open begins with probes.

        Raises:
            ConfigError: there is no such breaker.
        """
        return await self._change("reset", name, partial(force, to=None))

    reset_breaker = blocking(areset_breaker)

    def _rules(self) -> Collection[Rule]:
        return self._app.registry.rules().values()

    async def _change(
        self, action: str, name: str, change: Callable[..., BreakerStatus]
    ) -> BreakerStatus:
        breakers = {each.name for each in await self.abreakers()}
        if name not in breakers and name not in {rule.name for rule in self._rules()}:
            known = ", ".join(sorted(breakers)) or "none"
            raise ConfigError(
                f"there is no breaker {name!r}; known breakers: {known}. A breaker is known once "
                "a worker that uses it has started, or with the app that defines it"
            )
        record, by = RECORD + name, storable(self.actor.by, _NAME_LIMIT)

        def decide(known: Mapping[str, Json], now: datetime) -> Changes[BreakerStatus]:
            status = read_status(name, known.get(record))
            changed = change(status, by=by, now=now)
            if changed == status:
                return Changes(answer=status)
            return Changes(answer=changed, records={record: record_of(changed)})

        note = self._note(action, f"breaker:{name}")
        return (await self._act(note, [record], decide)).answer
