"""Owns the reasons of exhausted capacity: slots, threads and child processes, all in use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from windlass.core.failures.crash_suspects import is_suspect
from windlass.core.jobs.job import Job
from windlass.core.values.text import listed
from windlass.core.why.reason import START, Cause, Reason
from windlass.core.workers import WorkerRecord


class _Room(StrEnum):
    SLOTS = "slots"
    THREADS = "threads"
    ISOLATED = "isolated_processes"


_NAMES = {_Room.THREADS: "threads", _Room.ISOLATED: "child processes"}
_FLAGS = {
    _Room.SLOTS: "--concurrency",
    _Room.THREADS: "--threads",
    _Room.ISOLATED: "--isolated-processes",
}


def crowding(
    job: Job, workers: Sequence[WorkerRecord], held: Mapping[str, Sequence[Job]]
) -> Iterator[Reason]:
    """Yield what is exhausted if all workers that would run a job are full.

    `held` are the jobs of the workers that were inspected; the heartbeats of others suffice.
    """
    serving = [each for each in workers if each.alive and each.info.serves(job.lane)]
    lacks = [_lacking(each, job, held.get(each.info.id)) for each in serving]
    if not all(lacks):
        return
    for room in _Room:
        full = [each for each, lacking in zip(serving, lacks, strict=True) if room in lacking]
        if full:
            yield _full(job, room, full)


def slots_of(worker: WorkerRecord) -> int:
    """Return how many jobs a worker runs at once at present, as far as reported."""
    return worker.pulse.slots or worker.info.least_slots or worker.info.slots


def _full(job: Job, room: _Room, full: Sequence[WorkerRecord]) -> Reason:
    count = sum(_size(each, room) for each in full)
    names = listed(each.info.id for each in full)
    what = _NAMES.get(room, room.value)
    message = f"all {count} {what} of the workers that could run it are in use ({names})"
    if room is _Room.SLOTS and any(job.queue in each.info.queue_slots for each in full):
        message = f"all slots that workers have for queue {job.queue} are in use ({names})"
    facts = {"workers": [each.info.id for each in full], room.value: count}
    remedy = f"more workers, or more {what}: {START} {_FLAGS[room]} N"
    return Reason(cause=Cause.BUSY, message=message, remedy=remedy, facts=facts)


def _size(worker: WorkerRecord, room: _Room) -> int:
    match room:
        case _Room.SLOTS:
            return slots_of(worker)
        case _Room.THREADS:
            return worker.info.threads or 0
        case _Room.ISOLATED:
            return worker.info.isolated_processes or 0


def _lacking(worker: WorkerRecord, job: Job, held: Sequence[Job] | None) -> list[_Room]:
    lacking = [_Room.SLOTS] if _has_no_slot(worker, job.queue, held) else []
    room = _room_of(worker, job)
    if room is not None and _is_used_up(worker, room, held):
        lacking.append(room)
    return lacking


def _has_no_slot(worker: WorkerRecord, queue: str, held: Sequence[Job] | None) -> bool:
    if held is None:
        return worker.pulse.running >= slots_of(worker)
    share = worker.info.queue_slots.get(queue)
    if share is not None and sum(job.queue == queue for job in held) >= share:
        return True
    # A release that does not report its threads reports whether they or its slots are in use.
    is_vague = worker.info.threads is None
    return len(held) >= slots_of(worker) or (is_vague and worker.pulse.busy >= 1 and bool(held))


def _room_of(worker: WorkerRecord, job: Job) -> _Room | None:
    where = _Room.ISOLATED.value if is_suspect(job) else worker.info.pools.get(job.kind)
    known = {_Room.THREADS: worker.info.threads, _Room.ISOLATED: worker.info.isolated_processes}
    return next((room for room, size in known.items() if room == where and size is not None), None)


def _is_used_up(worker: WorkerRecord, room: _Room, held: Sequence[Job] | None) -> bool:
    if held is not None:
        return sum(_room_of(worker, each) is room for each in held) >= _size(worker, room)
    pulse = worker.pulse
    used = pulse.in_threads if room is _Room.THREADS else pulse.in_isolated_processes
    return used >= _size(worker, room)
