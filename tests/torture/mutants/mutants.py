"""Owns the mutants of Windlass that chaos has to find: each breaks one promise, in all processes.

Imported by path in processes under chaos, so it imports nothing of the tests.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from windlass.core.jobs.job import SCHEDULE, NewJob
from windlass.core.jobs.settle import completed
from windlass.store.sqlite import operations, queries
from windlass.store.sqlite.settle_group import SettleGroup


def no_fence() -> None:
    """Settle a job for anybody who asks, whatever the token."""
    inner = operations.settle_all

    def settle_all(db: Any, group: SettleGroup, now: Any) -> list[bool]:
        moves = list(group.moves)
        current = "SELECT token FROM jobs WHERE id = ? AND state = 'running'"
        for number, move in enumerate(group.moves):
            row = db.execute(current, (str(move.id),)).fetchone()
            if row is not None and row[0] is not None:
                moves[number] = replace(move, token=row[0])
        return inner(db, SettleGroup.of(moves), now)

    operations.settle_all = settle_all


def no_fence_on_postgres() -> None:
    """Complete a job for anybody who asks, whatever the token."""
    from windlass.store.postgres import migrate

    inner = migrate.load_statements  # type: ignore[attr-defined]
    given = "%s::uuid[], %s::bigint[], %s::json[]"
    current = (
        f"WITH given AS (SELECT * FROM unnest({given}) AS given (id, token, result)) "
        "SELECT {schema}.complete(array_agg(given.id), "
        "array_agg(coalesce(jobs.token, given.token)), array_agg(given.result)) "
        "FROM given LEFT JOIN {schema}.jobs AS jobs USING (id)"
    )

    def load_statements(*args: str) -> Mapping[str, str]:
        found = dict(inner(*args))
        fenced = f"SELECT {{schema}}.complete({given})"
        assert fenced in found["complete"]
        found["complete"] = found["complete"].replace(fenced, current)
        return found

    migrate.load_statements = load_statements  # type: ignore[attr-defined, assignment]


def no_fence_on_redis() -> None:
    """Settle a job for anybody who asks, whatever the token."""
    from windlass.store.redis.scripting import script_files

    lua = script_files.load_files()
    functions, scripts = dict(lua.functions), dict(lua.scripts)
    for parts, name, fence in (
        (functions, "settle_one", " or h[TOKEN] ~= token"),
        (scripts, "settle", " and m.token == token"),
    ):
        assert fence in parts[name].source
        parts[name] = parts[name]._replace(source=parts[name].source.replace(fence, ""))
    script_files.load_files = lambda: lua._replace(  # type: ignore[assignment]
        functions=functions, scripts=scripts
    )


def acknowledge_before_run() -> None:
    """Complete a job when it starts."""
    from windlass.worker.engine.engine import Engine

    inner = Engine.start

    def start(self: Engine, job: Any) -> None:
        self.completer.add(job, completed(job, b"null"))
        inner(self, job)

    Engine.start = start  # type: ignore[method-assign]


def hasty_rescue() -> None:
    """End the leases of other workers long before they have run out."""
    inner = operations.rescue

    def rescue(db: Any, worker: str, token: int, limit: int, now: int) -> Any:
        db.execute("UPDATE workers SET lease_until = ? WHERE id <> ?", (now, worker))
        return inner(db, worker, token, limit, now)

    operations.rescue = rescue
    look = queries.holds
    # The store looks first whether a rescue is due.
    queries.holds = lambda db, name, values: name == "rescue_is_due" or look(db, name, values)


def no_rescue() -> None:
    """Leave the jobs of dead processes where they are."""
    from windlass.supervisor import supervisor

    async def give_back_jobs(*_: object) -> None: ...

    operations.rescue = lambda *_: []
    supervisor.give_back_jobs = give_back_jobs  # type: ignore[attr-defined, assignment]


def slow_rescue() -> None:
    """Take the jobs of dead processes over long after their lease has run out."""
    from windlass.supervisor import supervisor

    inner = operations.rescue

    def rescue(db: Any, worker: str, token: int, limit: int, now: int) -> Any:
        late = "SELECT 1 FROM workers WHERE NOT ended AND lease_until <= ?"
        is_late = db.execute(late, (now - round(_delay() * 1_000_000),)).fetchone() is not None
        return inner(db, worker, token, limit, now) if is_late else []

    async def give_back_jobs(*_: object) -> None: ...

    operations.rescue = rescue
    supervisor.give_back_jobs = give_back_jobs  # type: ignore[attr-defined, assignment]


def slow_return() -> None:
    """Claim nothing for long after the store was unreachable."""
    from windlass.process.service import Service
    from windlass.process.waits import first

    inner = Service._wait_out

    async def _wait_out(self: Service, seconds: float, *events: Any) -> None:
        if self.name == "claimer":
            await first(*events, patience=_delay())
        else:
            await inner(self, seconds, *events)

    Service._wait_out = _wait_out  # type: ignore[method-assign]


def _delay() -> float:
    return float(os.environ["CHAOS_DELAY"])


def no_checkpoint() -> None:
    """Record no step."""
    from windlass.worker.engine.writing.checkpointer import Checkpointer

    async def record(*_: object) -> None: ...

    Checkpointer.record = record  # type: ignore[method-assign, assignment]


def undo_in_the_order_of_the_steps() -> None:
    """Undo the first step first."""
    from windlass.core.workflows.step_log import Steps

    def to_undo(self: Steps) -> list[str]:
        return [name for name in self.undoable if name not in self.undone]

    Steps.to_undo = property(to_undo)  # type: ignore[method-assign, assignment]


def _enqueue_otherwise(change: Any) -> None:
    inner = operations.enqueue

    def enqueue(db: Any, jobs: Sequence[NewJob], now: Any) -> Any:
        return inner(db, [change(job) for job in jobs], now)

    operations.enqueue = enqueue


def unique_key_freed_early() -> None:
    """Free a unique key when its job starts."""

    def change(job: NewJob) -> NewJob:
        unique = job.unique
        return job if unique is None else replace(job, unique=replace(unique, until="claimed"))

    _enqueue_otherwise(change)


def children_do_not_wait() -> None:
    """Start the jobs of a flow without their parents."""
    _enqueue_otherwise(lambda job: replace(job, waiting_for=None))


def acknowledge_before_write() -> None:
    """Acknowledge an enqueue, and write all but one in ten of its jobs."""
    from windlass.core.jobs.job import Enqueued

    inner, alone = operations.enqueue, operations.enqueue_alone

    def enqueue(db: Any, jobs: Sequence[NewJob], now: Any) -> Any:
        kept = [job for job in jobs if job.id.int % 10 or job.unique is not None]
        inner(db, kept, now)
        return [Enqueued(id=job.id) for job in jobs]

    def enqueue_alone(db: Any, job: NewJob, now: Any) -> Any:
        return alone(db, job, now) if job.id.int % 10 else Enqueued(id=job.id)

    operations.enqueue, operations.enqueue_alone = enqueue, enqueue_alone


def limits_counted_locally() -> None:
    """Let every worker have the whole of each limit."""
    from windlass.worker.policies import limit_tokens

    inner = limit_tokens.serve  # type: ignore[attr-defined]

    def serve(account: Mapping[str, Any], wishes: Any, *, worker: str, **others: Any) -> Any:
        own = account.get("holds", {}).get(worker)
        return inner({"holds": {worker: own}} if own else {}, wishes, worker=worker, **others)

    limit_tokens.serve = serve  # type: ignore[attr-defined]


def retries_lose_their_place() -> None:
    """Let a failed job of an ordered key be overtaken."""
    from windlass.core.jobs import settle

    settle._in_order = lambda move, now: move


def ticks_come_twice() -> None:
    """Enqueue the job of each tick twice."""
    from windlass.worker.services.schedules import schedule_ticker

    inner = schedule_ticker._Round.changes

    def changes(self: Any) -> Any:
        made = inner(self)
        again = [
            replace(job, id=type(job.id)(int=job.id.int ^ secrets.randbits(32)))
            for job in made.enqueue
            if SCHEDULE in job.headers
        ]
        return made.__class__(
            answer=made.answer,
            records=made.records,
            alarms=made.alarms,
            enqueue=[*made.enqueue, *again],
        )

    schedule_ticker._Round.changes = changes  # type: ignore[method-assign]


def ticker_dies() -> None:
    """Tick a few times, and never again."""
    from windlass.worker.services.schedules import schedule_ticker

    inner, made = schedule_ticker._Round.changes, [0]

    def changes(self: Any) -> Any:
        made[0] += sum(len(rung.jobs) for rung in self.rung.values())
        if made[0] > 1:
            self.rung = {}
        return inner(self)

    schedule_ticker._Round.changes = changes  # type: ignore[method-assign]


def transactions_do_not_settle() -> None:
    """Commit a handler's transaction without the completion of its job."""
    from windlass.store.postgres import transaction

    async def settle(_: object) -> None: ...

    for each in vars(transaction).values():
        if isinstance(each, type) and hasattr(each, "_asettle"):
            each._asettle = settle


def floors_without_sweeps() -> None:
    """Begin every claim where the last one of its lane ended, whatever a sweep has found."""
    from windlass.core.claims.lanes import Claim
    from windlass.store.postgres import claim_and_settle
    from windlass.store.postgres.lane_cache import LaneCache

    floors: dict[Any, Any] = {}
    values, inner = claim_and_settle.claim_values, LaneCache.claimed

    def claim_values(claim: Claim, worker: str, token: int) -> tuple[str, ...]:
        asks = [replace(ask, floor=floors.get(ask.lane, ask.floor)) for ask in claim.asks]
        return values(replace(claim, asks=tuple(asks)), worker, token)

    def claimed(self: LaneCache, answers: Any) -> None:
        for each in answers:
            if each.last is not None:
                floors[each.lane] = max(each.last, floors.get(each.lane, each.last))
        inner(self, answers)

    claim_and_settle.claim_values = claim_values
    LaneCache.claimed = claimed  # type: ignore[method-assign]


def calls_are_written_job_by_job() -> None:
    """Commit the jobs of one call one after the other."""
    from windlass.store.sqlite import SqliteStore

    inner = SqliteStore.enqueue_blocking

    def enqueue_blocking(self: SqliteStore, jobs: Sequence[NewJob], timeout: Any) -> Any:
        made: list[Any] = []
        for job in jobs:
            made += inner(self, [job], timeout)
            time.sleep(0.1 * (len(jobs) > 1))
        return made

    SqliteStore.enqueue_blocking = enqueue_blocking  # type: ignore[method-assign]


def replicas_are_not_waited_for() -> None:
    """Acknowledge what only the primary has."""
    from windlass.store.redis import store

    inner = store.parse  # type: ignore[attr-defined]
    parse = lambda url: dataclasses.replace(inner(url), wait_replicas=0)  # noqa: E731
    store.parse = parse  # type: ignore[attr-defined]
