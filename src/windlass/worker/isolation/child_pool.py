"""Owns the pool of child processes: warm, lent to one job after the other, replaced when they die.

A child that was stopped or died is not used again. Idle children are ended after a while, until one
is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from msgspec.structs import replace

from windlass.core.errors import ConfigError, LeaseLost, MemoryExceeded
from windlass.core.failures.describe import describe
from windlass.core.jobs.job import Job, Progress, Saga
from windlass.core.jobs.outcomes import Crashed, Failed, Outcome
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.streams import Appended, ChunkGroup
from windlass.core.values.text import storable
from windlass.observability.log_context import fields_of
from windlass.observability.logs import get_logger
from windlass.process.clocks import clock_of
from windlass.process.exits.memory import IS_VISIBLE, memory_of
from windlass.worker.isolation.child_process import ChildFailed, ChildProcess
from windlass.worker.isolation.protocol import (
    Begun,
    Ending,
    Over,
    Recipe,
    Recorded,
    Reported,
    Settled,
    Start,
    Stepped,
    Stop,
    StopNoticed,
    Streamed,
)

log = get_logger("windlass.isolation")
Answer = Outcome | Transition | StopNoticed | Over
_MEMORY_POLL_SECONDS = 0.05
_IDLE_SECONDS = 60.0
_START_SECONDS = 60.0
_CLOSE_SECONDS = 1.5
"""Seconds within which idle children may close their values when the worker ends."""
_KILL_SECONDS = 0.4


class ChildRun:
    """One job in a child, which can be stopped from outside."""

    __slots__ = (
        "_append", "_notes", "_record", "began", "begun", "child", "job", "job_now", "known",
        "memory", "report", "used",
    )  # fmt: skip

    def __init__(
        self,
        *,
        job: Job,
        memory: int | None,
        began: float,
        begun: Callable[[], None],
        report: Callable[[Job, Progress], None],
        record: Callable[[Job, tuple[str, ...], Saga | None], Awaitable[None]],
        append: Callable[[Job, ChunkGroup], Awaitable[Appended]],
    ) -> None:
        self.job = self.job_now = job
        self.memory = memory
        self.began = began
        """The start of the run, by the clock of its event loop."""
        self.begun = begun
        self.report = report
        self._record = record
        self._append = append
        self._notes: set[asyncio.Task[None]] = set()
        self.child: ChildProcess | None = None
        """The child that runs the job; None before it has been sent."""
        self.known: Transition | Over | None = None
        """The outcome that callbacks in the child were given, which is final."""
        self.used: int | None = None
        """Bytes that the child used when it was killed for exceeding its memory limit."""

    def stop(self, late: str | None) -> None:
        """Ask the child to end the run; `late` means that its timeout is over."""
        if self.child is not None and self.job.token is not None:
            self.child.tell(Stop(token=self.job.token, late=late))

    def take(self, child: ChildProcess, message: Reported | Stepped | Streamed) -> None:
        """Write what the child tells of its run; acknowledge steps and chunks."""
        written: Awaitable[Appended | None]
        match message:
            case Reported(progress=progress):
                self.report(self.job, progress)
                return
            case Stepped(steps=steps, saga=saga):
                job = self.job_now
                self.job_now = replace(job, steps=job.steps + steps, saga=saga or job.saga)
                written = self._record(self.job, steps, saga)
            case Streamed(group=group):
                written = self._append(self.job, group)
        note = asyncio.ensure_future(self._answer(child, message.number, written))
        self._notes.add(note)
        note.add_done_callback(self._notes.discard)

    async def _answer(
        self, child: ChildProcess, number: int, written: Awaitable[Appended | None]
    ) -> None:
        answer = Recorded(number=number)
        try:
            answer = replace(answer, appended=await written)
        except LeaseLost:
            answer = replace(answer, fenced=True)
        except Exception as error:  # noqa: BLE001 - the child's, which waits for it.
            answer = replace(answer, problem=storable(f"{type(error).__name__}: {error}", 1_000))
        child.tell(answer)

    def kill(self) -> None:
        """Kill the child that runs the job."""
        if self.child is not None:
            self.child.kill()


class ChildPool:
    """At most `count` child processes; `recipe` returns how they load the app, or raises."""

    def __init__(self, count: int, recipe: Callable[[], Recipe]) -> None:
        self.count = count
        self._make_recipe = recipe
        self._recipe: Recipe | None = None
        self._places = asyncio.Semaphore(count)
        self._idle: list[ChildProcess] = []
        self._children: list[ChildProcess] = []

    @property
    def living(self) -> list[ChildProcess]:
        """The children whose processes have not ended."""
        return [child for child in self._children if not child.gone.is_set()]

    async def check(self, kinds: Collection[str]) -> None:
        """Start a first child, and check that it finds the handlers of these kinds.

        Raises: ConfigError: the child does not find them.
        """
        try:
            child = await self._start()
        except ChildFailed as error:
            raise ConfigError(f"a child process for isolated jobs cannot start: {error}") from error
        self._put_back(child)
        if missing := sorted(set(kinds) - child.kinds):
            raise ConfigError(
                "child processes import the modules again and find no handler for the isolated "
                f"{'kinds' if len(missing) > 1 else 'kind'} {', '.join(missing)}; register "
                "handlers at module level, not inside a function or under `if __name__ == "
                "'__main__'`, or with isolate=False"
            )

    async def run(self, run: ChildRun) -> Answer:
        """Run a job in a child, and return its answer, or the outcome of its death.

        Raises: ChildFailed: no child can be started. LookupError: the children do not know this
        kind. ConfigError: this app cannot have children at all.
        """
        async with self._places:
            child = await self._take(run)
            try:
                answer = await self._run_in(child, run)
            except BaseException:
                child.kill()
                raise
        if isinstance(answer, Transition | Over):
            if not child.gone.is_set():
                self._put_back(child)
        elif isinstance(answer, StopNoticed):
            child.kill()  # An interrupted handler may have left anything half done, or running.
        return answer

    async def stop(self) -> None:
        """End all children: idle ones may close their values, the others are killed."""
        living = self.living
        for child in living:
            if child in self._idle:
                child.end()
            else:
                child.kill()
        try:
            await _until_gone(living, _CLOSE_SECONDS)
        finally:
            for child in living:
                child.kill()
        await _until_gone(living, _KILL_SECONDS)

    async def _run_in(self, child: ChildProcess, run: ChildRun) -> Answer:
        unseen = None if IS_VISIBLE else run.memory
        elapsed = clock_of(asyncio.get_running_loop())() - run.began
        await child.send(Start(job=run.job, elapsed=elapsed, memory=unseen))
        run.child = child
        run.begun()
        watch = asyncio.ensure_future(self._watch(child, run)) if run.memory else None
        try:
            return await self._listen(child, run)
        finally:
            run.child = None
            if watch is not None:
                watch.cancel()

    async def _listen(self, child: ChildProcess, run: ChildRun) -> Answer:
        begun = False
        while True:
            match await child.receive():
                case Begun():
                    begun = True
                case (Reported() | Stepped() | Streamed()) as message:
                    run.take(child, message)
                case Ending(end=end):
                    run.known = _answer_of(end, run.job)
                case Settled() | Over() as end:
                    return run.known or _answer_of(end, run.job)
                case StopNoticed() as stopped:
                    return stopped
                case _ if run.known is not None:
                    log.warning("child.died", **fields_of(run.job), why=child.ending)
                    return run.known
                case _ if begun:
                    return _outcome_of_death(child, run)
                case _:
                    # A remainder of the previous job, or an outside process, has ended it.
                    raise ChildFailed(f"before it began, {child.ending}")

    async def _watch(self, child: ChildProcess, run: ChildRun) -> None:
        limit = run.memory or 0
        while IS_VISIBLE:
            used = memory_of(child.pid, at_most=limit)
            if used > limit:
                run.used = used
                child.kill()
                return
            await asyncio.sleep(_MEMORY_POLL_SECONDS)

    async def _take(self, run: ChildRun) -> ChildProcess:
        """Return a child that is ready, and whose memory is not already used up by earlier jobs."""
        while self._idle:
            child = self._idle.pop()
            if not child.gone.is_set() and not self._is_full(child, run.memory):
                break
            child.end()
        else:
            child = await self._start()
        if run.job.kind not in child.kinds:
            self._put_back(child)
            raise LookupError(f"a child process found no handler for {run.job.kind!r}")
        return child

    def _is_full(self, child: ChildProcess, limit: int | None) -> bool:
        """Return whether memory left by earlier jobs exceeds half of what this job may add."""
        if limit is None or not IS_VISIBLE:
            return False
        most = child.fresh + max(limit - child.fresh, 0) // 2
        return memory_of(child.pid, at_most=most) > most

    async def _start(self) -> ChildProcess:
        if self._recipe is None:
            self._recipe = self._make_recipe()
        child = ChildProcess(self._recipe)
        self._children = [*self.living, child]
        try:
            await child.prepare(_START_SECONDS)
        except BaseException:
            child.kill()
            raise
        child.fresh = memory_of(child.pid, at_most=0)
        log.debug("child.started", pid=child.pid)
        return child

    def _put_back(self, child: ChildProcess) -> None:
        self._idle.append(child)
        asyncio.get_running_loop().call_later(_IDLE_SECONDS, self._trim, child)

    def _trim(self, child: ChildProcess) -> None:
        self._idle = [idle for idle in self._idle if not idle.gone.is_set()]
        if child in self._idle and len(self._idle) > 1:
            self._idle.remove(child)
            child.end()


async def _until_gone(children: Collection[ChildProcess], patience: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            for child in children:
                await child.gone.wait()


def _answer_of(end: Settled | Over, job: Job) -> Transition | Over:
    return end.transition(job) if isinstance(end, Settled) else end


def _outcome_of_death(child: ChildProcess, run: ChildRun) -> Outcome:
    if run.used is not None and run.memory is not None:
        error = MemoryExceeded(run.used, run.memory)
        return Failed(exception=error, error=describe(error))
    return Crashed(cause="alone", reason=child.ending, log=child.last_words)
