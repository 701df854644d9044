"""Owns the enqueue of a job by an operator, which leaves an entry in the audit log."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from windlass.app.handle import Handle
from windlass.app.producer import Draft
from windlass.core.changes import Changes
from windlass.store import store_of_queue

if TYPE_CHECKING:
    from windlass.app.control.control import Control

R = TypeVar("R")


async def enqueue_audited(control: Control, draft: Draft[R]) -> Handle[R]:
    """Enqueue a job on behalf of the operator of `control`; a duplicate leaves no entry.

    Raises:
        EnqueueUncertain, StoreError: as `Windlass.aenqueue_many`.
    """
    app = control._app
    # Not within the change: only an enqueue finds the holder of the job's unique key.
    (handle,) = await app.aenqueue_many([draft])
    if not handle.is_duplicate:
        job = draft.job
        detail = f"kind={job.kind} queue={job.queue}"
        note = control._note("enqueue", f"job:{handle.id}", detail=detail)
        note.is_alone = True
        store = store_of_queue(app.store, job.queue)
        await control._act(note, [], lambda _known, _now: Changes(answer=None), store)
    return handle
