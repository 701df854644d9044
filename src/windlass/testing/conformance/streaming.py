"""Owns the laws of streams: chunks in order, under a fence, replayed until they are pruned."""

from __future__ import annotations

from uuid import UUID

from windlass.core.jobs.job import Job
from windlass.core.jobs.moves import Verb
from windlass.core.jobs.queries import Retention
from windlass.core.jobs.states import State
from windlass.core.jobs.streams import BEGIN, Appended, ChunkGroup, Position, StreamPage
from windlass.testing.conformance.bench import DAY, HOUR, MANY, SECOND, Bench
from windlass.testing.conformance.law import law

_KEPT = Retention(finished=DAY, dead=DAY, streams=HOUR)


def _group(job: Job, *chunks: str, offset: int = 0, resumed: int = 0, steps: int = 0) -> ChunkGroup:
    assert job.token is not None
    return ChunkGroup(
        id=job.id,
        token=job.token,
        attempt=job.attempt,
        offset=offset,
        resumed=resumed,
        steps=steps,
        chunks=tuple(f'"{chunk}"'.encode() for chunk in chunks),
    )


async def _append(bench: Bench, *groups: ChunkGroup) -> list[Appended | None]:
    return await bench.store.stream_append(groups)


async def _page(bench: Bench, job: UUID, after: Position = BEGIN, limit: int = MANY) -> StreamPage:
    return await bench.store.stream_read(job, after, limit)


async def _read(bench: Bench, job: UUID, after: Position = BEGIN) -> str:
    """Return the chunks after a position, as text: numbers and chunks."""
    page = await _page(bench, job, after)
    numbered = [
        (group.first + place, chunk)
        for group in page.groups
        for place, chunk in enumerate(group.chunks)
    ]
    return " ".join(f"{number}{chunk.decode()[1:-1]}" for number, chunk in numbered)


async def _again(bench: Bench, job: Job) -> Job:
    """Let a running job fail, and start it once more."""
    assert await bench.leave(job, State.PENDING)
    return await bench.start_again(job.id)


@law
async def chunks_are_read_in_the_order_in_which_they_were_added(bench: Bench) -> None:
    """A reader gets all of them, or those after a position, and never more groups than asked."""
    job = await bench.start()
    assert await _append(bench, _group(job, "a", "b")) == [Appended(2, 6)]
    assert await _append(bench, _group(job, "c", offset=2)) == [Appended(3, 9)]
    assert await _read(bench, job.id) == "1a 2b 3c"
    assert await _read(bench, job.id, Position(1, 2)) == "3c"
    assert await _read(bench, job.id, Position(1, 3)) == ""
    page = await _page(bench, job.id, limit=1)
    assert [group.chunks for group in page.groups] == [(b'"a"', b'"b"')]
    # A reader who stopped in the middle of a group gets the whole of it.
    assert await _read(bench, job.id, Position(1, 1)) == "1a 2b 3c"


@law
async def chunks_are_added_under_a_fence(bench: Bench) -> None:
    """Neither another token nor a job that has ended adds anything, and others are not harmed."""
    lost, over, mine = [await bench.start() for _ in range(3)]
    again = await _again(bench, lost)
    assert await bench.leave(over)
    answers = await _append(bench, _group(lost, "x"), _group(over, "x"), _group(mine, "a"))
    assert answers == [None, None, Appended(1, 3)]
    assert await _read(bench, lost.id) == ""
    assert await _read(bench, over.id) == ""
    assert await _read(bench, mine.id) == "1a"
    assert await _append(bench, _group(again, "b")) == [Appended(1, 3)]
    assert await _read(bench, lost.id) == "1b"


@law
async def chunks_that_are_sent_again_are_not_added_again(bench: Bench) -> None:
    """A group whose answer was lost is sent as it was."""
    job = await bench.start()
    for _ in range(2):
        assert await _append(bench, _group(job, "a", "b")) == [Appended(2, 6)]
    for _ in range(2):
        assert await _append(bench, _group(job, "c", offset=2)) == [Appended(3, 9)]
    assert await _read(bench, job.id) == "1a 2b 3c"


@law
async def a_new_attempt_replaces_the_chunks_of_the_last(bench: Bench) -> None:
    """A reader of the last attempt gets the new chunks from the first one on."""
    job = await bench.start()
    await _append(bench, _group(job, "a", "b", "c"))
    again = await _again(bench, job)
    assert await _read(bench, job.id) == "1a 2b 3c"
    assert await _append(bench, _group(again, "d")) == [Appended(1, 3)]
    assert await _read(bench, job.id) == "1d"
    assert await _read(bench, job.id, Position(1, 3)) == "1d"
    assert await _append(bench, _group(again, "e", offset=1)) == [Appended(2, 6)]
    assert await _read(bench, job.id, Position(2, 1)) == "2e"


@law
async def chunks_from_before_a_recorded_step_are_kept(bench: Bench) -> None:
    """The next attempt goes on after them: it does not do the step again."""
    job = await bench.start()
    await _append(bench, _group(job, "a", "b"), _group(job, "c", offset=2, steps=1))
    await _append(bench, _group(job, "d", offset=3, steps=2))
    again = await _again(bench, job)
    assert await _append(bench, _group(again, "e", resumed=2, steps=2)) == [Appended(4, 12)]
    assert await _read(bench, job.id) == "1a 2b 3c 4e"
    assert await _read(bench, job.id, Position(1, 4)) == "4e"
    assert await _read(bench, job.id, Position(1, 3)) == "4e"
    third = await _again(bench, again)
    assert await _append(bench, _group(third, "f", resumed=1, steps=1)) == [Appended(3, 9)]
    assert await _read(bench, job.id) == "1a 2b 3f"


@law
async def a_page_says_whether_more_may_follow(bench: Bench) -> None:
    """It does while the job is scheduled, pending or running, and again after a redrive."""
    for state in (State.SCHEDULED, State.PENDING, State.RUNNING):
        assert (await _page(bench, (await bench.job_in(state)).id)).is_live, state
    for state in (State.COMPLETED, State.CANCELLED, State.DEAD):
        job = await bench.job_in(state)
        assert not (await _page(bench, job.id)).is_live, state
    assert await bench.move(Verb.REDRIVE, job.id) is not None
    assert (await _page(bench, job.id)).is_live
    assert not (await _page(bench, bench.new().id)).is_live


@law
async def a_stream_is_kept_for_a_while_after_the_end_of_its_job(bench: Bench) -> None:
    """However long the job had waited or run before; the job itself is kept for its own time."""
    job = await bench.start()
    await _append(bench, _group(job, "a"))
    for _ in range(3):
        await bench.advance(DAY)
        await bench.store.prune(_KEPT, MANY)
        assert await _read(bench, job.id) == "1a"
    assert await bench.leave(job)
    await bench.advance(HOUR - SECOND)
    await bench.store.prune(_KEPT, MANY)
    assert await _read(bench, job.id) == "1a"
    await bench.advance(2 * SECOND)
    assert await bench.store.prune(_KEPT, MANY) >= 1
    assert await _read(bench, job.id) == ""
    assert await bench.state(job.id) is State.COMPLETED


@law
async def a_dead_jobs_stream_is_pruned_as_well(bench: Bench) -> None:
    """After that a redrive streams as a first attempt does."""
    job = await bench.start()
    await _append(bench, _group(job, "a", "b"))
    assert await bench.leave(job, State.DEAD)
    await bench.advance(HOUR + SECOND)
    await bench.store.prune(_KEPT, MANY)
    assert await _read(bench, job.id) == ""
    assert await bench.move(Verb.REDRIVE, job.id) is not None
    again = await bench.start_again(job.id)
    assert await _append(bench, _group(again, "c", resumed=1)) == [Appended(1, 3)]
    assert await _read(bench, job.id, Position(1, 2)) == "1c"


@law
async def a_purge_deletes_the_stream(bench: Bench) -> None:
    """Nothing of a job is left that was purged or pruned."""
    for state in (State.COMPLETED, State.DEAD):
        job = await bench.start()
        await _append(bench, _group(job, "a"))
        assert await bench.leave(job, state)
        assert await bench.move(Verb.PURGE, job.id) is not None
        assert await _read(bench, job.id) == ""
    job = await bench.start()
    await _append(bench, _group(job, "a"))
    assert await bench.leave(job)
    await bench.advance(2 * HOUR)
    await bench.store.prune(Retention(finished=HOUR, streams=HOUR), MANY)
    assert await bench.store.get(job.id) is None
    assert await _read(bench, job.id) == ""


@law
async def many_streams_are_pruned_in_pieces(bench: Bench) -> None:
    """A prune deletes no more than it is asked for, and the next one goes on."""
    jobs = [await bench.start() for _ in range(5)]
    await _append(bench, *(_group(job, "a") for job in jobs))
    assert all([await bench.leave(job) for job in jobs])
    await bench.advance(2 * HOUR)
    assert await bench.store.prune(_KEPT, 3) == 3
    left = [job for job in jobs if await _read(bench, job.id)]
    assert len(left) == 2
    assert await bench.store.prune(_KEPT, 3) == 2
    assert await bench.store.prune(_KEPT, 3) == 0


@law
async def every_text_survives_in_a_chunk(bench: Bench) -> None:
    """Whatever JSON may hold: quotes, backslashes, other scripts, and thousands of characters."""
    job = await bench.start()
    texts = (r"\"\\\n", "Grüße, 世界 🦉", "{}[],", "x" * 100_000)
    await _append(bench, _group(job, *texts))
    page = await _page(bench, job.id)
    assert [chunk.decode() for chunk in page.groups[0].chunks] == [f'"{text}"' for text in texts]
