"""Owns the progress of flows: when jobs of a flow end, a worker carries out what follows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from windlass.core.changes import Changes
from windlass.core.errors import FlowInvalid
from windlass.core.jobs.ids import member_id, number_of
from windlass.core.jobs.job import FLOW, Job
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.states import FINISHED, State
from windlass.core.records import Json, News
from windlass.core.workflows.flow_graph import Chart, Graph, checked, held_wait_of, topic_of
from windlass.core.workflows.flow_progress import Advance, advance, is_dead
from windlass.observability.log_context import fields_of
from windlass.observability.logs import get_logger
from windlass.store import Store

log = get_logger("windlass.flows")
_MAX_CACHED_JOBS = 200_000
"""Number of jobs that the cached graphs may have in total."""
_CHECK_INTERVAL = timedelta(days=1)
"""Interval between two checks whether a dead flow was purged or is past its retention."""
_graph_decoder = msgspec.json.Decoder(Graph)


class _Known(NamedTuple):
    chart: Chart
    is_begun: bool = False
    """Whether the flow's record was seen: if it is missing later, the flow is over, or the store
    has lost the record with a primary that was replaced."""
    is_cancelled: bool = False


class _Heard(NamedTuple):
    """The decisions about some flows: which continue, which are new, and which have more to do."""

    begun: tuple[UUID, ...]
    new: tuple[UUID, ...]
    unfinished: tuple[str, ...]


class _RecordGone(Exception):
    """Records of flows that were begun are missing: what is known of these flows may be wrong."""

    def __init__(self, flows: Sequence[UUID]) -> None:
        super().__init__()
        self.flows = flows


class FlowAdvancer:
    """Handles the ends of flows' jobs: releases jobs that waited for them, cancels those that
    cannot run.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[UUID, _Known] = {}

    async def hear(self, topics: Sequence[str]) -> None:
        """Apply the ends of flows' jobs, in as many changes as necessary."""
        while topics:
            topics = await self._hear(topics)

    async def forget(self, topics: Sequence[str]) -> None:
        """Delete the records of flows whose own jobs are gone; check the others again later.

        A dead flow can be redriven for as long as its job exists. A purge sends no notice.
        """
        flows = {topic: flow for topic in topics if (flow := _flow_in(topic)) is not None}
        jobs = await self._store.get_many(list(flows.values()))
        gone = [topic for topic, flow in flows.items() if flow not in jobs]

        def decide(records: Mapping[str, Json], now: datetime) -> Changes[None]:
            later = {topic: now + _CHECK_INTERVAL for topic in records if topic not in gone}
            return Changes(answer=None, records=dict.fromkeys(gone), alarms=later)

        await self._store.apply(sorted(topics), decide)
        for topic in gone:
            self._known.pop(flows[topic], None)

    async def _hear(self, topics: Sequence[str]) -> Sequence[str]:
        """Make one change; return the topics that have more to do."""
        flows = {topic: flow for topic in topics if (flow := _flow_in(topic)) is not None}
        known = await self._look_up(flows.values())

        def decide(
            records: Mapping[str, Json], news: Sequence[News], now: datetime
        ) -> Changes[_Heard]:
            _check_records(known, records, news)
            return _decided(flows, known, records, news, now)

        try:
            applied = await self._store.hear(list(topics), decide)
        except _RecordGone as gone:
            for flow in gone.flows:
                self._known.pop(flow, None)
            return topics  # Nothing was changed; now the store is asked about these flows.
        self._remember(known, applied.answer)
        if applied.answer.new:
            await self._forget_ended(applied.answer.new)
        return applied.answer.unfinished

    async def _look_up(self, flows: Collection[UUID]) -> dict[UUID, _Known]:
        """Return the flows that are not over, or were cancelled, with their graphs."""
        known = {flow: self._known[flow] for flow in flows if flow in self._known}
        unread = [flow for flow in flows if flow not in known]
        jobs = await self._store.get_many(unread) if unread else {}
        read = {flow: _known_by(job) for flow, job in jobs.items()}
        return known | {flow: each for flow, each in read.items() if each is not None}

    def _remember(self, known: Mapping[UUID, _Known], heard: _Heard) -> None:
        """Cache the graphs of flows that continue, the latest ones, up to the limit."""
        for flow in known:
            self._known.pop(flow, None)
        for flow in heard.begun:
            self._known[flow] = _Known(known[flow].chart, is_begun=True)
        kept = sum(each.chart.total for each in self._known.values())
        while kept > _MAX_CACHED_JOBS and len(self._known) > 1:
            kept -= self._known.pop(next(iter(self._known))).chart.total

    async def _forget_ended(self, flows: Sequence[UUID]) -> None:
        """Delete new records of flows that have ended: the end of a job arrived late."""
        jobs = await self._store.get_many(flows)
        over = [flow for flow in flows if flow not in jobs or _is_over(jobs[flow])]
        if over:
            names = [topic_of(flow) for flow in over]
            gone: Changes[None] = Changes(answer=None, records=dict.fromkeys(names))
            await self._store.apply(names, lambda _records, _now: gone)
            for flow in over:
                self._known.pop(flow, None)


def chart_in(payload: bytes) -> Chart:
    """Read the payload of a flow's own job.

    Raises: FlowInvalid: the payload is not that of a flow.
    """
    try:
        return Chart(checked(_graph_decoder.decode(payload)))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FlowInvalid(f"the graph of the flow is not valid: {error}") from None


def _flow_in(topic: str) -> UUID | None:
    try:
        return UUID(topic.removeprefix(FLOW))
    except ValueError:
        return None


def _is_over(job: Job) -> bool:
    """Return whether a flow is over; a dead one may still be undone."""
    return job.state in FINISHED and job.state is not State.DEAD


def _known_by(job: Job) -> _Known | None:
    """Return a readable flow that is not completed, by its own job."""
    if job.state is State.COMPLETED:
        return None
    try:
        return _Known(chart_in(job.payload), is_cancelled=job.state is State.CANCELLED)
    except FlowInvalid as error:
        log.warning("flow.unreadable", **fields_of(job), why=str(error))
        return None


def _check_records(
    known: Mapping[UUID, _Known], records: Mapping[str, Json], news: Sequence[News]
) -> None:
    """Raise if there is news of a flow whose record was seen before, and is missing."""
    flows = {_flow_in(topic) for topic in {each.topic for each in news} - records.keys()}
    if gone := [flow for flow, each in known.items() if each.is_begun and flow in flows]:
        raise _RecordGone(gone)


def _decided(
    flows: Mapping[str, UUID],
    known: Mapping[UUID, _Known],
    records: Mapping[str, Json],
    news: Sequence[News],
    now: datetime,
) -> Changes[_Heard]:
    ended: dict[str, list[tuple[int, State]]] = {}
    for each in news:
        state = msgspec.json.decode(each.body, type=_Ended).state
        ended.setdefault(each.topic, []).append((number_of(each.id), state))
    changed: dict[str, Json | None] = {}
    moves: list[Move] = []
    unpark: list[str] = []
    begun, new, unfinished = [], [], []
    for topic, flow in flows.items():
        record, ends, of_it = records.get(topic), ended.get(topic, []), known.get(flow)
        if of_it is None or (record is None and _is_late(of_it, ends)):
            changed |= {topic: None} if record is not None else {}
            continue
        step = advance(of_it.chart, flow, record, ends)
        changed |= {topic: step.record} if step.record != record else {}
        unpark += step.freed
        moves += _moves(flow, step)
        begun += [flow] if step.record is not None else []
        new += [flow] if step.record is not None and record is None else []
        unfinished += [topic] if step.more else []
    answer = _Heard(tuple(begun), tuple(new), tuple(unfinished))
    alarms = {
        topic: now + _CHECK_INTERVAL
        for topic, record in changed.items()
        if record and is_dead(record)
    }
    return Changes(answer=answer, records=changed, moves=moves, unpark=unpark, alarms=alarms)


def _is_late(flow: _Known, ends: Sequence[tuple[int, State]]) -> bool:
    """Return whether jobs of a flow without a record ended after it; a cancel is the end itself."""
    is_cancel = flow.is_cancelled and any(number == 0 for number, _ in ends)
    return not ends or (flow.is_cancelled and not is_cancel)


class _Ended(msgspec.Struct):
    state: State


def _moves(flow: UUID, step: Advance) -> list[Move]:
    cancelled = (step.cancelled or {}).items()
    moves = [
        Move(verb=Verb.CANCEL, id=member_id(flow, number), reason=why) for number, why in cancelled
    ]
    for undo in step.held:
        own_wait = held_wait_of(flow, undo)
        moves.append(Move(verb=Verb.PARK, id=member_id(flow, undo), waiting_for=own_wait))
    if step.revived:
        moves.append(Move(verb=Verb.REDRIVE, id=flow, reason="the undo that had failed is done"))
    return moves
