"""Owns the pool of child processes: warm, lent to one job after the other, replaced when they die.

A child that was told to stop, or died, is not used again. Those idle for a while are ended, down to
one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress

from msgspec.structs import replace

from windlass.core.errors import ConfigError, Fenced, MemoryExceeded
from windlass.core.failure import describe
from windlass.core.job import Job, Progress, Saga
from windlass.core.outcomes import Crashed, Failed, Outcome
from windlass.core.settle import Transition
from windlass.core.text import storable
from windlass.observe.logs import get_logger
from windlass.runtime.process import ChildFailed, ChildProcess
from windlass.runtime.usage import IS_VISIBLE, memory_of
from windlass.runtime.words import (
    Begun,
    Heeded,
    Over,
    Recipe,
    Recorded,
    Reported,
    Settled,
    Start,
    Stepped,
    Stop,
)

log = get_logger("windlass.children")
Answer = Outcome | Transition | Heeded | Over
_LOOK = 0.05
"""Seconds between two looks at the memory that a job uses."""
_IDLE = 60.0
_START = 60.0
_CLOSING = 1.5
"""Seconds in which idle children may close their resources when the worker ends."""
_END = 0.4


class Errand:
    """One job on its way through a child, and the means to stop it from outside."""

    __slots__ = (
        "_notes", "begun", "child", "elapsed", "job", "job_now", "memory", "record", "report",
        "used",
    )  # fmt: skip

    def __init__(
        self,
        *,
        job: Job,
        memory: int | None,
        elapsed: Callable[[], float],
        begun: Callable[[], None],
        report: Callable[[Job, Progress], None],
        record: Callable[[Job, tuple[str, ...], Saga | None], Awaitable[None]],
    ) -> None:
        self.job = self.job_now = job
        self.memory = memory
        self.elapsed = elapsed
        self.begun = begun
        self.report = report
        self.record = record
        self._notes: set[asyncio.Task[None]] = set()
        self.child: ChildProcess | None = None
        """The child that runs it; None before it has been handed over."""
        self.used: int | None = None
        """What it used when it was killed because that was too much."""

    def stop(self, late: str | None) -> None:
        """Ask the child to end the run, `late` if its time is up."""
        if self.child is not None and self.job.token is not None:
            self.child.tell(Stop(token=self.job.token, late=late))

    def take_step(self, child: ChildProcess, word: Stepped) -> None:
        """Record a step that the child has come to, and tell it when that is done."""
        job = self.job_now
        self.job_now = replace(job, steps=job.steps + word.steps, saga=word.saga or job.saga)
        note = asyncio.ensure_future(self._record(child, word))
        self._notes.add(note)
        note.add_done_callback(self._notes.discard)

    async def _record(self, child: ChildProcess, word: Stepped) -> None:
        answer = Recorded(number=word.number)
        try:
            await self.record(self.job, word.steps, word.saga)
        except Fenced:
            answer = replace(answer, fenced=True)
        except Exception as error:  # noqa: BLE001 - the child's, which waits for it.
            answer = replace(answer, problem=storable(f"{type(error).__name__}: {error}", 1_000))
        child.tell(answer)

    def kill(self) -> None:
        """End the child that runs it."""
        if self.child is not None:
            self.child.kill()


class Children:
    """At most `count` children at work; `recipe` says how they get the app, and may refuse."""

    def __init__(self, count: int, recipe: Callable[[], Recipe]) -> None:
        self.count = count
        self._make_recipe = recipe
        self._recipe: Recipe | None = None
        self._places = asyncio.Semaphore(count)
        self._idle: list[ChildProcess] = []
        self._living: set[ChildProcess] = set()

    async def check(self, kinds: Collection[str]) -> None:
        """Start a first child, and make sure that it finds the handlers of these kinds.

        Raises:
            ConfigError: it does not.
        """
        try:
            child = await self._start()
        except ChildFailed as error:
            raise ConfigError(f"a child process for isolated jobs cannot start: {error}") from error
        self._put_back(child)
        if missing := sorted(set(kinds) - child.kinds):
            raise ConfigError(
                f"the isolated {'kinds' if len(missing) > 1 else 'kind'} {', '.join(missing)} "
                "cannot be found by a child process, which imports the modules again: register "
                "handlers when their module is imported, not inside a function or under "
                "`if __name__ == '__main__'`, or register them with isolate=False"
            )

    async def run(self, errand: Errand) -> Answer:
        """Let a child run a job, and return what it says, or what is to be said of its death.

        Raises:
            ChildFailed: none can be started.
            LookupError: the children do not know this kind.
            ConfigError: this app cannot have children at all.
        """
        async with self._places:
            child = await self._take(errand)
            try:
                answer = await self._run_in(child, errand)
            except BaseException:
                child.kill()
                raise
        if isinstance(answer, Transition | Over):
            self._put_back(child)
        elif isinstance(answer, Heeded):
            child.kill()  # An interrupted handler may have left anything half done, or running.
        return answer

    async def stop(self) -> None:
        """End all children: the idle may close what they have open, and whatever else is killed."""
        living = list(self._living)
        for child in living:
            if child in self._idle:
                child.end()
            else:
                child.kill()
        try:
            await _until_gone(living, _CLOSING)
        finally:
            for child in living:
                child.kill()
        await _until_gone(living, _END)

    async def _run_in(self, child: ChildProcess, errand: Errand) -> Answer:
        unseen = None if IS_VISIBLE else errand.memory
        await child.send(Start(job=errand.job, elapsed=errand.elapsed(), memory=unseen))
        errand.child = child
        errand.begun()
        watch = asyncio.ensure_future(self._watch(child, errand)) if errand.memory else None
        try:
            return await self._listen(child, errand)
        finally:
            errand.child = None
            if watch is not None:
                watch.cancel()

    async def _listen(self, child: ChildProcess, errand: Errand) -> Answer:
        begun = False
        while True:
            match await child.receive():
                case Begun():
                    begun = True
                case Reported(progress=progress):
                    errand.report(errand.job, progress)
                case Stepped() as step:
                    errand.take_step(child, step)
                case Settled() as settled:
                    return settled.transition(errand.job)
                case Heeded() | Over() as word:
                    return word
                case _ if begun:
                    return _obituary(child, errand)
                case _:
                    # Something that the last job left, or somebody else, has ended it.
                    raise ChildFailed(f"before it began, {child.ending}")

    async def _watch(self, child: ChildProcess, errand: Errand) -> None:
        """Kill a child whose job takes more memory than it may."""
        limit = errand.memory or 0
        while IS_VISIBLE:
            used = memory_of(child.pid, at_most=limit)
            if used > limit:
                errand.used = used
                child.kill()
                return
            await asyncio.sleep(_LOOK)

    async def _take(self, errand: Errand) -> ChildProcess:
        """Return a child that is ready, and has not filled up already with what others left."""
        while self._idle:
            child = self._idle.pop()
            if not child.gone.is_set() and not self._is_full(child, errand.memory):
                break
            child.end()
        else:
            child = await self._start()
        if errand.job.kind not in child.kinds:
            self._put_back(child)
            raise LookupError(f"a child process finds no handler of {errand.job.kind!r}")
        return child

    def _is_full(self, child: ChildProcess, limit: int | None) -> bool:
        """Say whether what earlier jobs left takes more than half of what this one may add."""
        if limit is None or not IS_VISIBLE:
            return False
        most = child.fresh + max(limit - child.fresh, 0) // 2
        return memory_of(child.pid, at_most=most) > most

    async def _start(self) -> ChildProcess:
        if self._recipe is None:
            self._recipe = self._make_recipe()
        child = ChildProcess(self._recipe, self._forget)
        self._living.add(child)
        try:
            await child.prepare(_START)
        except BaseException:
            child.kill()
            raise
        child.fresh = memory_of(child.pid, at_most=0)
        log.debug("child.started", pid=child.pid)
        return child

    def _forget(self, child: ChildProcess) -> None:
        self._living.discard(child)
        if child in self._idle:
            self._idle.remove(child)

    def _put_back(self, child: ChildProcess) -> None:
        self._idle.append(child)
        asyncio.get_running_loop().call_later(_IDLE, self._trim, child)

    def _trim(self, child: ChildProcess) -> None:
        if child in self._idle and len(self._idle) > 1:
            self._idle.remove(child)
            child.end()


async def _until_gone(children: Collection[ChildProcess], patience: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(patience):
            for child in children:
                await child.gone.wait()


def _obituary(child: ChildProcess, errand: Errand) -> Outcome:
    """Say what the death of a child means for its job."""
    if errand.used is not None and errand.memory is not None:
        error = MemoryExceeded(errand.used, errand.memory)
        return Failed(exception=error, error=describe(error))
    return Crashed(cause="alone", reason=child.ending, log=child.last_words)
