"""Owns the definition of a schedule: when it is due, and the job that it makes."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, get_args
from uuid import UUID

from msgspec import Struct

from windlass.core.errors import ConfigError
from windlass.core.jobs.job import OVERLAP, SCHEDULE, TICK, NewJob, UniqueKey
from windlass.core.payloads.secret import MARK
from windlass.core.schedules.cron import Cadence
from windlass.core.values.durations import Duration, duration, human

CatchUp = Literal["skip", "latest", "all"]
"""The fate of ticks that no worker served in time: none, one for all of them, or each."""


Overlap = Literal["skip", "queue", "allow"]
"""The effect of a tick while the job of the last one is unfinished: no job, a later one, or one."""


class Template(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The job of every tick: the parts that do not change from one to the next."""

    kind: str
    payload: str
    queue: str
    priority: int = 0
    key: str = ""
    delay: timedelta | None = None
    expires: timedelta | None = None
    max_retries: int | None = None
    timeout: timedelta | None = None
    unique: str | None = None
    unique_until: Literal["claimed", "settled"] | None = None
    unique_for: timedelta | None = None
    on_duplicate: Literal["keep", "replace", "push", "supersede"] = "keep"
    headers: dict[str, str] = {}

    def made(self, job_id: UUID, headers: dict[str, str]) -> NewJob:
        unique = None
        if self.unique is not None:
            until = self.unique_until or self.unique_for or "settled"
            unique = UniqueKey(key=self.unique, until=until, on_duplicate=self.on_duplicate)
        return NewJob(
            id=job_id,
            kind=self.kind,
            payload=self.payload.encode(),
            queue=self.queue,
            priority=self.priority,
            key=self.key,
            due=self.delay,
            expires=self.expires,
            max_retries=self.max_retries,
            timeout=self.timeout,
            unique=unique,
            headers=headers,
        )


def template(job: NewJob) -> Template:
    """Return the template of every tick, from a draft of such a job."""
    if isinstance(job.due, datetime) or isinstance(job.expires, datetime):
        raise ConfigError(
            "a schedule cannot use `at` or `expires` with a fixed time, since it has many jobs; "
            "use delay= or a duration"
        )
    payload = job.payload.decode()
    if f'"{MARK}"' in payload:
        raise ConfigError(
            "a schedule cannot keep a Secret, since `windlass keys rotate` does not reach it; "
            "let the handler look it up"
        )
    unique, until = job.unique, None if job.unique is None else job.unique.until
    return Template(
        kind=job.kind,
        payload=payload,
        queue=job.queue,
        priority=job.priority,
        key=job.key,
        delay=job.due,
        expires=job.expires,
        max_retries=job.max_retries,
        timeout=job.timeout,
        unique=None if unique is None else unique.key,
        unique_until=None if isinstance(until, timedelta) else until,
        unique_for=until if isinstance(until, timedelta) else None,
        on_duplicate="keep" if unique is None else unique.on_duplicate,
        headers=job.headers,
    )


class Schedule(Struct, frozen=True, kw_only=True):
    """A recurring job: its times, its template and its policies."""

    job: Template
    cadence: Cadence
    jitter: timedelta = timedelta(0)
    catch_up: CatchUp = "latest"
    catch_up_limit: int = 100
    overlap: Overlap = "skip"
    declared: bool = False
    """Whether it is part of an app's code, so that it ticks only where that code runs."""

    def job_of(self, job_id: UUID, name: str, tick: datetime) -> NewJob:
        headers = {**self.job.headers, SCHEDULE: name, TICK: tick.isoformat()}
        if self.overlap == "queue":
            headers[OVERLAP] = self.overlap
        return self.job.made(job_id, headers)


class Manner(Struct, frozen=True, kw_only=True):
    """The times and policies of a schedule, as a user gave them."""

    jitter: Duration = 0
    """By how much at most each tick is delayed at random."""
    catch_up: CatchUp = "latest"
    """For ticks that no worker served in time: `skip`, one job for the `latest`, or for `all`."""
    catch_up_limit: int = 100
    """How many missed ticks are made up for at most."""
    overlap: Overlap | None = None
    """While the job of the last tick is unfinished: `skip` the tick, `queue` a job that follows it,
    or `allow` both at once; unless given, `queue` with `catch_up="all"`, else `skip`."""

    def schedule(self, job: NewJob, cadence: Cadence, *, declared: bool) -> Schedule:
        """Check them, and return the schedule."""
        self._check()
        return Schedule(
            job=template(job),
            cadence=cadence,
            jitter=self._spread(cadence),
            catch_up=self.catch_up,
            catch_up_limit=self.catch_up_limit,
            overlap=self.overlap or ("queue" if self.catch_up == "all" else "skip"),
            declared=declared,
        )

    def _check(self) -> None:
        for name, given, known in (
            ("catch_up", self.catch_up, get_args(CatchUp)),
            ("overlap", self.overlap or "skip", get_args(Overlap)),
        ):
            if given not in known:
                raise ConfigError(f"{name} must be one of {', '.join(known)}, got {given!r}")
        if self.catch_up == "all" and self.overlap == "skip":
            raise ConfigError(
                'catch_up="all" cannot be combined with overlap="skip"; write overlap="queue" '
                '(one after the other) or overlap="allow" (all at once)'
            )
        limit = self.catch_up_limit
        if type(limit) is not int or not 1 <= limit <= 1_000:
            raise ConfigError(f"catch_up_limit must be between 1 and 1000, got {limit!r}")

    def _spread(self, cadence: Cadence) -> timedelta:
        try:
            jitter = duration(self.jitter, "jitter")
        except (TypeError, ValueError) as error:
            raise ConfigError(str(error)) from None
        if jitter > cadence.gap:
            raise ConfigError(
                f"jitter must be at most the time between two ticks, {human(cadence.gap)}, got "
                f"{self.jitter!r}"
            )
        return jitter
