"""Owns the laws of records and `apply`: a reducer's changes happen as a whole."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from windlass.core.changes import Applied, Changes, MoveCount
from windlass.core.errors import LeaseLost
from windlass.core.jobs.job import UniqueKey
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.states import State
from windlass.core.records import Json, RecordPage
from windlass.testing.conformance.bench import DAY, MINUTE, Bench, leaving, raised
from windlass.testing.conformance.law import law


async def _apply(bench: Bench, *names: str, **parts: Any) -> Applied[None]:
    return await bench.store.apply(names, lambda _records, _now: Changes(answer=None, **parts))


async def _set(bench: Bench, records: dict[str, Json | None]) -> None:
    await _apply(bench, *records, records=records)


@law
async def a_reducer_sees_its_records_and_the_stores_time(bench: Bench) -> None:
    """The reducer gets the named records that exist, and no others; its answer is returned."""
    await _set(bench, {"limit:a": {"n": 1}, "limit:b": {"n": 2}})
    await bench.advance(MINUTE)

    def decide(records: Mapping[str, Json], now: datetime) -> Changes[Any]:
        return Changes(answer=({name: dict(record) for name, record in records.items()}, now))

    applied = await bench.store.apply(["limit:a", "limit:none"], decide)
    assert applied.answer == ({"limit:a": {"n": 1}}, bench.now())
    assert applied.moved == ()


@law
async def records_are_kept_as_they_were_given(bench: Bench) -> None:
    """Every JSON value comes back unchanged."""
    record: Json = {"text": 'it\'s "ünï" 🙂', "n": [1, 2.5, -3, None, True], "deep": {"": {}}}
    await _set(bench, {"breaker:smtp": record})
    assert await bench.store.records("breaker:smtp") == {"breaker:smtp": record}


@law
async def a_record_is_replaced_and_deleted_as_a_whole(bench: Bench) -> None:
    """Setting replaces all of a record, None deletes it, and the rest stays as it is."""
    await _set(bench, {"a": {"x": 1, "y": 2}, "b": {"x": 1}})
    await _set(bench, {"a": {"z": 3}, "none": None})
    assert await bench.store.records("") == {"a": {"z": 3}, "b": {"x": 1}}
    await _set(bench, {"a": None})
    assert await bench.store.records("") == {"b": {"x": 1}}


@law
async def records_are_found_by_prefix(bench: Bench) -> None:
    """A prefix is text and no pattern: case counts, and no character is a wild card."""
    names = ("limit:a", "limit:b", "Limit:c", "limit_d", "limit%e", "breaker:limit:a", "limit:ü")
    await _set(bench, {name: {"name": name} for name in names})
    for prefix in ("limit:", "limit_", "limit%", "Limit", "li", "limit:a", "limit:ü", "*", ""):
        expected = {name for name in names if name.startswith(prefix)}
        found = await bench.store.records(prefix)
        assert set(found) == expected, f"prefix {prefix!r}"


@law
async def records_are_listed_by_pages(bench: Bench) -> None:
    """A page has the last records by name, in descending order; the next one continues it."""
    names = [f"audit:{each}" for each in ("1", "12", "2", "a", "B", "ü", "🙂")]
    await _set(bench, {name: {"name": name} for name in (*names, "audit", "audits", "b:3")})
    expected = sorted(names, reverse=True)
    first = await bench.store.records("audit:", RecordPage(3))
    assert list(first.items()) == [(name, {"name": name}) for name in expected[:3]]
    rest = await bench.store.records("audit:", RecordPage(100, before=expected[2]))
    assert list(rest) == expected[3:]
    assert list(await bench.store.records("audit:", RecordPage(5, before="audit:2"))) == [
        "audit:12",
        "audit:1",
    ]
    assert await bench.store.records("audit:", RecordPage(5, before="audit:1")) == {}


@law
async def a_record_that_was_handed_out_is_a_copy(bench: Bench) -> None:
    """A reader that changes its copy changes nothing in the store."""
    await _set(bench, {"a": {"n": [1]}})
    records = await bench.store.records("a")
    records["a"]["n"].append(2)
    assert await bench.store.records("a") == {"a": {"n": [1]}}


@law
async def a_whole_change_happens(bench: Bench) -> None:
    """Records, new jobs, settles and moves of one change are all carried out."""
    job, waiting, new = await bench.start(), await bench.job_in(State.PENDING), bench.new()
    applied = await _apply(
        bench,
        "flow:1",
        records={"flow:1": {"left": 2}},
        enqueue=[new],
        settle=[leaving(job, result=b"1")],
        moves=[Move(verb=Verb.CANCEL, id=waiting.id, reason="moot")],
    )
    assert applied.answer is None
    assert applied.moved == (await bench.job(waiting.id),)
    assert await bench.store.records("flow:") == {"flow:1": {"left": 2}}
    assert (await bench.job(job.id)).result == b"1"
    assert await bench.state(new.id) is State.PENDING
    assert await bench.state(waiting.id) is State.CANCELLED


@law
async def a_lost_fence_undoes_the_whole_change(bench: Bench) -> None:
    """When one settle is fenced, nothing of the change happens, and the error names the job."""
    kept, lost, waiting = await bench.start(), await bench.start(), await bench.enqueue()
    new = bench.new(unique=UniqueKey(key="k"))
    await _set(bench, {"flow:1": {"left": 2}, "flow:2": {"left": 5}})
    change = _apply(
        bench,
        "flow:1",
        "flow:2",
        "flow:3",
        records={"flow:1": {"left": 1}, "flow:2": None, "flow:3": {}},
        enqueue=[new],
        settle=[leaving(kept), leaving(lost, token=bench.number())],
        moves=[Move(verb=Verb.CANCEL, id=waiting)],
    )
    assert (await raised(LeaseLost, change)).job_id == lost.id
    assert await bench.store.records("flow:") == {"flow:1": {"left": 2}, "flow:2": {"left": 5}}
    assert await bench.job(kept.id) == kept
    assert await bench.store.get(new.id) is None
    assert await bench.state(waiting) is State.PENDING
    assert not (await bench.add(unique=UniqueKey(key="k"))).is_duplicate, "the key was not taken"


@law
async def a_job_is_settled_once_in_a_change(bench: Bench) -> None:
    """A change that settles one job twice has lost its fence at the second."""
    job = await bench.start()
    await raised(LeaseLost, _apply(bench, settle=[leaving(job, State.DEAD), leaving(job)]))
    assert await bench.job(job.id) == job


@law
async def a_reducer_that_raises_changes_nothing(bench: Bench) -> None:
    """The error of a reducer reaches the caller, and the store continues to work."""

    def decide(_records: Mapping[str, Json], _now: datetime) -> Changes[None]:
        raise LookupError("no decision")

    await _set(bench, {"a": {"n": 1}})
    await raised(LookupError, bench.store.apply(["a"], decide))
    await _set(bench, {"b": {"n": 2}})
    assert await bench.store.records("") == {"a": {"n": 1}, "b": {"n": 2}}


@law
async def a_refused_move_is_reported_and_undoes_nothing(bench: Bench) -> None:
    """Moves are answered in order, None for each that was refused."""
    jobs = [await bench.job_in(state) for state in (State.PENDING, State.DEAD, State.PENDING)]
    applied = await _apply(
        bench,
        "a",
        records={"a": {}},
        moves=[Move(verb=Verb.CANCEL, id=job.id) for job in jobs],
    )
    assert [job and job.id for job in applied.moved] == [jobs[0].id, None, jobs[2].id]
    assert await bench.store.records("a") == {"a": {}}


@law
async def moves_of_one_job_follow_each_other(bench: Bench) -> None:
    """A later move of a change sees the effect of an earlier one."""
    job = await bench.enqueue()
    applied = await _apply(
        bench,
        moves=[
            Move(verb=Verb.PARK, id=job, waiting_for="event"),
            Move(verb=Verb.UNPARK, id=job, waiting_for="event"),
            Move(verb=Verb.CANCEL, id=job),
            Move(verb=Verb.CANCEL, id=job),
        ],
    )
    states = [moved and moved.state for moved in applied.moved]
    assert states == [State.SCHEDULED, State.PENDING, State.CANCELLED, None]


@law
async def a_change_enqueues_as_an_enqueue_does(bench: Bench) -> None:
    """Ids, unique keys and due times mean the same inside a change."""
    held = UniqueKey(key="held")
    holder, again = bench.new(unique=held), bench.new(unique=held)
    past, later = bench.new(due=bench.now() - DAY), bench.new(due=MINUTE)
    await bench.store.enqueue([holder])
    await _apply(bench, enqueue=[holder, again, past, later])
    assert await bench.store.get(again.id) is None
    assert (await bench.job(past.id)).due_at == bench.now()
    assert await bench.state(later.id) is State.SCHEDULED


@law
async def a_change_hands_a_key_on(bench: Bench) -> None:
    """A job that a change settles frees its key for one that the same change enqueues."""
    key = UniqueKey(key="next")
    job, heir = await bench.start(unique=key), bench.new(unique=key)
    await _apply(bench, settle=[leaving(job)], enqueue=[heir])
    assert await bench.state(heir.id) is State.PENDING


@law
async def changes_of_one_record_lose_no_update(bench: Bench) -> None:
    """Reducers that run at the same time see each other's records, each after the other."""

    def increment(records: Mapping[str, Json], _now: datetime) -> Changes[int]:
        count = records.get("counter", {"n": 0})["n"] + 1
        return Changes(answer=count, records={"counter": {"n": count}})

    applied = await asyncio.gather(*(bench.store.apply(["counter"], increment) for _ in range(50)))
    assert sorted(each.answer for each in applied) == list(range(1, 51))
    assert await bench.store.records("counter") == {"counter": {"n": 50}}


@law
async def a_record_counts_the_moves_of_its_change(bench: Bench) -> None:
    """The number of moves that happened is added to a field of a record, in the same change."""
    jobs = [await bench.job_in(state) for state in (State.PENDING, State.DEAD, State.PENDING)]
    record: Json = {"what": 'ünï "🙂"', "moved": 40, "list": [], "deep": {}, "rate": 2.5}
    await _set(bench, {"bulk:1": record})
    await _apply(
        bench,
        "bulk:1",
        moves=[Move(verb=Verb.CANCEL, id=job.id) for job in jobs],
        move_counts={
            "bulk:1": MoveCount(record=record, field="moved"),
            "new": MoveCount(record={}),
        },
    )
    assert await bench.store.records("bulk:") == {"bulk:1": record | {"moved": 42}}
    assert await bench.store.records("new") == {"new": {"count": 2}}


@law
async def a_count_of_no_moves_is_written_only_on_request(bench: Bench) -> None:
    """Where no move happened, a record stays as it is, unless it is always written."""
    job = await bench.job_in(State.DEAD)
    await _set(bench, {"kept": {"count": 7}})
    await _apply(
        bench,
        "kept",
        "locked",
        moves=[Move(verb=Verb.CANCEL, id=job.id)],
        move_counts={
            "kept": MoveCount(record={"count": 7, "new": True}),
            "locked": MoveCount(record={"by": "ada"}),
            "audit": MoveCount(record={"by": "ada"}),
            "always": MoveCount(record={"cursor": "x"}, field="moved", always=True),
        },
    )
    found = await bench.store.records("")
    assert found == {"kept": {"count": 7}, "always": {"cursor": "x", "moved": 0}}


@law
async def a_count_keeps_the_alarm_of_its_record(bench: Bench) -> None:
    """A record that counts moves rings as the same change says."""
    job = await bench.enqueue()
    await _set(bench, {"bulk:1": {}})
    await _apply(
        bench,
        "bulk:1",
        moves=[Move(verb=Verb.CANCEL, id=job)],
        move_counts={"bulk:1": MoveCount(record={})},
        alarms={"bulk:1": bench.now()},
    )
    assert (await bench.store.ringing(5)).records == {"bulk:1": {"count": 1}}


@law
async def a_lost_fence_undoes_the_count(bench: Bench) -> None:
    """Moves that did not happen are not counted."""
    job, waiting = await bench.start(), await bench.enqueue()
    change = _apply(
        bench,
        settle=[leaving(job, token=bench.number())],
        moves=[Move(verb=Verb.CANCEL, id=waiting)],
        move_counts={"a": MoveCount(record={}, always=True)},
    )
    await raised(LeaseLost, change)
    assert await bench.store.records("") == {}
