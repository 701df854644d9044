"""Owns how limits are looked at, and changed while workers run."""

from __future__ import annotations

from collections.abc import Callable

from windlass.core.changes import Changes
from windlass.core.job import Json
from windlass.core.limits import OVERRIDE, RECORD, Change
from windlass.core.names import check_name
from windlass.core.usage import LimitState, limit_state
from windlass.registry import Registry
from windlass.store import Store


class LimitLevers:
    """What `app.control` does to limits."""

    _store: Callable[[], Store]
    _registry: Registry

    async def set_limit(
        self,
        name: str,
        *,
        rate: str | None = None,
        burst: int | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Change a limit while workers run: `kind:crawl`, `queue:mail`, or a resource's name.

        What is not given stays as it was. Workers heed it within about a second; a lower limit
        takes effect as running jobs end, and as used tokens cool.

        Raises:
            ValueError: it is no limit, or this app has none of that name.
        """
        record = OVERRIDE + check_name("limit", name)
        change = Change.of(rate=rate, burst=burst, concurrency=concurrency)
        self._check_limit(name, change)
        told = change.written()
        if rate is not None:
            told = {"burst": None, **told}  # A burst that went with another rate goes with it.
        await self._store().apply(
            [record],
            lambda known, _: Changes(
                answer=None, records={record: _present(known.get(record, {}) | told)}
            ),
        )

    async def reset_limit(self, name: str) -> bool:
        """Let a limit be what the code says again; say whether it was changed."""
        record = OVERRIDE + name
        applied = await self._store().apply(
            [record], lambda known, _: Changes(answer=record in known, records={record: None})
        )
        return applied.answer

    async def limits(self) -> list[LimitState]:
        """Return the limits that this app defines, or that were changed, and what is in use."""
        store, known = self._store(), self._registry.limits
        changes = await store.records(OVERRIDE)
        accounts = await store.records(RECORD)
        names = known.keys() | {record.removeprefix(OVERRIDE) for record in changes}
        now = (await store.sweep()).now.timestamp()
        return [
            limit_state(name, known.get(name), changes.get(OVERRIDE + name), accounts, now)
            for name in sorted(names)
        ]

    def _check_limit(self, name: str, change: Change) -> None:
        known = self._registry.limits
        if not known:
            return  # An app that imports no handlers cannot know.
        if name not in known:
            raise ValueError(f"there is no limit {name!r}; there are: {', '.join(sorted(known))}")
        if change.burst is not None and change.rate is None and known[name].rate is None:
            raise ValueError(f"limit {name!r} has no rate, so it has no burst")
        if known[name].ordered and change.concurrency not in (None, 1):
            raise ValueError(f"limit {name!r} is ordered, so it is one at a time for each key")
        for kind in self._registry:
            amount = self._registry[kind].amount
            if self._registry[kind].resource == name and amount > (change.concurrency or amount):
                raise ValueError(
                    f"kind {kind!r} uses {amount} of {name!r}, so it would never start"
                )


def _present(record: Json) -> Json:
    return {name: value for name, value in record.items() if value is not None}
