"""Owns why a process ended, and what that means for the jobs that ran in it."""

from __future__ import annotations

import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from windlass.core.jobs.job import Job
from windlass.core.jobs.outcomes import Outcome
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.settle import Policy, Transition, give_up, settle
from windlass.observability.log_context import fields_of
from windlass.observability.logs import get_logger
from windlass.process.event_loop import LOOP_ENDED

log = get_logger("windlass.worker")
_OWN_CGROUP = Path("/proc/self/cgroup")
_CGROUP_MOUNT = Path("/sys/fs/cgroup")
_OOM_KILL_SECONDS = 10.0
"""Seconds within which a process that the kernel killed when out of memory has ended."""


class OutOfMemory:
    """Counts the processes of this control group that the kernel killed when out of memory.

    `mine` names the group of this process, and `mount` is where the groups are.
    """

    def __init__(self, mine: Path = _OWN_CGROUP, mount: Path = _CGROUP_MOUNT) -> None:
        self._counter = _counter(mine, mount)
        self._counted = _kills(self._counter)
        self._kills: deque[float] = deque()

    def look(self, now: float) -> None:
        """Record the kills since the last look; `now` is a monotonic time."""
        counted = _kills(self._counter, self._counted)
        self._kills.extend([now] * (counted - self._counted))
        self._counted = counted
        while self._kills and now - self._kills[0] > _OOM_KILL_SECONDS:
            # Not a process of Windlass: maybe a handler's own subprocess.
            self._kills.popleft()

    def struck(self, code: int, now: float) -> bool:
        """Return whether a process that ended with this exit code was killed when out of memory.

        Every kill explains one end, so that each of several processes gets its own.
        """
        self.look(now)
        if code != -signal.SIGKILL or not self._kills:
            return False
        self._kills.popleft()
        return True


def describe_exit(code: int, *, out_of_memory: bool = False) -> str:
    """Describe an exit code in words; a negative one is a signal's number."""
    if code == LOOP_ENDED:
        return "ended because a job stopped its event loop"
    if code >= 0:
        return f"exited with code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    if -code == signal.SIGKILL:
        if out_of_memory:
            return f"was killed by the kernel: out of memory ({name})"
        return f"died of {name}: killed by hand, or by the kernel when out of memory"
    return f"died of {name}"


def transitions_after_crash(
    jobs: Sequence[Job], outcome: Callable[[Job], Outcome]
) -> list[Transition]:
    """Return the transitions of the jobs of a process that is gone; none of them is charged."""
    policy = Policy(retry=Retry())

    def move(job: Job) -> Transition:
        # The end of the run is unknown, so it is recorded without a duration.
        now = job.started_at or datetime.now(UTC)
        return settle(job, outcome(job), policy, now=now, jitter=0)

    return [settle_or_give_up(job, partial(move, job)) for job in jobs]


def settle_or_give_up(job: Job, decide: Callable[[], Transition]) -> Transition:
    """Decide the transition of a job; if that fails the job is dead, so that it does not block
    others.
    """
    try:
        return decide()
    except Exception as error:
        log.exception("settle.failed", **fields_of(job))
        return give_up(job, error)


def _counter(mine: Path, mount: Path) -> Path | None:
    return next((file for file in _candidates(mine, mount) if file.exists()), None)


def _candidates(mine: Path, mount: Path) -> Iterator[Path]:
    """Yield where the count may be, the likeliest first.

    A container may see its own group as the root, whatever it is called from outside.
    """
    unified, memory = _groups(mine)
    for group in (unified, ""):
        yield mount / group / "memory.events"
    for group in (memory, ""):
        yield mount / "memory" / group / "memory.oom_control"


def _groups(mine: Path) -> tuple[str, str]:
    """Return the groups of this process: by version 2 of the interface, and by version 1.

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
    """Return how many kills the kernel has counted, or `before` if it does not say."""
    try:
        lines = [] if counter is None else counter.read_text().splitlines()
    except OSError:
        return before
    for line in lines:
        name, _, count = line.partition(" ")
        if name == "oom_kill" and count.isdigit():
            return int(count)
    return before
