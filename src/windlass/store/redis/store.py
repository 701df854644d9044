"""Owns the Redis store: the contract's methods, and which connection carries each.

Claims and settles go by a connection of their own, the lease by another, and everything else by a
pool.
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from windlass.core.changes import Applied, Decide, Hear
from windlass.core.claims.lanes import Claim, Queues, StandingAsk, Sweep
from windlass.core.errors import QueueFull, StoreError
from windlass.core.jobs.job import Checkpoint, Enqueued, Job, NewJob, Progress
from windlass.core.jobs.queries import MAX_GROUPED, ErrorGroups, Finding, JobFilter, Page, Retention
from windlass.core.jobs.settle import Transition
from windlass.core.jobs.streams import Appended, ChunkGroup, Position, StreamPage
from windlass.core.records import Json, News, RecordPage, Ringing
from windlass.core.search.scan import Budget
from windlass.core.stats.depths import MAX_COUNTED, Connections, Depths, QueueCount, Standing
from windlass.core.workers import WorkerInfo, WorkerPulse, WorkerRecord
from windlass.store.depth_counts import depths_of
from windlass.store.json_columns import as_json
from windlass.store.non_transactional import NonTransactional
from windlass.store.protocol import Capabilities, Schema
from windlass.store.redis import claim_and_settle, health, layout, queries, records, streams
from windlass.store.redis import enqueue as enqueueing
from windlass.store.redis import find as finding
from windlass.store.redis.connections.blocking import BlockingConnections
from windlass.store.redis.connections.loop_pool import LoopPool
from windlass.store.redis.connections.per_loop import LoopConnections
from windlass.store.redis.connections.process import RedisConnections
from windlass.store.redis.connections.script import Command, Script
from windlass.store.redis.connections.servers.urls import parse
from windlass.store.redis.records import Decision
from windlass.store.redis.scripting.calls import Names, Talk, apump, overlapped, pump
from windlass.store.redis.scripting.lone_enqueue import LoneEnqueues
from windlass.store.redis.scripting.rows import MICROSECOND
from windlass.store.redis.scripting.script_files import load_scripts
from windlass.store.redis.sleepers import LoopState
from windlass.store.redis.upkeep.promote_and_rescue import promote, rescue
from windlass.store.redis.upkeep.prune import prune
from windlass.store.redis.upkeep.recall import recall
from windlass.store.sql_files import Migration

T = TypeVar("T")


class RedisStore(NonTransactional):
    """Keeps jobs in a Redis or Valkey server, for any number of hosts.

    Of completed and cancelled jobs no more are kept than `kept`, whatever their retention.
    A `space` has keys of its own beside those of the URL's prefix. `scripts` are other ones than
    those of this release, for tests.
    """

    # A claim is answered in pieces of 120 jobs.
    capabilities = Capabilities(
        shared=True,
        durable=True,
        bounded=False,
        transactional=False,
        claim_size=360,
        claims_under_way=4,
    )

    def __init__(
        self,
        url: str,
        *,
        kept: int = 100_000,
        space: str = "",
        scripts: Mapping[str, Script] | None = None,
    ) -> None:
        self._address = parse(url).of_space(space)
        self._kept = kept
        self._names = Names(
            self._address.namespace, scripts or load_scripts(sharded=self._address.is_cluster)
        )
        self._lone = LoneEnqueues(self._names, in_cluster=self._address.is_cluster)
        self._connections = RedisConnections(self._address)
        self._states: weakref.WeakKeyDictionary[LoopConnections, LoopState] = (
            weakref.WeakKeyDictionary()
        )
        self._served: WorkerInfo | None = None
        self._checked = False
        self._has_layout = False

    @property
    def location(self) -> str:
        """The servers, the database and the prefix, without secrets."""
        return self._address.location

    @property
    def listening(self) -> bool:
        """Whether any event loop of this process is notified of new jobs."""
        return self._connections.by_loop.listening

    @property
    def connections(self) -> Connections:
        """The connections of this process, for blocking and for awaited use."""
        pools: list[BlockingConnections | LoopPool] = [
            self._connections.blocking,
            *self._connections.by_loop.pools,
        ]
        return Connections(
            open=sum(pool.open for pool in pools),
            in_use=sum(pool.in_use for pool in pools),
            limit=self._address.max_connections * len(pools),
        )

    async def open(self) -> None:
        if not self._checked:
            health.check(await self._info(), self.location)
            await self.migrate()
            self._checked = True

    async def schema(self) -> Schema:
        return await self._talk(layout.look(self._names))

    async def migrate(self) -> list[str]:
        made = await self._talk(layout.make(self._names, self.location), again=True)
        self._has_layout = True
        return made

    async def migrations(self) -> list[Migration]:
        return await self._talk(layout.steps(self._names))

    async def close(self) -> None:
        await self._connections.close()

    # -- the hot path --------------------------------------------------------------------------

    async def enqueue(
        self, jobs: Sequence[NewJob], timeout: timedelta | None = None
    ) -> list[Enqueued]:
        if not self._has_layout:
            await self.migrate()
        how: dict[str, Any] = {
            "timeout": None if timeout is None else timeout.total_seconds(),
            "again": True,
            "replicas": self._address.wait_replicas,
        }
        run = self._connections.here().run
        if (added := await self._lone.add(jobs, run, **how)) is not None:
            return added
        if not enqueueing.may_overlap(jobs):
            return await apump(enqueueing.enqueue(self._names, jobs), run, **how)
        places = await apump(enqueueing.reserve(self._names, len(jobs)), run, **how)
        talks = enqueueing.reserved_pieces(self._names, jobs, places)
        return await overlapped(talks, run, most=enqueueing.PIECES_UNDER_WAY, **how)

    def enqueue_blocking(self, jobs: Sequence[NewJob], timeout: timedelta) -> list[Enqueued]:
        deadline = time.monotonic() + (within := timeout.total_seconds())
        if not self._has_layout:
            self._write_blocking(layout.make(self._names, self.location), deadline)
            self._has_layout = True
        how: dict[str, Any] = {"again": True, "replicas": self._address.wait_replicas}
        run = self._connections.blocking.run
        if (added := self._lone.add_blocking(jobs, run, timeout=within, **how)) is not None:
            return added
        return self._write_blocking(enqueueing.enqueue(self._names, jobs), deadline)

    async def sweep(self, *, fresh: bool = True, queues: Queues = None) -> Sweep:
        return await self._here().sweep(fresh=fresh, queues=queues)

    async def wait(
        self, mark: int, timeout: timedelta, ask: StandingAsk | None = None, queues: Queues = None
    ) -> None:
        del queues  # It is woken for the lanes that its worker serves.
        await self._here().wait(mark, timeout, ask)

    async def busy(self) -> None:
        await self._here().rise()

    async def claim(self, claim: Claim, *, worker: str, token: int) -> list[Job]:
        here = self._here()
        talk = claim_and_settle.claim(self._names, claim, worker, token)
        jobs = await apump(talk, here.connections.hot.run)
        if claim.asks:
            here.claimed(claim, len(jobs))
        return jobs

    async def settle(self, transitions: Sequence[Transition]) -> list[bool]:
        run = self._connections.here().hot.run

        async def settle(*commands: Command, **how: Any) -> list[Any]:
            try:
                return await run(*commands, **how)
            except QueueFull:
                # Only a large result can meet this, and its job must end for memory to be freed.
                # A script that the server does not know yet comes late: so not all in one write.
                await run(*claim_and_settle.keep_results(self._names, commands))
                return await run(commands[-1], **how)

        talk = claim_and_settle.settle(self._names, transitions)
        return await apump(talk, settle, replicas=self._address.wait_replicas)

    async def progress(self, job: UUID, token: int, progress: Progress) -> bool:
        call = self._names.call("progress", job.bytes, token, as_json(progress))
        return bool(await self._one(call, again=True))

    async def checkpoint(self, checkpoints: Sequence[Checkpoint]) -> list[bool]:
        return await self._talk(claim_and_settle.checkpoint(self._names, checkpoints))

    async def stream_append(self, groups: Sequence[ChunkGroup]) -> list[Appended | None]:
        return await self._talk(streams.append(self._names, groups), again=True)

    async def promote(self, limit: int) -> int:
        self._here().doubt()
        return await self._talk(promote(self._names, limit), again=True)

    async def recall(self, by: timedelta, ago: timedelta) -> int:
        self._here().doubt()
        return await self._talk(recall(self._names, by, ago))

    async def rescue(self, *, worker: str, token: int, limit: int) -> list[Job]:
        return await self._talk(rescue(self._names, worker, token, limit))

    async def prune(self, retention: Retention, limit: int) -> int:
        return await self._talk(prune(self._names, retention, limit, self._kept))

    # -- leases --------------------------------------------------------------------------------

    async def register(self, worker: WorkerInfo) -> None:
        lease = worker.lease // MICROSECOND
        facts = (worker.id, lease, as_json(worker), as_json(WorkerPulse()))
        await self._one(self._names.call("register", *facts), again=True)
        self._served = worker
        self._here().serve(worker)
        self._connections.here().listener.start()

    def heartbeat(self, worker: str, pulse: WorkerPulse, timeout: timedelta) -> bool:
        call = self._names.call("heartbeat", worker, as_json(pulse), layout.LAYOUT)
        renewed: Any
        (renewed,) = self._connections.heartbeat.run(
            call, timeout=timeout.total_seconds(), again=True
        )
        return bool(renewed == 1)

    async def retire(self, worker: str) -> None:
        await self._one(self._names.call("retire", worker), again=True)
        # Else wake-ups would go to a worker that has stopped, and miss those that work.
        await self._here().close()

    async def held(self, worker: str) -> list[Job]:
        return await self._talk(queries.held(self._names, worker))

    async def cancel_requests(self, worker: str) -> list[UUID]:
        ids = await self._one(("SMEMBERS", self._names.key("cancel:") + worker.encode()))
        return [UUID(bytes=job) for job in ids]

    # -- records and whole changes -------------------------------------------------------------

    async def records(self, prefix: str, page: RecordPage | None = None) -> Mapping[str, Json]:
        return await self._talk(records.records(self._names, prefix, page))

    async def apply(self, names: Sequence[str], decide: Decide[T]) -> Applied[T]:
        def decision(known: Mapping[str, Json], _news: Sequence[News], now: datetime) -> Any:
            return decide(known, now)

        return await self._apply(names, decision, heard=False)

    async def hear(self, topics: Sequence[str], decide: Hear[T]) -> Applied[T]:
        return await self._apply(topics, decide, heard=True)

    async def ringing(self, limit: int) -> Ringing:
        return await self._talk(records.ringing(self._names, limit))

    async def topics(self, limit: int) -> list[str]:
        last = max(limit, 1) - 1
        found = await self._one(("ZRANGE", self._names.key("topics"), 0, last))
        return [topic.decode() for topic in found]

    async def send(self, news: Sequence[News]) -> None:
        await self._talk(
            enqueueing.send(self._names, news), again=True, replicas=self._address.wait_replicas
        )

    def send_blocking(self, news: Sequence[News], timeout: timedelta) -> None:
        deadline = time.monotonic() + timeout.total_seconds()
        self._write_blocking(enqueueing.send(self._names, news), deadline)

    # -- queries -------------------------------------------------------------------------------

    async def get(self, job: UUID) -> Job | None:
        return await self._talk(queries.get(self._names, job))

    async def get_many(self, jobs: Sequence[UUID]) -> dict[UUID, Job]:
        return {job.id: job for job in await self._talk(queries.get_many(self._names, jobs))}

    async def done(self, kind: str, key: str) -> Job | None:
        return await self._talk(queries.done(self._names, kind, key))

    async def stream_read(self, job: UUID, after: Position, limit: int) -> StreamPage:
        return await self._talk(streams.read(self._names, job, after, limit))

    async def find(
        self,
        which: JobFilter,
        *,
        limit: int,
        after: UUID | None = None,
        oldest_first: bool = False,
        brief: bool = False,
        budget: Budget | None = None,
    ) -> Page:
        talk = finding.find(
            self._names,
            which,
            limit=limit,
            after=after,
            oldest_first=oldest_first,
            brief=brief,
            budget=budget,
        )
        return await self._talk(talk)

    async def error_groups(
        self, *, kind: str | None = None, limit: int, most: int = MAX_GROUPED
    ) -> ErrorGroups:
        return await self._talk(queries.error_groups(self._names, kind, limit, most))

    async def counts(self, *, most: int = MAX_COUNTED) -> list[QueueCount]:  # noqa: ARG002
        return await self._talk(queries.counts(self._names))

    async def standing(self, job: UUID, *, limit: int) -> Standing:
        return await self._talk(queries.standing(self._names, job, limit))

    async def depths(self, most: int) -> Depths:
        return depths_of(await self._talk(queries.state_counts(self._names)), most)

    async def arrivals(
        self, since: datetime, until: datetime, most: int
    ) -> Mapping[str, int] | None:
        return await self._talk(queries.arrivals(self._names, since, until, most))

    async def workers(self) -> list[WorkerRecord]:
        return await self._talk(queries.workers(self._names))

    async def findings(self) -> list[Finding]:
        info = await self._info()
        emptied = await self._talk(health.read_emptied(self._names))
        return health.findings(info, self._connections.here().listener, emptied=emptied)

    async def place(self) -> tuple[int, bytes, set[bytes]] | None:
        """Return the slot of all keys, the id of its master, and all masters; None: no cluster."""
        if not self._address.is_cluster:
            return None
        slot, ranges = self._address.slot, await self._one(("CLUSTER", "SLOTS"))
        masters = {(first, last): master[2] for first, last, master, *_ in ranges}
        owner = next(node for (first, last), node in masters.items() if first <= slot <= last)
        return slot, owner, set(masters.values())

    # -- connections ---------------------------------------------------------------------------

    def _here(self) -> LoopState:
        connections = self._connections.here()
        state = self._states.get(connections)
        if state is None:
            state = self._states[connections] = LoopState(self._names, connections)
            if self._served is not None:
                state.serve(self._served)
        return state

    async def _talk(self, talk: Talk[T], **how: Any) -> T:
        return await apump(talk, self._connections.here().run, **how)

    async def _info(self) -> Mapping[str, str]:
        try:
            return await self._talk(health.read_info())
        except StoreError as error:
            if "NOPERM" not in str(error):
                raise
            return health.UNKNOWN

    async def _one(self, command: Command, **how: Any) -> Any:
        (reply,) = await self._connections.here().run(command, **how)
        return reply

    async def _apply(self, names: Sequence[str], decide: Decision[T], *, heard: bool) -> Applied[T]:
        here = self._here()
        async with here.turns.at(names):
            attempt, seen = 0, None
            while True:
                seen = await records.pause(attempt, seen)
                talk = records.apply(self._names, names, decide, heard=heard, seen=seen)
                outcome = await self._talk(talk, replicas=0)
                if isinstance(outcome, Applied):
                    return outcome
                attempt, seen = attempt + 1, outcome

    def _write_blocking(self, talk: Talk[T], deadline: float) -> T:
        run, replicas = self._connections.blocking.run, self._address.wait_replicas
        return pump(talk, run, deadline=deadline, again=True, replicas=replicas)
