"""Owns the question why a process ended, and what that makes of the jobs that ran in it."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from windlass.core.job import Job
from windlass.core.outcomes import Outcome
from windlass.core.retry import Retry
from windlass.core.settle import Policy, Transition, settle

_CGROUP = (
    Path("/sys/fs/cgroup/memory.events"),
    Path("/sys/fs/cgroup/memory/memory.oom_control"),
)


class OutOfMemory:
    """Knows how often the kernel has killed a process of this container for want of memory."""

    def __init__(self) -> None:
        self._seen = _kills()

    def struck(self) -> bool:
        """Say whether it has since the last look."""
        kills = _kills()
        struck = kills > self._seen
        self._seen = kills
        return struck


def how_it_ended(code: int, *, out_of_memory: bool = False) -> str:
    """Say in words what an exit code means; a negative one is a signal's number."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if -code == signal.SIGKILL:
        if out_of_memory:
            return f"was killed for want of memory ({name})"
        return f"died of {name}: killed by somebody, or by the kernel for want of memory"
    return f"died of {name}"


def last_moves(jobs: Sequence[Job], outcome: Outcome) -> list[Transition]:
    """Return what becomes of the jobs of a process that is gone; none of them is charged."""
    policy = Policy(retry=Retry())
    return [
        # When a run ended nobody knows, so it is recorded without a duration.
        settle(job, outcome, policy, now=job.started_at or datetime.now(UTC), jitter=0)
        for job in jobs
    ]


def _kills() -> int:
    for file in _CGROUP:
        try:
            lines = file.read_text().split("\n")
        except OSError:
            continue
        for line in lines:
            name, _, count = line.partition(" ")
            if name == "oom_kill" and count.isdigit():
                return int(count)
    return 0
