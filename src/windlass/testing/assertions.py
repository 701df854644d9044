"""Owns the assertions about jobs in tests, and their failure messages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from textwrap import indent
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from windlass.app import Draft, Handle, Kind, Producer, Windlass
from windlass.core.jobs.job import Job, NewJob
from windlass.core.jobs.states import WAITING, State
from windlass.core.values.durations import Duration, human, resolve, when
from windlass.store.memory import MemoryStore

What = Producer[Any, Any] | Draft[Any] | Handle[Any] | Kind[Any] | UUID | str
"""Selects jobs: those of a handler or a kind, those with a draft's arguments, or one."""
__tracebackhide__ = True
"""Makes pytest leave out these frames: a failure is shown in the test."""
_ANY: Any = object()
_MAX_JOBS = 10
_MAX_TRACEBACKS = 3
_MAX_PAYLOAD_CHARS = 200


class JobAssertions:
    """Queries and assertions about the jobs of an app on a memory store."""

    def __init__(self, app: Windlass, store: MemoryStore) -> None:
        self._app = app
        self._store = store

    @property
    def now(self) -> datetime:
        """The current time of the store."""
        raise NotImplementedError

    def jobs(self, what: What | None = None, *states: State) -> list[Job]:
        """Return the selected jobs, in the order in which they were enqueued."""
        selection = None if what is None else self._selection(what)
        return [
            job
            for job in self._store.all_jobs()
            if (not states or job.state in states)
            and (selection is None or self._fits(job, selection))
        ]

    # -- jobs by state -------------------------------------------------------------------------

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
        """Check that such a job waits, or `count` of them; return the newest.

        A draft selects jobs with its kind and arguments. `due` is an instant, or a duration from
        now. Jobs that have run do not wait; see `assert_completed`.

        Raises:
            AssertionError: none does, or another number; the message lists the waiting jobs.
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
            AssertionError: none was, or another number; the message says what happened instead.
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
        """Check that such a job is dead, of an error of that type or with that text; return it.

        Raises:
            AssertionError: none is, or another number; the message says what happened instead.
        """
        found = [job for job in self.jobs(what, State.DEAD) if _died_of(job, error)]
        name = error.__qualname__ if isinstance(error, type) else error
        asked = {} if error is None else {"error": name}
        return self._expect("is dead", what, found, count=count, asked=asked)

    def assert_cancelled(self, what: What, *, count: int | None = None) -> Job:
        """Check that such a job was cancelled; return the newest.

        Raises:
            AssertionError: none was, or another number; the message says what happened instead.
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
            message = f"{self._named(what)} has {done} {_steps(found)}, not {_steps(names)}"
            raise AssertionError(f"{message}:\n{self._listed([self._one(what)])}")

    def _entries(self, what: What, *sorts: str) -> list[str]:
        entries = [msgspec.json.decode(entry) for entry in self._one(what).steps]
        names = [entry["name"] for entry in entries if entry.get("entry") in sorts]
        return list(dict.fromkeys(names))  # A repeated entry happened once.

    def _one(self, what: What) -> Job:
        found = self.jobs(what)
        if len(found) != 1:
            message = f"expected one job, but {self._named(what)} matches {len(found)}"
            raise AssertionError(f"{message}; of these:\n{self._listed(found or self.jobs())}")
        return found[0]

    # -- selecting jobs ------------------------------------------------------------------------

    def _selection(self, what: What) -> _Selection:
        match what:
            case Handle():
                return _Selection(id=what.id)
            case UUID():
                return _Selection(id=what)
            case Draft(job=job):
                return _Selection(kind=job.kind, payload=self._decoded(job))
            case Producer():
                return _Selection(kind=what.kind)
            case Kind():
                return _Selection(kind=what.name)
            case _:
                return _Selection(kind=what)

    def _fits(self, job: Job, selection: _Selection) -> bool:
        return (
            selection.id in (None, job.id)
            and selection.kind in (None, job.kind)
            and (selection.payload is _ANY or self._decoded(job) == selection.payload)
        )

    def _decoded(self, job: Job | NewJob) -> Any:
        """Return the arguments decrypted: two ciphertexts of the same value differ."""
        if job.kind in self._app.registry:
            codec = self._app.registry[job.kind].target.codec
            return codec.decode(job.payload, kind=job.kind)
        return msgspec.json.decode(job.payload)

    def _has_result(self, job: Job, result: object) -> bool:
        if job.kind not in self._app.registry:
            return bool(_value(job.result) == result)
        target, limit = self._app.registry[job.kind].target, self._app.settings.max_result
        expected = target.encode_result(job.kind, result, limit=limit)
        return bool(_value(job.result) == _value(expected))

    # -- failure messages ----------------------------------------------------------------------

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
        message = f"no job {became} that is {named}"
        if count is not None:
            message = f"{len(found)} instead of {count} jobs: {became}, {named}"
        raise AssertionError(f"{message}; {self._instead(what)}")

    def _instead(self, what: What) -> str:
        """List the selected jobs in any state, else those of the kind, else all."""
        kind = self._selection(what).kind
        for jobs, title in (
            (self.jobs(what), "it is"),
            (self.jobs(kind) if kind else [], "of its kind there are"),
            (self.jobs(), "all jobs"),
        ):
            if jobs:
                return f"{title}:\n{self._listed(jobs)}"
        return "nothing was enqueued"

    def _named(self, what: What) -> str:
        match what:
            case Draft(job=job):
                return f"{job.kind} {_text(job.payload)}"
            case Handle():
                return f"job {what.id}"
            case UUID():
                return f"job {what}"
            case _:
                return str(self._selection(what).kind)

    def _listed(self, jobs: Sequence[Job]) -> str:
        lines = [f"  {self.describe(job)}{_frames(job)}" for job in jobs[-_MAX_TRACEBACKS:]]
        lines[:0] = [f"  {self.describe(job)}" for job in jobs[-_MAX_JOBS:-_MAX_TRACEBACKS]]
        if len(jobs) > _MAX_JOBS:
            lines.insert(0, f"  ... and {len(jobs) - _MAX_JOBS} before these")
        return "\n".join(lines)

    def describe(self, job: Job) -> str:
        """Return a job and its state in one line."""
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


class _Selection(NamedTuple):
    id: UUID | None = None
    kind: str | None = None
    payload: Any = _ANY


def _has(job: Job, asked: dict[str, Any]) -> bool:
    return all(getattr(job, name) == value for name, value in asked.items())


def _died_of(job: Job, error: type[BaseException] | str | None) -> bool:
    if isinstance(error, type):
        return job.error is not None and job.error.type.split(".")[-1] == error.__name__
    return error is None or error in str(job.error) or error in (job.reason or "")


def _frames(job: Job) -> str:
    if job.error is None or not job.error.traceback:
        return ""
    return "\n" + indent(job.error.traceback, " " * 6)


def _value(result: bytes | None) -> Any:
    return None if result is None else msgspec.json.decode(result)


def _shown(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else repr(value)


def _steps(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def _text(payload: bytes) -> str:
    text = payload.decode(errors="replace")
    return text if len(text) <= _MAX_PAYLOAD_CHARS else f"{text[:_MAX_PAYLOAD_CHARS]}..."
