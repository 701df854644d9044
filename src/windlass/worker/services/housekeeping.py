"""Owns the periodic tasks of every worker beside its jobs: pruning, warnings, clean-up."""

from __future__ import annotations

import asyncio
import gc
import heapq
from collections.abc import Mapping
from datetime import datetime, timedelta

from windlass.core.audit import RECORD as AUDIT
from windlass.core.audit import name_at
from windlass.core.changes import Changes
from windlass.core.jobs.queries import Retention
from windlass.core.records import Json, RecordPage
from windlass.core.restored import CHANGED, LINEAGE, Lineage, next_lineage, read_lineage
from windlass.observability.logs import get_logger
from windlass.process.service import RousableService, Service
from windlass.store import Store
from windlass.worker.state import WorkerState

log = get_logger("windlass.housekeeping")
_MAX_PRUNED = 1_000
_AFTER_OUTAGE_SECONDS = 10.0
_PRUNE_SECONDS = 60.0
_AUDIT_SECONDS = 600.0
_MAX_PRUNED_ENTRIES = 200
_ALL_LOST = "emptied"
"""The name of the finding that all jobs were deleted."""
_MAX_KINDS_LOGGED = 20
"""Number of unserved kinds that are logged; thousands of log lines would block the event loop."""


class Pruner(RousableService):
    """Deletes what is past its retention, and logs what is wrong with the store."""

    name = "pruner"

    def __init__(self, store: Store, retention: Retention, *, state: WorkerState) -> None:
        super().__init__()
        self._store = store
        self._retention = retention
        self._state = state
        self._lineage: str | None = None

    async def tick(self) -> float:
        self._roused.clear()
        pruned = await self._store.prune(self._retention, _MAX_PRUNED)
        if pruned >= _MAX_PRUNED:
            return 0
        if self._errors:
            # The store was unreachable until now: the first findings would be those of the outage.
            return _AFTER_OUTAGE_SECONDS
        findings = await self._store.findings()
        self._state.store_findings = tuple(each.name for each in findings if each.name)
        for finding in findings:
            say = log.error if finding.name == _ALL_LOST else log.warning
            say("store.finding", problem=finding.problem, remedy=finding.remedy)
        await self._note_lineage()
        return _PRUNE_SECONDS

    async def _note_lineage(self) -> None:
        name = await self._store.lineage()
        seen = read_lineage((await self._store.records(LINEAGE)).get(LINEAGE))
        # The record may be one of the writes that the other server does not have.
        own, self._lineage = self._lineage, name or self._lineage
        if name is None or (seen is not None and seen.name == name):
            return

        def decide(known: Mapping[str, Json], now: datetime) -> Changes[Lineage | None]:
            before = read_lineage(known.get(LINEAGE))
            if before is None and own is not None:
                before = Lineage(name=own, since=now)
            after = next_lineage(before, name, now)
            records = {} if after is None else {LINEAGE: after.record}
            return Changes(answer=after, records=records)

        changed = (await self._store.apply([LINEAGE], decide)).answer
        if changed is not None and changed.before is not None:
            log.warning(
                "store.lineage_changed",
                before=changed.before,
                now=changed.name,
                why=CHANGED,
                remedy="after a restore, stop the workers and run: windlass restored park; after a "
                "failover, compare job ids of your own data: windlass restored missing FILE",
            )


class AuditPruner(Service):
    """Deletes entries of the audit log that are past their retention."""

    name = "audit_pruner"

    def __init__(self, store: Store, retention: timedelta | None) -> None:
        super().__init__()
        self._store = store
        self._retention = retention

    async def tick(self) -> float:
        if self._retention is None:
            return _AUDIT_SECONDS
        horizon = name_at((await self._store.ringing(1)).now - self._retention)
        page = RecordPage(_MAX_PRUNED_ENTRIES, before=horizon)
        names = sorted(await self._store.records(AUDIT, page))
        if names:
            gone: Changes[None] = Changes(answer=None, records=dict.fromkeys(names))
            await self._store.apply(names, lambda _records, _now: gone)
        return 0 if len(names) == _MAX_PRUNED_ENTRIES else _AUDIT_SECONDS


class UnservedKinds(Service):
    """Warns of pending kinds that no live worker knows: their jobs would wait forever."""

    name = "unserved_kinds"

    def __init__(self, store: Store, *, known: Mapping[str, object]) -> None:
        super().__init__()
        self._store = store
        self._known = known
        self._warned: set[str] = set()

    async def tick(self) -> float:
        sweep = await self._store.sweep()
        unknown = {head.lane.kind for head in sweep.heads} - self._known.keys() - self._warned
        if unknown:
            workers = await self._store.workers()
            unknown -= {kind for worker in workers if worker.alive for kind in worker.info.kinds}
        for kind in heapq.nsmallest(_MAX_KINDS_LOGGED, unknown):
            log.warning(
                "kind.unserved",
                kind=kind,
                remedy="no live worker has a handler for it; is its module imported?",
            )
        if (others := len(unknown) - _MAX_KINDS_LOGGED) > 0:
            log.warning(
                "kinds.unserved",
                others=others,
                remedy="no live worker has a handler for these either; see: windlass doctor",
            )
        self._warned |= unknown
        return _PRUNE_SECONDS


CHECK_SECONDS = 60.0
"""Seconds between two checks, and so the longest that a worker runs on a wrong schema."""


class SchemaWatch(Service):
    """Stops the worker when the schema does not fit this release any more, and logs the remedy.

    A newer schema that still fits does not stop the worker, nor does a store that is unreachable or
    was emptied, since it may be back in a moment.
    """

    name = "schema_watch"

    def __init__(self, store: Store, state: WorkerState) -> None:
        super().__init__()
        self._store = store
        self._state = state
        self._has_begun = False
        self._has_warned = False

    async def tick(self) -> float:
        if not self._has_begun:
            self._has_begun = True
            return CHECK_SECONDS  # The schema was checked when the store was opened.
        schema = await self._store.schema()
        if schema.is_outgrowing and not self._has_warned:
            self._has_warned = True
            log.error(
                "schema.outgrown",
                found=schema.found,
                wanted=schema.wanted,
                remedy="upgrade windlass here; the schema supports only newer releases",
            )
            why = f"schema {schema.found} supports only newer releases"
            self._state.leave(why, replace=True)
        return CHECK_SECONDS


_MIN_PAUSE_SECONDS = 10.0


_RELEASE_SECONDS = 0.1
"""Seconds within which a run that has ended drops its references, in whatever thread."""


class Cleaner:
    """Frees what runs have left in reference cycles: memory, and the files and sockets it holds.

    Jobs that run out of a resource at the same time share one clean-up, since everything else stops
    during it.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._not_before = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def ask(self) -> None:
        """Request a clean-up soon."""
        if self._timer is None:
            soon = max(self._loop.time() + _RELEASE_SECONDS, self._not_before)
            self._timer = self._loop.call_at(soon, self._clean)

    def stop(self) -> None:
        """Cancel the clean-up."""
        if self._timer is not None:
            self._timer.cancel()

    def _clean(self) -> None:
        self._timer = None
        began = self._loop.time()
        found = gc.collect()
        ended = self._loop.time()
        self._not_before = ended + _MIN_PAUSE_SECONDS
        log.warning("resources.cleaned", objects=found, duration=round(ended - began, 6))
