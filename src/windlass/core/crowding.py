"""Owns what leaves a job no room: slots, threads and child processes of workers, all in use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from windlass.core.job import Job, WorkerRecord
from windlass.core.reasons import START, Cause, Reason, some
from windlass.core.suspicion import is_suspect


class _Room(StrEnum):
    """What a worker may have none left of; the value is the option that gives it more."""

    SLOTS = "slots"
    THREADS = "threads"
    CHILDREN = "children"


_NAMES = {_Room.THREADS: "threads", _Room.CHILDREN: "child processes"}


def crowding(
    job: Job, workers: Sequence[WorkerRecord], held: Mapping[str, Sequence[Job]]
) -> Iterator[Reason]:
    """Say what is all in use of those who would run a job; nothing if one of them has room.

    `held` is what workers have, of those that were looked at; of others their heartbeats tell.
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
    """Return how many jobs a worker runs at once at present, as far as it has told."""
    return worker.pulse.slots or worker.info.least_slots or worker.info.slots


def _full(job: Job, room: _Room, full: Sequence[WorkerRecord]) -> Reason:
    count = sum(_size(each, room) for each in full)
    names = some(each.info.id for each in full)
    what = _NAMES.get(room, room.value)
    told = f"all {count} {what} of the workers that would run it are in use ({names})"
    if room is _Room.SLOTS and any(job.queue in each.info.queue_slots for each in full):
        told = f"all slots that workers have for queue {job.queue} are in use ({names})"
    facts = {"workers": [each.info.id for each in full], room.value: count}
    remedy = f"more workers, or more {what}: {START} --{room.value} N"
    return Reason(cause=Cause.BUSY, told=told, remedy=remedy, facts=facts)


def _size(worker: WorkerRecord, room: _Room) -> int:
    match room:
        case _Room.SLOTS:
            return slots_of(worker)
        case _Room.THREADS:
            return worker.info.threads or 0
        case _Room.CHILDREN:
            return worker.info.children or 0


def _lacking(worker: WorkerRecord, job: Job, held: Sequence[Job] | None) -> list[_Room]:
    """Return what a job would need, and a worker has none left of."""
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
    # A release that does not tell of its threads tells that either they or its slots are in use.
    is_vague = worker.info.threads is None
    return len(held) >= slots_of(worker) or (is_vague and worker.pulse.busy >= 1 and bool(held))


def _room_of(worker: WorkerRecord, job: Job) -> _Room | None:
    """Return what a job needs besides a slot; None: nothing, or it is not told."""
    where = _Room.CHILDREN.value if is_suspect(job) else worker.info.pools.get(job.kind)
    known = {_Room.THREADS: worker.info.threads, _Room.CHILDREN: worker.info.children}
    return next((room for room, size in known.items() if room == where and size is not None), None)


def _is_used_up(worker: WorkerRecord, room: _Room, held: Sequence[Job] | None) -> bool:
    if held is not None:
        return sum(_room_of(worker, each) is room for each in held) >= _size(worker, room)
    told = worker.pulse
    used = told.in_threads if room is _Room.THREADS else told.in_children
    return used >= _size(worker, room)
