"""Owns what workers do when jobs of flows have ended: hear of it, and carry out what follows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple
from uuid import UUID

import msgspec

from windlass.core.changes import Changes, Move, Verb
from windlass.core.errors import FlowInvalid
from windlass.core.flow import Chart, Graph, checked, held_wait_of, topic_of
from windlass.core.flow_record import Advance, advance, is_dead
from windlass.core.job import FLOW, Job, Json, News, member_id, number_of
from windlass.core.states import FINISHED, State
from windlass.observe.logs import get_logger
from windlass.observe.running import fields_of
from windlass.store import Store

log = get_logger("windlass.flows")
_REMEMBERED = 200_000
"""How many jobs the graphs may have in all that are kept at hand."""
_LOOK = timedelta(days=1)
"""How often it is looked whether a flow that is dead was purged, or is past keeping."""
_decoder = msgspec.json.Decoder(Graph)


class _Known(NamedTuple):
    """A flow's graph, and what else is known of it."""

    chart: Chart
    is_begun: bool = False
    """Whether its record was seen: if that is gone then, the flow is over."""
    is_cancelled: bool = False


class _Heard(NamedTuple):
    """What was decided about flows: which go on, which are new, and with which there is more."""

    begun: tuple[UUID, ...]
    new: tuple[UUID, ...]
    unfinished: tuple[str, ...]


class Flows:
    """Hears of the ends of flows' jobs: frees those that waited for them, cancels what is moot."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[UUID, _Known] = {}

    async def hear(self, topics: Sequence[str]) -> None:
        """Hear the news of flows, and do what follows from them, in as many changes as it takes."""
        while topics:
            topics = await self._hear(topics)

    async def forget(self, topics: Sequence[str]) -> None:
        """Delete the records of flows whose own jobs are gone; look again later at all others.

        One that is dead may be redriven for as long as there is a job. Of a purge nobody tells.
        """
        flows = {topic: flow for topic in topics if (flow := _flow_in(topic)) is not None}
        jobs = await self._store.get_many(list(flows.values()))
        gone = [topic for topic, flow in flows.items() if flow not in jobs]

        def decide(records: Mapping[str, Json], now: datetime) -> Changes[None]:
            later = {topic: now + _LOOK for topic in records if topic not in gone}
            return Changes(answer=None, records=dict.fromkeys(gone), alarms=later)

        await self._store.apply(sorted(topics), decide)
        for topic in gone:
            self._known.pop(flows[topic], None)

    async def _hear(self, topics: Sequence[str]) -> Sequence[str]:
        """Make one change; return the topics with which there is more to do."""
        flows = {topic: flow for topic in topics if (flow := _flow_in(topic)) is not None}
        known = await self._look_up(flows.values())

        def decide(
            records: Mapping[str, Json], news: Sequence[News], now: datetime
        ) -> Changes[_Heard]:
            return _decided(flows, known, records, news, now)

        applied = await self._store.hear(list(topics), decide)
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
        """Keep the graphs of flows that go on at hand, the latest, as many as there is room for."""
        for flow in known:
            self._known.pop(flow, None)
        for flow in heard.begun:
            self._known[flow] = _Known(known[flow].chart, is_begun=True)
        kept = sum(each.chart.total for each in self._known.values())
        while kept > _REMEMBERED and len(self._known) > 1:
            kept -= self._known.pop(next(iter(self._known))).chart.total

    async def _forget_ended(self, flows: Sequence[UUID]) -> None:
        """Delete new records of flows that have ended: there was an end to hear that came late."""
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

    Raises:
        FlowInvalid: it is not that of a flow.
    """
    try:
        return Chart(checked(_decoder.decode(payload)))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise FlowInvalid(f"this is not the graph of a flow: {error}") from None


def _flow_in(topic: str) -> UUID | None:
    try:
        return UUID(topic.removeprefix(FLOW))
    except ValueError:
        return None


def _is_over(job: Job) -> bool:
    """Say whether a flow is over; one whose own job is dead may still be undone."""
    return job.state in FINISHED and job.state is not State.DEAD


def _known_by(job: Job) -> _Known | None:
    """Return a flow that can be read, by its own job, and is not completed."""
    if job.state is State.COMPLETED:
        return None
    try:
        return _Known(chart_in(job.payload), is_cancelled=job.state is State.CANCELLED)
    except FlowInvalid as error:
        log.warning("flow.unreadable", **fields_of(job), why=str(error))
        return None


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
    alarms = {topic: now + _LOOK for topic, record in changed.items() if record and is_dead(record)}
    return Changes(answer=answer, records=changed, moves=moves, unpark=unpark, alarms=alarms)


def _is_late(flow: _Known, ends: Sequence[tuple[int, State]]) -> bool:
    """Say whether jobs of a flow without a record ended after it; a cancel is the end itself."""
    is_cancel = flow.is_cancelled and any(number == 0 for number, _ in ends)
    return not ends or flow.is_begun or (flow.is_cancelled and not is_cancel)


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
        moves.append(Move(verb=Verb.REDRIVE, id=flow, reason="what it could not undo is undone"))
    return moves
