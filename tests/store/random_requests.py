"""Owns the random jobs, outcomes, news and moves with which the stores are driven."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TypeVar
from uuid import UUID

from hypothesis import strategies as st

from tests.support.clocked_stores import START
from windlass.core.claims.lanes import Ask
from windlass.core.errors import PermanentError
from windlass.core.failures.describe import describe
from windlass.core.jobs.job import IDEMPOTENCY_KEY, Job, Lane, UniqueKey
from windlass.core.jobs.moves import Verb
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

SECOND = timedelta(seconds=1)
LEASE = 30 * SECOND
EVERYTHING = 100_000
BROKEN, HOPELESS = ValueError("broken"), PermanentError("hopeless")
index = st.integers(0, 50)
limits = st.sampled_from((0, 1, 2, EVERYTHING))
workers = st.sampled_from(("anna", "bert", "cleo"))
KINDS = ("mail", "report")
kinds = st.sampled_from(KINDS)
dues = st.sampled_from((None, None, SECOND, 20 * SECOND, START - SECOND, START + LEASE))

outcomes: st.SearchStrategy[Outcome] = st.sampled_from(
    (
        Succeeded(result=b"1"),
        Succeeded(),
        Failed(exception=BROKEN, error=describe(BROKEN)),
        Failed(exception=HOPELESS, error=describe(HOPELESS)),
        TimedOut(after=SECOND),
        Snoozed(due=10 * SECOND),
        Snoozed(due=START),
        Cancelled(reason="moot"),
        Released(reason="shutdown"),
        Crashed(cause="lease", reason="lost"),
    )
)

news: st.SearchStrategy[dict[str, object]] = st.builds(
    dict,
    kind=kinds,
    priority=st.sampled_from((0, 0, 0, 5)),
    key=st.sampled_from(("", "", "", "tenant")),
    due=dues,
    expires=dues,
    max_retries=st.sampled_from((None, None, 0, 1)),
    headers=st.sampled_from(
        ({}, {"trace": "1"}, {IDEMPOTENCY_KEY: "1"}, {IDEMPOTENCY_KEY: "2", "trace": "1"})
    ),
)

uniques = st.builds(
    UniqueKey,
    key=st.sampled_from(("a", "b")),
    until=st.sampled_from(("settled", "claimed", 15 * SECOND)),
    on_duplicate=st.sampled_from(("keep", "replace", "push", "supersede")),
)

asks = st.builds(
    Ask,
    lane=st.builds(
        Lane,
        queue=st.just("default"),
        kind=kinds,
        priority=st.sampled_from((0, 0, 0, 5)),
        key=st.sampled_from(("", "", "", "tenant")),
    ),
    count=st.integers(0, 3),
    draws=st.sampled_from(((), ("slots",), ("slots", "threads"))),
)

_verbs = tuple(verb for verb in Verb if verb is not Verb.TAKE)  # It needs a worker.
moves = st.sampled_from((*_verbs, Verb.CANCEL, Verb.REDRIVE, Verb.UNPARK))
T = TypeVar("T")


def latest(choices: Sequence[T], pick: int) -> T:
    """Choose from a list that changes, the latest first."""
    return choices[-1 - pick % len(choices)]


def token_of(jobs: Mapping[UUID, Job], claim: Job) -> int | None:
    job = jobs.get(claim.id)
    return None if job is None else job.token
