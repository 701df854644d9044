"""Owns the laws of news, alarms and parking: no news is missed, or heard twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from windlass.core.changes import Changes
from windlass.core.errors import LeaseLost
from windlass.core.jobs.ids import flow_id, member_id
from windlass.core.jobs.job import EVENT
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.states import State
from windlass.core.records import Json, News
from windlass.testing.conformance.bench import (
    DAY,
    HOUR,
    MANY,
    MINUTE,
    PROMPT,
    Bench,
    leaving,
    raised,
)
from windlass.testing.conformance.law import law

Heard = list[tuple[str, UUID, Any]]


def _flow(bench: Bench) -> UUID:
    return flow_id(int(bench.now().timestamp() * 1_000), bench.number())


def _event(bench: Bench, name: str, body: bytes = b"null") -> News:
    return News(topic=f"{EVENT}{name}", id=bench.new().id, body=body)


async def _hear(bench: Bench, *topics: str, **parts: Any) -> Heard:
    """Hear the news of topics, and return them as topic, id and body."""

    def decide(
        _records: Mapping[str, Json], news: Sequence[News], _now: datetime
    ) -> Changes[Heard]:
        heard = [(each.topic, each.id, msgspec.json.decode(each.body)) for each in news]
        return Changes(answer=heard, **parts)

    return (await bench.store.hear(topics, decide)).answer


async def _set(
    bench: Bench, name: str, record: Json | None, alarms: Mapping[str, datetime | None]
) -> None:
    changes = Changes(answer=None, records={name: record}, alarms=alarms)
    await bench.store.apply([name], lambda _records, _now: changes)


# -- flows -----------------------------------------------------------------------------------------


@law
async def every_end_of_a_flows_job_is_news(bench: Bench) -> None:
    """Completed, dead, cancelled while running or waiting: each end is news once."""
    flow = _flow(bench)
    topic = f"flow:{flow}"
    done, dead, stopped = [await bench.start(id=member_id(flow, n)) for n in (1, 2, 3)]
    waiting = await bench.enqueue(id=member_id(flow, 4), kind="never")
    parked = await bench.enqueue(id=member_id(flow, 5), waiting_for=topic)
    again = await bench.start(id=member_id(flow, 6))
    assert await bench.leave(done, State.COMPLETED, result=b"1")
    assert await bench.leave(dead, State.DEAD, reason="gave up")
    assert await bench.leave(stopped, State.CANCELLED, reason="moot")
    assert await bench.leave(again, State.SCHEDULED, due=HOUR)
    for job in (waiting, parked):
        assert await bench.move(Verb.CANCEL, job) is not None
    assert await bench.store.topics(MANY) == [topic]
    heard = sorted(await _hear(bench, topic), key=lambda each: each[1])
    states = ["completed", "dead", "cancelled", "cancelled", "cancelled"]
    expected = [
        (topic, member_id(flow, number), {"state": state}) for number, state in enumerate(states, 1)
    ]
    assert heard == expected
    assert await _hear(bench, topic) == []
    assert await bench.store.topics(MANY) == []


@law
async def successes_that_are_settled_together_are_all_news(bench: Bench) -> None:
    """However many there are, and whatever other transitions are settled with them."""
    flow, worker = _flow(bench), await bench.worker()
    new = [bench.new(id=member_id(flow, number)) for number in range(1, 101)]
    await bench.store.enqueue([*new, *(bench.new() for _ in range(100))])
    jobs = await bench.claim(worker)
    assert all(await bench.store.settle([leaving(job) for job in jobs]))
    heard = await _hear(bench, f"flow:{flow}")
    assert sorted(id_ for _, id_, _ in heard) == [each.id for each in new]


@law
async def a_redriven_job_that_ends_again_is_news_again(bench: Bench) -> None:
    """A second end of a job is news again; the reducer decides whether it matters."""
    flow = _flow(bench)
    job = await bench.start(id=member_id(flow, 1))
    await bench.leave(job, State.DEAD)
    assert len(await _hear(bench, f"flow:{flow}")) == 1
    await bench.move(Verb.REDRIVE, job.id)
    await bench.leave(await bench.start_again(job.id))
    assert len(await _hear(bench, f"flow:{flow}")) == 1


@law
async def a_parked_job_waits_until_it_is_freed(bench: Bench) -> None:
    """Whether enqueued parked or parked later, time frees no job, and one unpark frees all."""
    flow = f"flow:{_flow(bench)}"
    jobs = [await bench.enqueue(kind="parked", waiting_for=flow) for _ in range(3)]
    later = await bench.enqueue(kind="parked", waiting_for=flow, due=DAY)
    other = await bench.enqueue(kind="parked", waiting_for="flow:other")
    assert (await bench.job(jobs[0])).waiting_for == flow
    await bench.advance(HOUR)
    assert await bench.store.promote(MANY) == 0
    assert (await bench.store.sweep()).heads == ()
    await bench.store.apply([], lambda _records, _now: Changes(answer=None, unpark=[flow]))
    assert {await bench.state(job) for job in jobs} == {State.PENDING}
    assert await bench.state(later) is State.SCHEDULED
    assert (await bench.job(later)).waiting_for is None
    assert (await bench.job(other)).waiting_for == "flow:other"
    await bench.advance(DAY)
    assert await bench.store.promote(MANY) == 1
    assert await bench.state(other) is State.SCHEDULED


# -- events ----------------------------------------------------------------------------------------


@law
async def an_event_is_kept_until_it_is_heard(bench: Bench) -> None:
    """News have their body and time, in the order of sending; each once."""
    first = _event(bench, "paid:42", b'{"by": "card"}')
    await bench.store.send([first])
    at = bench.now()
    await bench.advance(MINUTE)
    second, other = _event(bench, "paid:42", b"2"), _event(bench, "paid:7")
    limit = timedelta(seconds=PROMPT)
    await asyncio.to_thread(bench.store.send_blocking, [second, other, second], limit)
    await bench.store.send([first, second])
    assert set(await bench.store.topics(MANY)) == {"event:paid:42", "event:paid:7"}
    assert len(await bench.store.topics(1)) == 1

    def decide(records: Mapping[str, Json], news: Sequence[News], now: datetime) -> Changes[Any]:
        assert records == {}
        assert now == bench.now()
        return Changes(answer=list(news), records={"event:paid:42": {"n": len(news)}})

    heard = (await bench.store.hear(["event:paid:42"], decide)).answer
    assert [(each.id, msgspec.json.decode(each.body)) for each in heard] == [
        (first.id, {"by": "card"}),
        (second.id, 2),
    ]
    assert [each.at for each in heard] == [at, bench.now()]
    assert await bench.store.records("event:") == {"event:paid:42": {"n": 2}}
    assert await bench.store.topics(MANY) == ["event:paid:7"]


@law
async def news_are_heard_together_with_what_they_change(bench: Bench) -> None:
    """If a fence is lost nothing is changed, and the next reducer hears the news."""
    lost, event = await bench.start(), _event(bench, "paid:42")
    await bench.store.send([event])
    settle = [leaving(lost, token=bench.number())]
    await raised(LeaseLost, _hear(bench, event.topic, settle=settle, records={event.topic: {}}))
    assert await bench.store.records("event:") == {}
    assert [id_ for _, id_, _ in await _hear(bench, event.topic)] == [event.id]


@law
async def news_are_heard_by_one_of_many_reducers(bench: Bench) -> None:
    """Of concurrent reducers, exactly one hears each piece of news."""
    events = [_event(bench, f"e{number % 5}") for number in range(50)]
    topics = sorted({event.topic for event in events})
    await bench.store.send(events)
    heard = await asyncio.gather(*(_hear(bench, *topics) for _ in range(8)))
    counted = Counter(id_ for each in heard for _, id_, _ in each)
    assert counted == Counter(event.id for event in events)


@law
async def a_job_that_waits_for_an_event_is_freed_by_it(bench: Bench) -> None:
    """At once, however long the job would still have waited; other jobs keep waiting."""
    job, endless, other = [await bench.start() for _ in range(3)]
    for each, name, due in ((job, "a", HOUR), (endless, "a", 1_000 * DAY), (other, "b", HOUR)):
        assert await bench.leave(each, State.SCHEDULED, due=due, waiting_for=f"event:{name}")
    assert await bench.store.promote(MANY) == 0
    assert (await bench.job(job.id)).waiting_for == "event:a"
    await _hear(bench, "event:a", unpark=["event:a"])
    for each in (job, endless):
        freed = await bench.job(each.id)
        assert (freed.state, freed.waiting_for) == (State.PENDING, None)
        assert freed.due_at <= bench.now()
        await bench.start_again(each.id)
    assert await bench.state(other.id) is State.SCHEDULED


@law
async def a_job_that_waits_for_an_event_is_pending_once_it_is_due(bench: Bench) -> None:
    """Then it is pending, and waits for nothing any more; the sweep says when that will be."""
    job = await bench.start()
    await bench.leave(job, State.SCHEDULED, due=HOUR, waiting_for="event:a")
    assert (await bench.store.sweep()).next_due == bench.now() + HOUR
    await bench.advance(HOUR)
    assert await bench.store.promote(MANY) == 1
    after = await bench.job(job.id)
    assert (after.state, after.waiting_for) == (State.PENDING, None)


@law
async def a_job_that_waits_for_an_event_can_be_cancelled(bench: Bench) -> None:
    """A cancelled job has ended, and the event frees no job."""
    job = await bench.start()
    await bench.leave(job, State.SCHEDULED, due=HOUR, waiting_for="event:a")
    assert await bench.move(Verb.CANCEL, job.id) is not None
    await _hear(bench, "event:a", unpark=["event:a"])
    assert await bench.state(job.id) is State.CANCELLED


@law
async def a_wait_begins_together_with_its_change(bench: Bench) -> None:
    """A settle that parks is carried out with the records that decided it, or not at all."""
    job = await bench.start()
    park = leaving(job, State.SCHEDULED, due=HOUR, waiting_for="event:a", steps=("1",))
    changes = Changes(answer=None, settle=[park], records={"event:a": {"waiting": 1}})
    await bench.store.apply(["event:a"], lambda _records, _now: changes)
    after = await bench.job(job.id)
    assert (after.state, after.waiting_for, after.steps) == (State.SCHEDULED, "event:a", ("1",))


# -- alarms ----------------------------------------------------------------------------------------


@law
async def alarms_go_off_in_their_order(bench: Bench) -> None:
    """Records are returned once their alarm is due, earliest first, with the time of the next."""
    now = bench.now()
    for name, after in (("c", 3 * HOUR), ("a", HOUR), ("b", 2 * HOUR)):
        await _set(bench, name, {"name": name}, {name: now + after})
    await _set(bench, "quiet", {}, {})
    ringing = await bench.store.ringing(MANY)
    assert (ringing.records, ringing.next, ringing.now) == ({}, now + HOUR, now)
    await bench.advance(2 * HOUR)
    ringing = await bench.store.ringing(MANY)
    assert list(ringing.records.items()) == [("a", {"name": "a"}), ("b", {"name": "b"})]
    assert (ringing.next, ringing.now) == (now + 3 * HOUR, bench.now())
    first = await bench.store.ringing(1)
    assert (list(first.records), first.next) == (["a"], now + 2 * HOUR)


@law
async def an_alarm_stays_until_it_is_changed(bench: Bench) -> None:
    """Writing a record keeps its alarm; naming the alarm moves or removes it; so does deleting."""
    now = bench.now()
    await _set(bench, "a", {"n": 1}, {"a": now})
    await _set(bench, "a", {"n": 2}, {})
    assert (await bench.store.ringing(MANY)).records == {"a": {"n": 2}}
    await _set(bench, "a", {"n": 3}, {"a": now + HOUR})
    assert (await bench.store.ringing(MANY)).records == {}
    await _set(bench, "a", {"n": 4}, {"a": None})
    assert (await bench.store.ringing(MANY)).next is None
    await _set(bench, "a", {"n": 5}, {"a": now, "none": now})
    await _set(bench, "a", None, {})
    await _set(bench, "a", {"n": 6}, {})
    ringing = await bench.store.ringing(MANY)
    assert (ringing.records, ringing.next) == ({}, None)


# -- many ------------------------------------------------------------------------------------------


@law
async def jobs_are_found_together(bench: Bench) -> None:
    """Jobs are found by id in every state; unknown ids are left out."""
    jobs = [await bench.job_in(state) for state in State]
    found = await bench.store.get_many([*(job.id for job in jobs), bench.new().id])
    assert found == {job.id: await bench.job(job.id) for job in jobs}
    assert await bench.store.get_many([]) == {}


@law
async def moves_and_freeing_happen_together(bench: Bench) -> None:
    """One change frees some jobs, cancels others and adds new ones."""
    flow = f"flow:{_flow(bench)}"
    freed = await bench.enqueue(kind="a", waiting_for=flow)
    moot = await bench.enqueue(kind="b", waiting_for="flow:other")
    new = bench.new(kind="c", waiting_for=flow)
    await _hear(
        bench,
        flow,
        unpark=[flow],
        moves=[Move(verb=Verb.CANCEL, id=moot)],
        enqueue=[new],
        records={flow: {"left": 1}},
        alarms={flow: bench.now()},
    )
    assert await bench.state(freed) is State.PENDING
    assert await bench.state(moot) is State.CANCELLED
    assert list((await bench.store.ringing(MANY)).records) == [flow]
    assert await bench.state(new.id) is State.PENDING, "what is added is there before it is freed"


@law
async def many_jobs_are_parked_and_cancelled_as_one_is(bench: Bench) -> None:
    """Jobs enqueued in bulk wait as one does; a joint cancel handles each by its own state."""
    flow = _flow(bench)
    topic = f"flow:{flow}"
    new = [bench.new(id=member_id(flow, n), waiting_for=topic, key="k") for n in range(1, 41)]
    ready = [bench.new(id=member_id(flow, n), headers={"a": "b"}) for n in range(41, 61)]
    await bench.store.enqueue([*new, *ready])
    parked = await bench.job(new[7].id)
    assert (parked.state, parked.waiting_for, parked.key) == (State.SCHEDULED, topic, "k")
    assert (await bench.job(ready[7].id)).headers == {"a": "b"}
    running = await bench.claim(await bench.worker())
    assert sorted(job.id for job in running) == [each.id for each in ready]
    assert await bench.leave(running[0])
    ids = [*(each.id for each in (*new, *ready)), bench.new().id]
    moves = [Move(verb=Verb.CANCEL, id=id_, reason="moot") for id_ in reversed(ids)]
    applied = await bench.store.apply([], lambda _records, _now: Changes(answer=1, moves=moves))
    ended = [job for job in applied.moved if job is not None and job.state is State.CANCELLED]
    assert {job.id for job in ended} == {each.id for each in new}
    assert {(job.reason, job.finished_at) for job in ended} == {("moot", bench.now())}
    asked = [job for job in applied.moved if job is not None and job.cancel_requested]
    assert {job.id for job in asked} == {job.id for job in running[1:]}
    assert [job is None for job in applied.moved].count(True) == 2
    assert len(await _hear(bench, topic)) == 41
    assert await bench.state(new[0].id) is State.CANCELLED
