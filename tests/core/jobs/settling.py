"""Owns the job that tests settle, and random outcomes and policies."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from hypothesis import settings
from hypothesis import strategies as st
from msgspec.structs import replace

from windlass.core.errors import PayloadInvalid, PermanentError, RetryAfter, StoreUnavailable
from windlass.core.failures.describe import describe
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import Job
from windlass.core.jobs.outcomes import (
    Cancelled,
    Crashed,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    TimedOut,
)
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.settle import Policy, Transition, settle
from windlass.core.jobs.states import State

NOW = datetime(2026, 1, 1, tzinfo=UTC)
TOKEN = 0x5EED_5EED_5EED_5EED

JOB = Job(
    id=job_id(0, 0),
    kind="send",
    queue="mail",
    priority=0,
    key="",
    state=State.RUNNING,
    payload=b"{}",
    due_at=NOW - timedelta(minutes=1),
    created_at=NOW - timedelta(minutes=1),
    started_at=NOW - timedelta(seconds=7),
    attempt=1,
    worker="worker-1",
    token=TOKEN,
)

POLICY = Policy(retry=Retry())


def failed(error: BaseException) -> Failed:
    return Failed(exception=error, error=describe(error))


def settled(
    outcome: Outcome, *, job: Job = JOB, policy: Policy = POLICY, jitter: float = 0.0
) -> Transition:
    return settle(job, outcome, policy, now=NOW, jitter=jitter)


def after(job: Job, move: Transition) -> Job:
    """Return the job as the store holds it once it is claimed again after this transition."""
    return replace(
        job,
        attempt=job.attempt + 1,
        failures=job.failures + move.failures,
        crashes=job.crashes + move.crashes,
        history=job.history if move.attempt is None else (*job.history, move.attempt),
    )


quick = settings(max_examples=40)
texts = st.text(max_size=20)

outcomes: st.SearchStrategy[Outcome] = st.one_of(
    st.builds(Succeeded, result=st.none() | st.binary(max_size=5)),
    st.builds(
        failed,
        st.sampled_from(
            [
                ValueError("bad"),
                ConnectionError("refused"),
                PermanentError("gone"),
                PayloadInvalid("send", "to", "missing"),
                RetryAfter("9m"),
                RetryAfter(NOW + timedelta(days=1)),
                StoreUnavailable("away"),
                MemoryError(),
                ExceptionGroup("several", [ValueError("bad"), MemoryError()]),
                asyncio.CancelledError(),
                KeyboardInterrupt(),
                SystemExit(1),
            ]
        ),
    ),
    st.builds(TimedOut, after=st.timedeltas(timedelta(0), timedelta(days=1))),
    st.builds(Snoozed, due=st.timedeltas(timedelta(0), timedelta(days=1)) | st.just(NOW)),
    st.builds(Cancelled, reason=texts),
    st.builds(Released, reason=texts),
    st.builds(Crashed, cause=st.sampled_from(["alone", "process", "lease", "host"]), reason=texts),
)

retries = st.sampled_from(
    [
        Retry(),
        Retry.network(),
        Retry.never(),
        Retry(on={ConnectionError: Retry.rate_limit(), TimeoutError: Retry.never()}),
        Retry(when=lambda error: not isinstance(error, ValueError)),
    ]
)

policies = st.builds(
    Policy, retry=retries, max_retries=st.integers(0, 5), max_crashes=st.integers(0, 5)
)

jobs = st.builds(
    lambda attempt, failures, crashes, own, started, cancel: replace(
        JOB,
        attempt=attempt,
        failures=failures,
        crashes=crashes,
        max_retries=own,
        started_at=started,
        cancel_requested=cancel,
    ),
    st.integers(1, 10_000),
    st.integers(0, 10_000),
    st.integers(0, 10),
    st.none() | st.integers(0, 10_000),
    st.none() | st.just(NOW) | st.just(NOW + timedelta(seconds=5)),
    st.booleans(),
)

jitters = st.floats(0, 1, exclude_max=True)
