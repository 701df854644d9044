"""The four stores, driven by the same rules on one clock, always show the same.

The memory store is the readable reference; a difference is a bug in one of them. The machine is
tested as well: with the fence taken out of a store it must turn red.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from uuid import UUID

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.clocked_stores import START, Clocked
from tests.support.redis_fixtures import CLOCK, ClockedRedis
from tests.support.redis_indexes import check_indexes
from windlass.core.changes import Applied, Changes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.errors import LeaseLost, PermanentError
from windlass.core.failures.describe import describe
from windlass.core.jobs.ids import job_id
from windlass.core.jobs.job import (
    HISTORY_KEPT,
    IDEMPOTENCY_KEY,
    Enqueued,
    Job,
    Lane,
    NewJob,
    Progress,
    UniqueKey,
)
from windlass.core.jobs.moves import FROM, Move, Verb
from windlass.core.jobs.origin import Origin
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
from windlass.core.jobs.queries import JobFilter, Retention
from windlass.core.jobs.retry import Retry
from windlass.core.jobs.settle import Policy, Transition, settle
from windlass.core.jobs.states import FINISHED, State
from windlass.core.records import Json
from windlass.core.stats.depths import QueueCount
from windlass.core.workers import WorkerInfo, WorkerPulse
from windlass.store.memory import MemoryStore
from windlass.store.memory.job_index import JobIndex
from windlass.store.postgres import PostgresStore
from windlass.store.protocol import Store
from windlass.store.redis import RedisStore
from windlass.store.redis.connections.script import Script
from windlass.store.redis.script_files import load_scripts
from windlass.store.sqlite import SqliteStore

T = TypeVar("T")

SECOND = timedelta(seconds=1)
LEASE = 30 * SECOND
PATIENCE = timedelta(seconds=10)
EVERYTHING = 100_000
POLICY = Policy(retry=Retry(), max_retries=2, max_crashes=2)
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
moves = st.sampled_from((*Verb, Verb.CANCEL, Verb.REDRIVE, Verb.UNPARK))


class StoresAgree(RuleBasedStateMachine):
    """Does everything four times, and compares."""

    reference: type[MemoryStore]
    database: Clocked
    redis_clock: ClockedRedis
    postgres: PostgresStore
    redis: RedisStore
    loop: asyncio.AbstractEventLoop

    def __init__(self) -> None:
        super().__init__()
        self.database.empty()
        self.redis_clock.empty()
        self.numbers = 0
        self.new: list[NewJob] = []
        self.claimed: list[Job] = []
        self.before: dict[UUID, Job] = {}
        self.spent: set[tuple[UUID, int]] = set()
        self.directory = TemporaryDirectory()
        path = Path(self.directory.name) / "jobs.db"
        self.memory = self.reference(size=EVERYTHING, clock=lambda: self.now)
        self.sqlite = SqliteStore(path, clock=lambda: self.now)
        self.others: dict[str, Store] = {
            "sqlite": self.sqlite,
            "postgres": self.postgres,
            "redis": self.redis,
        }
        for worker in ("anna", "bert"):
            self.register(worker)

    def teardown(self) -> None:
        self.loop.run_until_complete(self.sqlite.close())
        self.directory.cleanup()

    # -- means ---------------------------------------------------------------------------------

    @property
    def now(self) -> datetime:
        return self.database()

    def pass_time(self, span: timedelta) -> None:
        self.set_time(self.now + span)

    def set_time(self, now: datetime) -> None:
        self.database.set(now)
        self.redis_clock.set(now)

    def each(self, act: Callable[[Store], Awaitable[T]]) -> T:
        """Do something to every store, see that they answer alike, and return the answer."""

        async def run() -> tuple[T, dict[str, T]]:
            answers = {name: await act(store) for name, store in self.others.items()}
            return await act(self.memory), answers

        expected, answers = self.loop.run_until_complete(run())
        for name, answer in answers.items():
            assert answer == expected, f"{name} differs"
        return expected

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def make(self, fields: Mapping[str, object], unique: UniqueKey | None = None) -> NewJob:
        number = self.number()
        # Ids do not tell the order of insertion: producers' clocks differ.
        made = int(self.now.timestamp() * 1_000) + number * 7 % 10
        identity = job_id(made, number)
        new = NewJob(
            id=identity,
            payload=b'{"n":%d}' % number,
            unique=unique,
            origin=Origin(os.getpid()),
            **fields,  # type: ignore[arg-type]
        )
        self.new.append(new)
        return new

    def enqueue(self, *new: NewJob) -> list[Enqueued]:
        return self.each(lambda store: store.enqueue(new))

    def settle(self, *transitions: Transition) -> list[bool]:
        return self.each(lambda store: store.settle(transitions))

    def transition(self, job: Job, outcome: Outcome) -> Transition:
        return settle(job, outcome, POLICY, now=self.now, jitter=0.5)

    def live(self) -> list[Job]:
        """Return the claims that still hold their jobs."""
        return [job for job in self.claimed if _token(self.before, job) == job.token]

    def robbed(self) -> list[Job]:
        """Return the claims of jobs that run under another token by now."""
        return [job for job in self.claimed if _token(self.before, job) not in (None, job.token)]

    def has_jobs(self) -> bool:
        return bool(self.new)

    def has_claims(self) -> bool:
        return bool(self.claimed)

    def has_live(self) -> bool:
        return bool(self.live())

    def has_robbed(self) -> bool:
        return bool(self.robbed())

    # -- producers -----------------------------------------------------------------------------

    @initialize(fields=st.lists(news, min_size=3, max_size=6))
    def there_are_jobs(self, fields: list[dict[str, object]]) -> None:
        self.jobs_are_enqueued(fields)

    @rule(fields=st.lists(news, min_size=2, max_size=5))
    def jobs_are_enqueued(self, fields: list[dict[str, object]]) -> None:
        self.enqueue(*[self.make(each) for each in fields])

    @rule(fields=news, keys=st.lists(uniques, min_size=1, max_size=3))
    def unique_jobs_are_enqueued(self, fields: dict[str, object], keys: list[UniqueKey]) -> None:
        self.enqueue(*[self.make(fields, key) for key in keys])

    @precondition(has_jobs)
    @rule(pick=index)
    def an_enqueue_is_repeated(self, pick: int) -> None:
        new = _pick(self.new, pick)
        changes = new.unique is not None and new.unique.on_duplicate != "keep"
        if changes and new.id not in self.before:
            return  # It changed the holder of its key, and only PostgreSQL remembers that.
        self.enqueue(new, new)

    # -- workers -------------------------------------------------------------------------------

    @rule(
        worker=workers,
        asks=st.lists(asks, min_size=1, max_size=4),
        slots=st.integers(0, 4),
        threads=st.integers(0, 2),
    )
    def jobs_are_claimed(self, worker: str, asks: list[Ask], slots: int, threads: int) -> None:
        claim = Claim(asks=tuple(asks), budgets={"slots": slots, "threads": threads})
        token = self.number()
        self.claimed += self.each(lambda store: store.claim(claim, worker=worker, token=token))

    @rule(worker=workers)
    def whatever_waits_is_claimed(self, worker: str) -> None:
        if not self.each(lambda store: _beat(store, worker, WorkerPulse())):
            self.register(worker)
        token = self.number()

        async def take(store: Store) -> list[Job]:
            heads = sorted((await store.sweep()).heads, key=lambda head: head.lane)
            claim = Claim(asks=tuple(Ask(lane=head.lane, count=2) for head in heads))
            return await store.claim(claim, worker=worker, token=token)

        self.claimed += self.each(take)

    @precondition(has_live)
    @rule(results=st.lists(outcomes, min_size=1, max_size=4))
    def claims_are_settled(self, results: list[Outcome]) -> None:
        batch = [self.transition(*pair) for pair in zip(self.live(), results, strict=False)]
        assert all(self.settle(*batch))

    @precondition(has_robbed)
    @rule(pick=index, outcome=outcomes)
    def a_stale_claim_is_settled(self, pick: int, outcome: Outcome) -> None:
        assert self.settle(self.transition(_pick(self.robbed(), pick), outcome)) == [False]

    @precondition(has_live)
    @rule(pick=index, worker=workers, outcome=st.just(Succeeded()) | outcomes)
    def a_job_changes_hands_before_it_is_settled(
        self, pick: int, worker: str, outcome: Outcome
    ) -> None:
        job = _pick(self.live(), pick)
        late = self.transition(job, outcome)
        assert self.settle(self.transition(job, Released(reason="shutdown"))) == [True]
        self.whatever_waits_is_claimed(worker)
        assert self.settle(late) == [False]

    @precondition(has_claims)
    @rule(picks=st.lists(st.tuples(index, outcomes), min_size=1, max_size=4))
    def any_claims_are_settled(self, picks: list[tuple[int, Outcome]]) -> None:
        self.settle(
            *[self.transition(_pick(self.claimed, pick), outcome) for pick, outcome in picks]
        )

    @precondition(has_live)
    @rule(pick=index, outcome=outcomes)
    def an_acknowledgement_is_repeated(self, pick: int, outcome: Outcome) -> None:
        transition = self.transition(_pick(self.live(), pick), outcome)
        assert self.settle(transition, transition) == [True, False]
        assert self.settle(transition) == [False]

    @precondition(has_claims)
    @rule(pick=index, fraction=st.sampled_from((0.0, 0.25, 1.0)))
    def progress_is_told(self, pick: int, fraction: float) -> None:
        job = _pick(self.claimed, pick)
        told = Progress(fraction=fraction, message="on its way")
        self.each(lambda store: store.progress(job.id, job.token or 0, told))

    @rule(limit=limits, wait=st.sampled_from(("no", "for the next", "for most")))
    def due_jobs_are_promoted(self, limit: int, wait: str) -> None:
        if wait == "for the next" and (due := self.each(_next_due)) is not None:
            self.set_time(max(self.now, due))
        if wait == "for most":
            self.pass_time(LEASE)
        self.each(lambda store: store.promote(limit))

    @rule(worker=workers, what=st.sampled_from(("register", "beat", "beat", "retire", "rescue")))
    def a_worker_does_something(self, worker: str, what: str) -> None:
        getattr(self, what)(worker)

    def register(self, worker: str) -> None:
        self.each(lambda store: store.register(_info(worker)))

    def beat(self, worker: str) -> None:
        pulse = WorkerPulse(processed=self.number())
        self.each(lambda store: _beat(store, worker, pulse))

    def retire(self, worker: str) -> None:
        self.each(lambda store: store.retire(worker))

    def rescue(self, worker: str, limit: int = EVERYTHING) -> None:
        token = self.number()
        self.claimed += self.each(
            lambda store: store.rescue(worker=worker, token=token, limit=limit)
        )

    @rule(worker=workers, limit=limits)
    def a_worker_serves_a_whole_lease_and_rescues(self, worker: str, limit: int) -> None:
        for _ in range(4):
            self.pass_time(LEASE / 3)
            self.beat(worker)
        self.rescue(worker, limit)

    # -- people and time -----------------------------------------------------------------------

    @precondition(has_jobs)
    @rule(pick=index, verb=moves, event=st.sampled_from(("", "event")))
    def any_job_is_moved(self, pick: int, verb: Verb, event: str) -> None:
        self.move(verb, _pick(self.new, pick).id, event)

    @rule(pick=index, verb=moves)
    def a_job_that_can_be_is_moved(self, pick: int, verb: Verb) -> None:
        able = [job.id for job in self.before.values() if job.state in FROM[verb]]
        if able:
            self.move(verb, _pick(able, pick), "event")

    def move(self, verb: Verb, job: UUID, event: str) -> None:
        move = Move(verb=verb, id=job, reason="why", waiting_for=event)
        changes = Changes(answer=None, moves=[move])
        self.each(lambda store: store.apply([], lambda _records, _now: changes))

    @precondition(has_claims)
    @rule(
        pick=st.integers(0, 5),
        outcome=outcomes,
        fields=news,
        key=st.none() | uniques,
        verb=moves,
        other=index,
    )
    def a_whole_change_is_made(
        self,
        pick: int,
        outcome: Outcome,
        fields: dict[str, object],
        key: UniqueKey | None,
        verb: Verb,
        other: int,
    ) -> None:
        new = self.make(fields, key)
        done = self.transition(_pick(self.live() or self.claimed, pick), outcome)
        move = Move(verb=verb, id=_pick(self.new, other).id, waiting_for="event")

        def decide(records: Mapping[str, Json], now: datetime) -> Changes[datetime]:
            count: int = records.get("count", {"n": 0})["n"] + 1
            record = {"n": count} if count % 5 else None
            return Changes(
                answer=now, records={"count": record}, enqueue=[new], settle=[done], moves=[move]
            )

        async def apply(store: Store) -> Applied[datetime] | UUID:
            try:
                return await store.apply(["count"], decide)
            except LeaseLost as fenced:
                return fenced.job_id

        self.each(apply)

    @rule(finished=st.sampled_from((None, SECOND, LEASE)), dead=st.sampled_from((None, LEASE)))
    def old_things_are_pruned(self, finished: timedelta | None, dead: timedelta | None) -> None:
        retention = Retention(finished=finished, dead=dead)
        self.each(lambda store: store.prune(retention, EVERYTHING))

    @rule(seconds=st.sampled_from((0.000001, 1, 10, 30, 31, 3_600, 90_000, -0.000001, -1, -31)))
    def the_clock_moves(self, seconds: float) -> None:
        self.pass_time(timedelta(seconds=seconds))

    # -- what always holds ---------------------------------------------------------------------

    @invariant()
    def all_show_the_same(self) -> None:
        jobs, counts, _ = self.each(_look)
        seen = Counter((job.queue, job.state) for job in jobs)
        assert {(each.queue, each.state): each.count for each in counts} == seen
        now = {job.id: job for job in jobs}
        assert len(now) == len(jobs), "a job is listed twice"
        self.check_fences(now)
        self.check_lives(now)
        check_indexes(self.redis_clock.run, self.redis_clock.prefix)
        self.before = now

    def check_fences(self, now: Mapping[UUID, Job]) -> None:
        """A token is live while its job runs, and a token that was given up never lives again."""
        for job in now.values():
            assert (job.token is not None) == (job.state is State.RUNNING)
            assert job.token is None or (job.id, job.token) not in self.spent, "an old token lives"
        for job in self.before.values():
            after = now.get(job.id)
            if job.token is not None and (after is None or after.token != job.token):
                self.spent.add((job.id, job.token))

    def check_lives(self, now: Mapping[UUID, Job]) -> None:
        for job in now.values():
            assert job.failures <= POLICY.max_retries + 1
            assert job.crashes <= POLICY.max_crashes
            assert len(job.history) <= HISTORY_KEPT
            assert all(attempt.number <= job.attempt for attempt in job.history)
            assert (job.finished_at is not None) == (job.state in FINISHED)
            assert job.due_at >= START - timedelta(days=1)
        for job in self.before.values():
            _check_successor(job, now.get(job.id))


def _check_successor(before: Job, after: Job | None) -> None:
    """A live job is never lost, and an ended one stays as it is, but for a dead one's redrive."""
    if after is None:
        assert before.state in FINISHED, f"a {before.state} job is gone"
        return
    assert after.attempt >= before.attempt
    if before.state in FINISHED and after != before:
        assert (before.state, after.state) == (State.DEAD, State.PENDING)
        assert (after.failures, after.crashes) == (0, 0)
        assert after.history == before.history


def _info(worker: str) -> WorkerInfo:
    return WorkerInfo(id=worker, name=worker, host="here", pid=1, release="1", lease=LEASE, slots=4)


async def _beat(store: Store, worker: str, pulse: WorkerPulse) -> bool:
    return await asyncio.to_thread(store.heartbeat, worker, pulse, PATIENCE)


async def _look(store: Store) -> tuple[tuple[Job, ...], list[QueueCount], object]:
    """Return everything that a store shows, put in an order that all share."""
    jobs = (await store.find(JobFilter(), limit=EVERYTHING)).jobs
    sweep = await store.sweep()
    heads = sorted((head.lane, head.position) for head in sweep.heads)
    known = {record.info.id: record for record in await store.workers()}
    requests = {worker: sorted(await store.cancel_requests(worker)) for worker in known}
    done = [await store.done(kind, key) for kind in KINDS for key in ("1", "2")]
    rest = (heads, sweep.next_due, sweep.now, known, requests, await store.records(""), done)
    return jobs, await store.counts(), rest


async def _next_due(store: Store) -> datetime | None:
    return (await store.sweep()).next_due


def _pick(choices: Sequence[T], pick: int) -> T:
    """Choose from a list that changes, the latest first."""
    return choices[-1 - pick % len(choices)]


def _token(jobs: Mapping[UUID, Job], claim: Job) -> int | None:
    job = jobs.get(claim.id)
    return None if job is None else job.token


@contextmanager
def machine(
    database: Clocked,
    redis_clock: ClockedRedis,
    reference: type[MemoryStore] = MemoryStore,
    scripts: Mapping[str, Script] | None = None,
) -> Iterator[type[StoresAgree]]:
    """Give a machine whose examples share connections to servers, which each of them empties."""
    loop = asyncio.new_event_loop()
    postgres = PostgresStore(database.url)
    redis = RedisStore(redis_clock.url, scripts=scripts or load_scripts(clock=CLOCK))
    shared = {
        "database": database,
        "redis_clock": redis_clock,
        "reference": reference,
        "postgres": postgres,
        "redis": redis,
        "loop": loop,
    }
    try:
        yield type("Machine", (StoresAgree,), shared)
    finally:
        loop.run_until_complete(postgres.close())
        loop.run_until_complete(redis.close())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


QUIET = settings(
    derandomize=True,
    deadline=None,
    max_examples=20,
    stateful_step_count=40,
    suppress_health_check=[HealthCheck.too_slow],
)
QUICK = settings(QUIET, phases=[Phase.generate], report_multiple_bugs=False)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("examples", [8, pytest.param(20, marks=pytest.mark.long)])
def test_the_stores_agree_whatever_happens(
    examples: int, shared_database: Clocked, redis_clock: ClockedRedis
) -> None:
    with machine(shared_database, redis_clock) as agreeing:
        run_state_machine_as_test(agreeing, settings=settings(QUIET, max_examples=examples))


class _UnfencedJobs(JobIndex):
    def held(self, job_id: UUID, token: int) -> Job | None:
        job = self.get(job_id)
        return job if job is not None and job.state is State.RUNNING else None


class _Unfenced(MemoryStore):
    """Settles by id alone."""

    def __init__(self, *, size: int = 1000, clock: Callable[[], datetime]) -> None:
        super().__init__(size=size, clock=clock)
        self._tables.jobs = _UnfencedJobs()


class _Forgetful(MemoryStore):
    """Promotes everything that is due but one."""

    async def promote(self, limit: int) -> int:
        return await super().promote(min(limit, 1))


RARELY = [pytest.mark.long, pytest.mark.again]
"""For more of what tries the machine, and not the product."""


@pytest.mark.parametrize("broken", [_Unfenced, pytest.param(_Forgetful, marks=RARELY)])
def test_the_machine_turns_red_when_a_store_is_broken(
    broken: type[MemoryStore], shared_database: Clocked, redis_clock: ClockedRedis
) -> None:
    broken_machine = machine(shared_database, redis_clock, broken)
    with broken_machine as disagreeing, pytest.raises(AssertionError):
        run_state_machine_as_test(disagreeing, settings=QUICK)


BREAKS = {
    "complete": ("jobs.token = done.token", "jobs.token IS NOT NULL"),
    "settle": ("token = move.token", "token IS NOT NULL"),
    "claim": ("attempt = attempt + 1", "attempt = attempt + 2"),
    "amend": ("coalesce(its_payload, '{}')", "payload"),
    "note_done": ("'idempotency-key', id, now", "'idempotency-key', gen_random_uuid(), now"),
}
"""What is broken in a function of the schema: the fence of both ways to settle, a count,
what a duplicate replaces, and which job a key was done by.
"""


@pytest.mark.parametrize(
    "function",
    [
        "settle",
        *(pytest.param(each, marks=RARELY) for each in BREAKS if each != "settle"),
    ],
)
def test_the_machine_turns_red_when_a_function_of_the_schema_is_broken(
    function: str, database: Clocked, redis_clock: ClockedRedis
) -> None:
    right, wrong = BREAKS[function]
    (definition,) = database.db.execute(
        "SELECT pg_get_functiondef(oid) FROM pg_proc "
        "WHERE proname = %s AND pronamespace = 'windlass'::regnamespace",
        [function],
    ).fetchall()
    assert right in definition[0]
    database.db.execute(definition[0].replace(right, wrong).encode())
    differs = pytest.raises(AssertionError, match="postgres differs")
    with machine(database, redis_clock) as disagreeing, differs:
        run_state_machine_as_test(disagreeing, settings=QUICK)


LUA_BREAKS = {
    "settle": ("m[1] == token", "m[1] ~= ''"),
    "apply": ("h[STATE] ~= RUNNING or h[TOKEN] ~= ARGV[at + 1]", "false"),
    "claim": ("h[ATTEMPT] + 1", "h[ATTEMPT] + 2"),
    "enqueue_any": ("due > h[DUE]", "true"),
    "promote": ("heads[id][WAITING_FOR] = PENDING, false", "heads[id][REASON] = PENDING, false"),
}
"""What is broken in a script: the fence of both ways to settle, a count, which due time a duplicate
pushes, and what a promoted job waits for.
"""


@pytest.mark.parametrize(
    "script",
    ["settle", *(pytest.param(each, marks=RARELY) for each in LUA_BREAKS if each != "settle")],
)
def test_the_machine_turns_red_when_a_script_is_broken(
    script: str, shared_database: Clocked, redis_clock: ClockedRedis
) -> None:
    right, wrong = LUA_BREAKS[script]
    scripts = dict(load_scripts(clock=CLOCK))
    source = scripts[script].source.decode()
    assert right in source
    scripts[script] = Script.of(script, source.replace(right, wrong))
    broken_machine = machine(shared_database, redis_clock, scripts=scripts)
    with broken_machine as disagreeing, pytest.raises(AssertionError):
        run_state_machine_as_test(disagreeing, settings=QUICK)
