"""Owns how limits are listed, which of them apply to a job, and how they are changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from windlass.app.control.part import ControlPart
from windlass.app.loop_thread import blocking
from windlass.core.changes import Changes
from windlass.core.policies.limit import OVERRIDE, RECORD, Change, Limit, queue_limit
from windlass.core.policies.limit_usage import LimitState, limit_state
from windlass.core.records import Json
from windlass.core.values.names import check_name, is_builtin
from windlass.core.workers import LimitInfo, WorkerRecord
from windlass.handlers.registry import Registry


class LimitControl(ControlPart):
    """The methods of `app.control` for limits."""

    async def aset_limit(
        self,
        name: str,
        *,
        rate: str | None = None,
        burst: int | None = None,
        concurrency: int | None = None,
    ) -> None:
        """Change a limit while workers run: `kind:crawl`, `queue:mail`, or that of a shared limit.

        Values that are not given stay unchanged. Workers observe it within about a second; a lower
        limit takes effect as running jobs end, and as used tokens cool.

        Raises:
            ValueError: it is no limit, or neither this app nor a live worker has one of that name.
        """
        record = OVERRIDE + check_name("limit", name)
        change = Change.of(rate=rate, burst=burst, concurrency=concurrency)
        workers = await self._app.store.workers()
        KnownLimits(self._app.registry, workers).check(name, change)
        changes = change.written()
        if rate is not None:
            changes = {"burst": None, **changes}  # The burst of the former rate ends with it.
        note = self._note("set", f"limit:{name}", detail=_described(change.written()))
        await self._act(
            note,
            [record],
            lambda known, _: Changes(
                answer=None, records={record: _present(known.get(record, {}) | changes)}
            ),
        )

    set_limit = blocking(aset_limit)

    async def areset_limit(self, name: str) -> bool:
        """Reset a limit to its value in the code; return whether it was changed."""
        record = OVERRIDE + name
        note = self._note("reset", f"limit:{name}")
        applied = await self._act(
            note, [record], lambda known, _: Changes(answer=record in known, records={record: None})
        )
        return applied.answer

    reset_limit = blocking(areset_limit)

    async def alimits(self) -> list[LimitState]:
        """Return what is in use of the limits of this app and of live workers, and of changed ones.

        Of a limit that this app defines, its own value counts, not the one that workers report.
        """
        store, workers = self._app.store, await self._app.store.workers()
        known = KnownLimits(self._app.registry, workers)
        changes = await store.records(OVERRIDE)
        accounts = await store.records(RECORD)
        names = known.names() | {record.removeprefix(OVERRIDE) for record in changes}
        now = (await store.sweep()).now.timestamp()
        kinds = self._kinds_of_limits(workers)
        return [
            limit_state(
                name,
                known.get(name),
                changes.get(OVERRIDE + name),
                accounts,
                now,
                kinds.get(name, ()),
            )
            for name in sorted(names)
        ]

    limits = blocking(alimits)

    def _kinds_of_limits(self, workers: Iterable[WorkerRecord]) -> dict[str, set[str]]:
        """Return the kinds of each limit, by the handlers of this app and of live workers."""
        registry, found = self._app.registry, defaultdict[str, set[str]](set)
        for kind in registry:
            for name, _ in registry.limited_by(kind, registry[kind].queue):
                found[name].add(kind)
        for worker in workers:
            for kind, uses in worker.info.uses.items() if worker.alive else ():
                for name in uses:
                    found[name].add(kind)
        return found


def _described(changes: Json) -> str:
    return " ".join(f"{name}={value}" for name, value in changes.items())


def _present(record: Json) -> Json:
    return {name: value for name, value in record.items() if value is not None}


class KnownLimits:
    """The limits of an app's handlers, and those that live workers report."""

    def __init__(self, registry: Registry, workers: Iterable[WorkerRecord]) -> None:
        self._registry = registry
        alive = [each.info for each in workers if each.alive]
        self._kinds = {kind for info in alive for kind in info.kinds}
        self._reported_units = [use for info in alive for use in info.uses.items()]
        self._uses = dict(self._reported_units)
        reported = {name: limit for info in alive for name, limit in info.limits.items()}
        found = {name: _read(name, limit) for name, limit in reported.items()}
        self._stored = {name: limit for name, limit in found.items() if limit is not None}

    def knows(self, kind: str) -> bool:
        """Return whether the limits of a kind are known."""
        return kind in self._registry or kind in self._kinds

    def of(self, kind: str, queue: str) -> dict[str, int]:
        """Return the names of the limits of a lane, and how many tokens a job takes of each.

        Where they are unknown, those are named that only people may have set.
        """
        if kind in self._registry:
            return dict(self._registry.limited_by(kind, queue))
        return {queue_limit(queue): 1, **self._uses.get(kind, {f"kind:{kind}": 1})}

    def names(self) -> set[str]:
        """Return the names of all limits whose values are known."""
        return self._registry.limits.keys() | self._stored.keys()

    def get(self, name: str) -> Limit | None:
        """Return a limit as in the code; None if it is unknown."""
        return self._registry.limits.get(name) or self._stored.get(name)

    def check(self, name: str, change: Change) -> None:
        """Refuse a change of a limit that is unknown, or with which jobs could never start."""
        limit = self.get(name)
        if limit is None and all(map(is_builtin, self._registry)):
            return  # An app that imports no handlers cannot know.
        if limit is None:
            known = ", ".join(sorted(self.names())) or "none"
            raise ValueError(
                f"there is no limit {name!r}; known limits: {known}. Only limits that the code "
                "declares can be changed"
            )
        if change.burst is not None and change.rate is None and limit.rate is None:
            raise ValueError(
                f"limit {name!r} has no rate, so it cannot have a burst; set a rate first"
            )
        if limit.ordered and change.concurrency not in (None, 1):
            raise ValueError(
                f"limit {name!r} is ordered, so its concurrency is always 1 for each key"
            )
        for kind, units in self._units_of(name):
            if units > (change.concurrency or units):
                raise ValueError(
                    f"kind {kind!r} uses {units} units of {name!r}, so it could never start; set "
                    "a higher limit"
                )

    def _units_of(self, name: str) -> Iterator[tuple[str, int]]:
        """Return how many units each kind uses of a limit."""
        for kind in self._registry:
            if self._registry[kind].shared_limit == name:
                yield kind, self._registry[kind].units
        for kind, units in self._reported_units:
            if name in units and kind not in self._registry:
                yield kind, units[name]

    def order_of(self, kind: str, queue: str) -> Limit | None:
        """Return the limit that keeps jobs of a kind in order; None if there is none."""
        limits = [self.get(name) for name in self.of(kind, queue)]
        return next((limit for limit in limits if limit is not None and limit.ordered), None)


def _read(name: str, reported: LimitInfo) -> Limit | None:
    try:
        return Limit.reported(name, reported)
    except ValueError:
        return None  # Written by another release.
