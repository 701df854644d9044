"""Owns the immediate retry of a job that keeps its place among those of its key.

The job is pending all the while: a worker, or the record of its limit, holds its key back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

from windlass.app.control.limits import KnownLimits
from windlass.core.changes import Applied, Changes, Decide
from windlass.core.errors import InvalidTransition
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State
from windlass.core.policies.limit import Measure
from windlass.core.policies.limit_grants import freed
from windlass.core.records import Json
from windlass.handlers.registry import Registry
from windlass.store import Store

Act = Callable[[Sequence[str], Decide[bool]], Awaitable[Applied[bool]]]
"""Applies a change as an operator does, with an entry in the audit log."""


async def retry_in_place(store: Store, registry: Registry, job: Job, act: Act) -> bool:
    """Stop holding back the key of a pending job; return whether it was held back.

    Raises:
        InvalidTransition: another job of its key goes first.
    """
    if job.state is not State.PENDING:
        return False
    limit = KnownLimits(registry, await store.workers()).order_of(job.kind, job.queue)
    if limit is None:
        return False
    head = (await store.standing(job.id, limit=1)).head
    if head not in (None, job.id):
        why = f"it is ordered behind job {head}; retry that one first"
        raise InvalidTransition(job.id, job.state, "retry", why)
    record, part = limit.record(job.key), Measure.CONCURRENCY.value

    def decide(known: Mapping[str, Json], _now: datetime) -> Changes[bool]:
        account = known.get(record, {}).get(part, {})
        after = freed(account, job.key)
        if after == account:
            return Changes(answer=False)
        return Changes(answer=True, records={record: known[record] | {part: after}})

    return (await act([record], decide)).answer
