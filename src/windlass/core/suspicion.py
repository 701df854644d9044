"""Owns suspicion: which jobs may have killed their process, and therefore run alone.

When a process dies, whatever ran in it is suspected, and nothing is charged. A suspect runs by
itself in a child process: if that dies, the guilty is known, and if not, the suspect is cleared. It
is the history of a job that says what it is, so that whoever claims it next knows.
"""

from __future__ import annotations

from windlass.core.job import Attempt, Job

LOST = "lost"
"""The lease ran out while it ran. Once that may have any reason."""
LOST_WITH_HOST = "lost with its host"
"""The lease ran out, and no worker of that host is left: most likely the host is gone."""
SUSPECTED = "suspected"
"""Its process died while it ran, and others ran beside it."""
CRASHED = "crashed"
"""Its process died while it ran alone: it did it."""
_PROVES_NOTHING = ("released", "snoozed", LOST, LOST_WITH_HOST)
_HOSTS = 2
_SUSPICIONS = 4


def is_suspect(job: Job) -> bool:
    """Say whether a job has to run alone: its process died, and it has not ended a run since."""
    for attempt in reversed(job.history):
        if attempt.outcome in (SUSPECTED, CRASHED):
            return True
        if attempt.outcome not in _PROVES_NOTHING:
            return False
    return False


def is_lost_too_often(job: Job, *, with_host: bool) -> bool:
    """Say whether one more lost lease makes a job suspect.

    Once is chance. With a whole host it may be chance twice, since a host has many reasons to go.
    """
    losses = _losses(job)
    hosts = sum(each.outcome == LOST_WITH_HOST for each in losses)
    return hosts >= _HOSTS if with_host else len(losses) > hosts


def is_suspected_too_often(job: Job) -> bool:
    """Say whether one more death of its worker's process cannot be chance, though it ran alone.

    A job can kill its worker from its child, too.
    """
    suspicions = 0
    for attempt in reversed(job.history):
        if attempt.outcome == SUSPECTED:
            suspicions += 1
        elif attempt.outcome not in _PROVES_NOTHING:
            break
    return suspicions >= _SUSPICIONS


def _losses(job: Job) -> list[Attempt]:
    """Return the lost runs since the last one that cleared or accused the job."""
    losses: list[Attempt] = []
    for attempt in reversed(job.history):
        if attempt.outcome in (SUSPECTED, CRASHED):
            break
        if attempt.outcome in (LOST, LOST_WITH_HOST):
            losses.append(attempt)
    return losses
