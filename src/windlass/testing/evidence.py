"""Owns what a test asks of the jobs of its travel, and what it is told where the answer is no."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from windlass.app import Draft, Handle, Kind, Producer, Windlass
from windlass.core.durations import Duration, human, resolve, when
from windlass.core.job import Job, NewJob
from windlass.core.states import WAITING, State
from windlass.store.memory import MemoryStore

What = Producer[Any, Any] | Draft[Any] | Handle[Any] | Kind[Any] | UUID | str
"""Which jobs are meant: those of a handler or a kind, those with a draft's arguments, or one."""
_ANY: Any = object()
_SHOWN = 10
_PAYLOAD_SHOWN = 200


class Evidence:
    """What there is to know about the jobs of an app on a memory store."""

    def __init__(self, app: Windlass, store: MemoryStore) -> None:
        self._app = app
        self._store = store

    @property
    def now(self) -> datetime:
        """What time it is."""
        raise NotImplementedError

    def jobs(self, what: What | None = None, *states: State) -> list[Job]:
        """Return the jobs that are meant, in the order in which they were enqueued."""
        meant = None if what is None else self._meant(what)
        return [
            job
            for job in self._store.all_jobs()
            if (not states or job.state in states) and (meant is None or self._fits(job, meant))
        ]

    # -- what waits, and what became of it -----------------------------------------------------

    def assert_enqueued(
        self,
        what: What,
        *,
        count: int | None = None,
        queue: str | None = None,
        priority: int | None = None,
        key: str | None = None,
        due: Duration | datetime | None = None,
    ) -> Job:
        """Check that such a job waits, or as many as the `count` says; return the newest.

        A draft stands for its kind and its arguments. `due` is a time, or how long it is until
        then: 0 is now. What has run already does not wait; see `assert_completed`.

        Raises:
            AssertionError: none does, or not so many; it says what waits instead.
        """
        at = None if due is None else resolve(when(due), self.now)
        wanted = {"queue": queue, "priority": priority, "key": key, "due_at": at}
        asked = {name: value for name, value in wanted.items() if value is not None}
        found = [job for job in self.jobs(what, *WAITING) if _has(job, asked)]
        return self._expect("waits", what, found, count=count, asked=asked)

    def assert_not_enqueued(self, what: What) -> None:
        """Check that no such job waits.

        Raises:
            AssertionError: one does.
        """
        if found := self.jobs(what, *WAITING):
            raise AssertionError(f"{self._named(what)} waits:\n{self._listed(found)}")

    def assert_completed(
        self, what: What, *, count: int | None = None, result: object = _ANY
    ) -> Job:
        """Check that such a job was completed, with that result if one is given; return the newest.

        Raises:
            AssertionError: none was, or not so many; it says what became of it instead.
        """
        found = self.jobs(what, State.COMPLETED)
        asked = {}
        if result is not _ANY:
            asked["result"] = result
            found = [job for job in found if self._has_result(job, result)]
        return self._expect("was completed", what, found, count=count, asked=asked)

    def assert_dead(
        self,
        what: What,
        *,
        count: int | None = None,
        error: type[BaseException] | str | None = None,
    ) -> Job:
        """Check that such a job is dead, of an error of that type, or with such a text in it.

        Raises:
            AssertionError: none is, or not so many; it says what became of it instead.
        """
        found = [job for job in self.jobs(what, State.DEAD) if _died_of(job, error)]
        told = error.__qualname__ if isinstance(error, type) else error
        asked = {} if error is None else {"error": told}
        return self._expect("is dead", what, found, count=count, asked=asked)

    def assert_cancelled(self, what: What, *, count: int | None = None) -> Job:
        """Check that such a job was cancelled; return the newest.

        Raises:
            AssertionError: none was, or not so many; it says what became of it instead.
        """
        return self._expect("was cancelled", what, self.jobs(what, State.CANCELLED), count=count)

    # -- steps and undos -----------------------------------------------------------------------

    def steps(self, what: What) -> list[str]:
        """Return the names of the steps that one job has finished, in the order of their ends."""
        return self._entries(what, "done", "slept", "waited")

    def undone(self, what: What) -> list[str]:
        """Return the names of the steps that one job has undone, in the order in which it did."""
        return self._entries(what, "undone")

    def assert_steps(self, what: What, *names: str) -> None:
        """Check which steps one job has finished, in their order.

        Raises:
            AssertionError: it was others.
        """
        self._compare("finished", what, self.steps(what), names)

    def assert_undone(self, what: What, *names: str) -> None:
        """Check which steps one job has undone, in their order; none, if no name is given.

        Raises:
            AssertionError: it was others.
        """
        self._compare("undone", what, self.undone(what), names)

    def _compare(self, done: str, what: What, found: Sequence[str], names: Sequence[str]) -> None:
        if list(found) != list(names):
            told = f"{self._named(what)} has {done} {_steps(found)}, not {_steps(names)}"
            raise AssertionError(f"{told}:\n{self._listed([self._one(what)])}")

    def _entries(self, what: What, *sorts: str) -> list[str]:
        entries = [msgspec.json.decode(entry) for entry in self._one(what).steps]
        names = [entry["name"] for entry in entries if entry.get("entry") in sorts]
        return list(dict.fromkeys(names))  # What is said twice has happened once.

    def _one(self, what: What) -> Job:
        found = self.jobs(what)
        if len(found) != 1:
            told = f"one job is meant, and {self._named(what)} is {len(found)}"
            raise AssertionError(f"{told}; of these:\n{self._listed(found or self.jobs())}")
        return found[0]

    # -- which jobs are meant ------------------------------------------------------------------

    def _meant(self, what: What) -> _Meant:
        match what:
            case Handle():
                return _Meant(id=what.id)
            case UUID():
                return _Meant(id=what)
            case Draft(job=job):
                return _Meant(kind=job.kind, payload=self._decoded(job))
            case Producer():
                return _Meant(kind=what.kind)
            case Kind():
                return _Meant(kind=what.name)
            case _:
                return _Meant(kind=what)

    def _fits(self, job: Job, meant: _Meant) -> bool:
        return (
            meant.id in (None, job.id)
            and meant.kind in (None, job.kind)
            and (meant.payload is _ANY or self._decoded(job) == meant.payload)
        )

    def _decoded(self, job: Job | NewJob) -> Any:
        """Return the arguments as a handler has them: of what is sealed, no two are alike."""
        if job.kind in self._app.registry:
            codec = self._app.registry[job.kind].target.codec
            return codec.decode(job.payload, kind=job.kind)
        return msgspec.json.decode(job.payload)

    def _has_result(self, job: Job, result: object) -> bool:
        if job.kind not in self._app.registry:
            return bool(_value(job.result) == result)
        expected = self._app.registry[job.kind].target.encode_result(job.kind, result)
        return bool(_value(job.result) == _value(expected))

    # -- what is told --------------------------------------------------------------------------

    def _expect(
        self,
        became: str,
        what: What,
        found: Sequence[Job],
        *,
        count: int | None,
        asked: dict[str, Any] | None = None,
    ) -> Job:
        if found and count in (None, len(found)):
            return found[-1]
        named = self._named(what)
        if asked:
            named += f" with {', '.join(f'{name}={_shown(each)}' for name, each in asked.items())}"
        told = f"no job {became} that is {named}"
        if count is not None:
            told = f"{len(found)} instead of {count} jobs: {became}, {named}"
        raise AssertionError(f"{told}; {self._instead(what)}")

    def _instead(self, what: What) -> str:
        """Tell of the nearest that there is: the same job, else its kind, else all."""
        kind = self._meant(what).kind
        for jobs, told in (
            (self.jobs(what), "it is"),
            (self.jobs(kind) if kind else [], "of its kind there is"),
            (self.jobs(), "all there is"),
        ):
            if jobs:
                return f"{told}:\n{self._listed(jobs)}"
        return "nothing was enqueued at all"

    def _named(self, what: What) -> str:
        match what:
            case Draft(job=job):
                return f"{job.kind} {_text(job.payload)}"
            case Handle():
                return f"job {what.id}"
            case UUID():
                return f"job {what}"
            case _:
                return str(self._meant(what).kind)

    def _listed(self, jobs: Sequence[Job]) -> str:
        lines = [f"  {self.describe(job)}" for job in jobs[-_SHOWN:]]
        if len(jobs) > _SHOWN:
            lines.insert(0, f"  ... and {len(jobs) - _SHOWN} before these")
        return "\n".join(lines)

    def describe(self, job: Job) -> str:
        """Tell what a job is and how it stands, in one line."""
        parts = [job.kind, _text(job.payload), job.state.value]
        if job.state is State.SCHEDULED:
            left = job.due_at - self.now
            parts.append(f"for {job.waiting_for}" if job.waiting_for else f"in {human(left)}")
        parts.append(f"queue={job.queue}")
        parts += [f"priority={job.priority}"] if job.priority else []
        parts += [f"key={job.key}"] if job.key else []
        parts += [f"attempt={job.attempt}"] if job.attempt else []
        parts += [f"result={_text(job.result)}"] if job.result else []
        parts += [f"error={job.error}"] if job.error else []
        return " ".join(parts + ([f"({job.reason})"] if job.reason else []))


class _Meant(NamedTuple):
    """What has to be so of a job that is meant."""

    id: UUID | None = None
    kind: str | None = None
    payload: Any = _ANY


def _has(job: Job, asked: dict[str, Any]) -> bool:
    return all(getattr(job, name) == value for name, value in asked.items())


def _died_of(job: Job, error: type[BaseException] | str | None) -> bool:
    if isinstance(error, type):
        return job.error is not None and job.error.type.split(".")[-1] == error.__name__
    return error is None or error in str(job.error) or error in (job.reason or "")


def _value(result: bytes | None) -> Any:
    return None if result is None else msgspec.json.decode(result)


def _shown(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def _steps(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _text(payload: bytes) -> str:
    text = payload.decode(errors="replace")
    return text if len(text) <= _PAYLOAD_SHOWN else f"{text[:_PAYLOAD_SHOWN]}..."
