"""Owns the knowledge which jobs were never sent to a store, so that stores need not search them.

An enqueue whose outcome is unknown may be repeated even after its job has ended. A store that keeps
ended jobs elsewhere has to look for the id there, which takes several times as long as the insert.
A job that was made in this very process, and has not been sent from it, cannot be there.

No clock decides about it: clocks run ahead, and are set back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Origin:
    """A stretch of a process's life in which jobs were made, and the ids of those that were sent.

    A job refers to its origin for as long as the job is kept, so nothing is forgotten too early,
    nor kept for longer than that. A pickled or deep-copied job has none: other processes, and other
    drafts, cannot know what becomes of the first.
    """

    __slots__ = ("_sent", "process")

    def __init__(self, process: int) -> None:
        self.process = process
        """The pid: a forked child has a copy of this object, and does not see what its parent
        sends."""
        self._sent: dict[int, object] = {}

    def send(self, job: int, sending: object) -> bool:
        """Record that an id is sent, and return whether it never was before."""
        # One step, so that of two threads only one is the first.
        return self._sent.setdefault(job, sending) is sending

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        """Become None in another process."""
        return _elsewhere, ()


def _elsewhere() -> None:
    return None


def are_fresh(jobs: Iterable[tuple[int, Origin | None]], process: int) -> bool:
    """Return whether all these jobs are sent for the first time ever; all count as sent now.

    Jobs are given as integers, since a UUID is slow to hash.
    """
    sending = object()
    ids: set[int] = set()
    fresh = True
    for job, origin in jobs:
        here = origin is not None and origin.process == process
        fresh = fresh and here and job not in ids
        if origin is not None and not origin.send(job, sending):
            fresh = False
        ids.add(job)
    return fresh
