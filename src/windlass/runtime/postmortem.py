"""Owns the question why a process ended, and what that makes of the jobs that ran in it."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from windlass.core.job import Job
from windlass.core.outcomes import Outcome
from windlass.core.retry import Retry
from windlass.core.settle import Policy, Transition, give_up, settle
from windlass.observe.logs import get_logger
from windlass.observe.running import fields_of

log = get_logger("windlass.worker")
_MINE = Path("/proc/self/cgroup")
_MOUNT = Path("/sys/fs/cgroup")
_FRESH = 10.0
"""Seconds within which a process that the kernel killed for want of memory has ended."""


class OutOfMemory:
    """Knows how often the kernel has killed a process of this control group for want of memory.

    `mine` says in which group this process is, and `mount` is where the groups are.
    """

    def __init__(self, mine: Path = _MINE, mount: Path = _MOUNT) -> None:
        self._counter = _counter(mine, mount)
        self._counted = _kills(self._counter)
        self._kills: deque[float] = deque()

    def look(self, now: float) -> None:
        """Take note of what was killed since the last look; `now` is a monotonic time."""
        counted = _kills(self._counter, self._counted)
        self._kills.extend([now] * (counted - self._counted))
        self._counted = counted
        while self._kills and now - self._kills[0] > _FRESH:
            # It was none of those that are asked about: a handler's own subprocess, maybe.
            self._kills.popleft()

    def struck(self, code: int, now: float) -> bool:
        """Say whether a process that ended with an exit code was killed so.

        Every kill explains one end, so that of several processes each gets its own.
        """
        self.look(now)
        if code != -signal.SIGKILL or not self._kills:
            return False
        self._kills.popleft()
        return True


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


def last_moves(jobs: Sequence[Job], outcome: Callable[[Job], Outcome]) -> list[Transition]:
    """Return what becomes of the jobs of a process that is gone; none of them is charged."""
    policy = Policy(retry=Retry())

    def move(job: Job) -> Transition:
        # When a run ended nobody knows, so it is recorded without a duration.
        now = job.started_at or datetime.now(UTC)
        return settle(job, outcome(job), policy, now=now, jitter=0)

    return [certainly(job, partial(move, job)) for job in jobs]


def certainly(job: Job, decide: Callable[[], Transition]) -> Transition:
    """Decide what becomes of a job; if that fails it is dead, so that it holds up no other."""
    try:
        return decide()
    except Exception as error:
        log.exception("settle.failed", **fields_of(job))
        return give_up(job, error)


def _counter(mine: Path, mount: Path) -> Path | None:
    """Return the file in which the kernel counts, if there is one."""
    return next((file for file in _candidates(mine, mount) if file.exists()), None)


def _candidates(mine: Path, mount: Path) -> Iterator[Path]:
    """Yield where the count may be, the likeliest first.

    A container may see its own group as the root of all, whatever it is called from outside.
    """
    unified, memory = _groups(mine)
    for group in (unified, ""):
        yield mount / group / "memory.events"
    for group in (memory, ""):
        yield mount / "memory" / group / "memory.oom_control"


def _groups(mine: Path) -> tuple[str, str]:
    """Return in which group this process is: by version 2 of the interface, and by version 1.

    A line is `ID:CONTROLLERS:PATH`, without controllers in version 2.
    """
    unified = memory = ""
    try:
        lines = mine.read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:
            unified = path.lstrip("/")
        elif "memory" in controllers.split(","):
            memory = path.lstrip("/")
    return unified, memory


def _kills(counter: Path | None, before: int = 0) -> int:
    """Return how many kills the kernel has counted, or as many as `before` if it does not say."""
    try:
        lines = [] if counter is None else counter.read_text().splitlines()
    except OSError:
        return before
    for line in lines:
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.isdigit():
            return int(count)
    return before
