"""Owns suspicion: which jobs may have killed their process, and therefore run alone.

When a process dies, every job that had begun in it is suspected, and nothing is charged. A suspect
runs by itself in a child process: if that dies, the culprit is known, and if not, the suspect is
cleared. Suspicion is part of the job's history, so that its next worker knows.
"""

from __future__ import annotations

from windlass.core.jobs.job import Attempt, Job

LOST = "lost"
"""The lease ran out while the job ran. Once may have any reason."""
LOST_WITH_HOST = "lost with its host"
"""The lease ran out, and no worker of that host is left: most likely the host is gone."""
SUSPECTED = "suspected"
"""The process died while the job ran beside others."""
NOT_BEGUN = "not begun"
"""The process died before the job had begun there. Once is chance: the job only waited its turn."""
CRASHED = "crashed"
"""The process died while the job ran alone: the job is the culprit."""
ALONE = "alone"
"""The key under which a suspect is parked, keeping its place, while no child process is free."""
_PROVES_NOTHING = ("released", "snoozed", LOST, LOST_WITH_HOST, NOT_BEGUN)
_HOSTS = 2
_SUSPICIONS = 4


def is_suspect(job: Job) -> bool:
    """Return whether a job has to run alone: its process died, and it has not ended a run since."""
    for attempt in reversed(job.history):
        if attempt.outcome in (SUSPECTED, CRASHED):
            return True
        if attempt.outcome not in _PROVES_NOTHING:
            return False
    return False


def is_lost_too_often(job: Job, *, with_host: bool) -> bool:
    """Return whether one more lost lease makes a job suspect.

    Once is chance. With a whole host it may be chance twice, since a host has many reasons to go.
    """
    losses = _losses(job)
    hosts = sum(each.outcome == LOST_WITH_HOST for each in losses)
    return hosts >= _HOSTS if with_host else len(losses) > hosts


def is_not_begun_too_often(job: Job) -> bool:
    """Return whether one more death of its process before it begins makes a job suspect.

    A job can kill a process that only reads it, for example by its size. A run that ended since
    then shows that it does not.
    """
    for attempt in reversed(job.history):
        if attempt.outcome == NOT_BEGUN:
            return True
        if attempt.outcome not in _PROVES_NOTHING:
            return False
    return False


def is_suspected_too_often(job: Job) -> bool:
    """Return whether one more death of its worker's process cannot be chance.

    A job in a child process can kill its worker, too.
    """
    suspicions = 0
    for attempt in reversed(job.history):
        if attempt.outcome == SUSPECTED:
            suspicions += 1
        elif attempt.outcome not in _PROVES_NOTHING:
            break
    return suspicions >= _SUSPICIONS


def _losses(job: Job) -> list[Attempt]:
    losses: list[Attempt] = []
    for attempt in reversed(job.history):
        if attempt.outcome in (SUSPECTED, CRASHED):
            break
        if attempt.outcome in (LOST, LOST_WITH_HOST):
            losses.append(attempt)
    return losses
