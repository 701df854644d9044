"""Owns the state machine that drives all stores by the same rules, and compares their answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime, timedelta
from uuid import UUID

from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule

from tests.store.driven_stores import POLICY, DrivenStores
from tests.store.random_requests import (
    EVERYTHING,
    LEASE,
    SECOND,
    asks,
    index,
    latest,
    limits,
    moves,
    news,
    outcomes,
    uniques,
    workers,
)
from tests.store.store_contents import (
    check_successor,
    contents,
    heartbeat,
    next_due_of,
)
from tests.support.clocked_stores import START
from tests.support.redis_indexes import check_indexes
from windlass.core.changes import Applied, Changes
from windlass.core.claims.lanes import Ask, Claim
from windlass.core.errors import LeaseLost
from windlass.core.jobs.job import HISTORY_KEPT, Job, Progress, UniqueKey
from windlass.core.jobs.moves import FROM, Move, Verb
from windlass.core.jobs.outcomes import Outcome, Released, Succeeded
from windlass.core.jobs.queries import Retention
from windlass.core.jobs.states import FINISHED, State
from windlass.core.records import Json
from windlass.core.workers import WorkerPulse
from windlass.store.protocol import Store


class StoresAgree(DrivenStores):
    """Does whatever may be done, in any order."""

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
        new = latest(self.new, pick)
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
        if not self.each(lambda store: heartbeat(store, worker, WorkerPulse())):
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
        assert self.settle(self.transition(latest(self.robbed(), pick), outcome)) == [False]

    @precondition(has_live)
    @rule(pick=index, worker=workers, outcome=st.just(Succeeded()) | outcomes)
    def a_job_changes_hands_before_it_is_settled(
        self, pick: int, worker: str, outcome: Outcome
    ) -> None:
        job = latest(self.live(), pick)
        late = self.transition(job, outcome)
        assert self.settle(self.transition(job, Released(reason="shutdown"))) == [True]
        self.whatever_waits_is_claimed(worker)
        assert self.settle(late) == [False]

    @precondition(has_claims)
    @rule(picks=st.lists(st.tuples(index, outcomes), min_size=1, max_size=4))
    def any_claims_are_settled(self, picks: list[tuple[int, Outcome]]) -> None:
        self.settle(
            *[self.transition(latest(self.claimed, pick), outcome) for pick, outcome in picks]
        )

    @precondition(has_live)
    @rule(pick=index, outcome=outcomes)
    def an_acknowledgement_is_repeated(self, pick: int, outcome: Outcome) -> None:
        transition = self.transition(latest(self.live(), pick), outcome)
        assert self.settle(transition, transition) == [True, False]
        assert self.settle(transition) == [False]

    @precondition(has_claims)
    @rule(pick=index, fraction=st.sampled_from((0.0, 0.25, 1.0)))
    def progress_is_told(self, pick: int, fraction: float) -> None:
        job = latest(self.claimed, pick)
        told = Progress(fraction=fraction, message="on its way")
        self.each(lambda store: store.progress(job.id, job.token or 0, told))

    @rule(limit=limits, wait=st.sampled_from(("no", "for the next", "for most")))
    def due_jobs_are_promoted(self, limit: int, wait: str) -> None:
        if wait == "for the next" and (due := self.each(next_due_of)) is not None:
            self.set_time(max(self.now, due))
        if wait == "for most":
            self.pass_time(LEASE)
        self.each(lambda store: store.promote(limit))

    @rule(worker=workers, what=st.sampled_from(("register", "beat", "beat", "retire", "rescue")))
    def a_worker_does_something(self, worker: str, what: str) -> None:
        getattr(self, what)(worker)

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
        self.move(verb, latest(self.new, pick).id, event)

    @rule(pick=index, verb=moves)
    def a_job_that_can_be_is_moved(self, pick: int, verb: Verb) -> None:
        able = [job.id for job in self.before.values() if job.state in FROM[verb]]
        if able:
            self.move(verb, latest(able, pick), "event")

    @precondition(has_jobs)
    @rule(pick=index, worker=workers, again=st.sampled_from((Verb.RETRY, Verb.REDRIVE)))
    def a_job_is_taken_out_of_its_turn(self, pick: int, worker: str, again: Verb) -> None:
        if not self.each(lambda store: heartbeat(store, worker, WorkerPulse())):
            self.register(worker)
        job = latest(self.new, pick).id
        take = Move(verb=Verb.TAKE, id=job, worker=worker, token=self.number())
        changes = Changes(answer=None, moves=[Move(verb=again, id=job), take])
        applied = self.each(lambda store: store.apply([], lambda _records, _now: changes))
        self.claimed += [taken for taken in applied.moved[1:] if taken is not None]

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
        done = self.transition(latest(self.live() or self.claimed, pick), outcome)
        move = Move(verb=verb, id=latest(self.new, other).id, waiting_for="event")

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
        jobs, counts, _ = self.each(contents)
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
            check_successor(job, now.get(job.id))
