"""Owns the ids of jobs and flows: how they are made, related, written, and known as never sent."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, SafeUUID


def job_id(milliseconds: int, random_bits: int) -> UUID:
    """Make a UUIDv7 from a Unix time and 74 random bits: unique anywhere, and sorted by age."""
    random = random_bits >> 62 << 64 | random_bits & 0x3FFF_FFFF_FFFF_FFFF
    return uuid_of(milliseconds << 80 | _VERSION_7 | random)


def uuid_of(value: int) -> UUID:
    """Make a UUID of a number that is one, without the checks that take three times as long."""
    made = object.__new__(UUID)
    _set_int(made, value)
    _set_is_safe(made, _UNKNOWN)
    return made


def flow_id(milliseconds: int, random_bits: int) -> UUID:
    """Make the id of a flow: a UUIDv8 from a Unix time and 54 random bits, the last 20 bits 0.

    These 20 bits number its jobs, so that a job's id alone says which flow it belongs to.
    """
    random = random_bits >> 42 << 64 | random_bits << 20 & 0x3FFF_FFFF_FFFF_FFFF
    return uuid_of(milliseconds << 80 | _VERSION_8 | random)


def member_id(flow: UUID, number: int) -> UUID:
    """Return the id of a job of a flow; number 0 is the flow's own."""
    if not 0 <= number < FLOW_LIMIT:
        raise ValueError(f"a flow must have fewer than {FLOW_LIMIT:,} jobs, got {number:,}")
    return uuid_of(flow.int | number)


def first_id(moment: datetime) -> UUID:
    """Return the least id of a job made at a moment by its producer's clock."""
    return uuid_of(int(moment.timestamp() * 1_000) << 80)


def made_at(job: UUID) -> datetime:
    """Return when an id was made, by its producer's clock."""
    return datetime.fromtimestamp(min(job.int >> 80, _LAST_MILLISECOND) / 1_000, UTC)


def flow_of(job: UUID) -> UUID | None:
    """Return the id of the flow that a job belongs to, by its own id."""
    value = job.int
    if value >> 76 & 0xF != 8:
        return None
    return uuid_of(value & ~(FLOW_LIMIT - 1))


def number_of(job: UUID) -> int:
    """Return the number of a job within its flow."""
    return job.int & FLOW_LIMIT - 1


FLOW_LIMIT = 1 << 20
"""How many jobs a flow can have, its own among them."""


_LAST_MILLISECOND = 253_402_300_799_000
"""The last second of the calendar; other ids than Windlass's may be greater."""


_VERSION_7 = 0x7000_8000_0000_0000_0000


_VERSION_8 = 0x8000_8000_0000_0000_0000


_UNKNOWN = SafeUUID.unknown


_set_int = vars(UUID)["int"].__set__


_set_is_safe = vars(UUID)["is_safe"].__set__


SHORTEST = 4
"""How many digits the beginning of an id must have."""
_DIGITS = 32
_ENDING = 8
_HEX = re.compile(r"[0-9a-f]+")
_SHOWN = len("0197f3a2-6c1e-7b60")
"""The millisecond and 12 random bits, which distinguish jobs of different producers."""
_WHOLE = len(str(UUID(int=0)))


def read_id(text: str) -> tuple[UUID, UUID]:
    """Return the least and the greatest id that begins with a text; the same twice if it is whole.

    Raises:
        ValueError: it cannot be the beginning of an id.
    """
    digits = text.strip().lower().replace("-", "")
    if not _HEX.fullmatch(digits) or len(digits) > _DIGITS:
        raise ValueError(
            f"a job id must have up to {_DIGITS} hexadecimal digits, got {text!r}; copy one from "
            "`windlass jobs list`, a unique prefix is enough"
        )
    if len(digits) < SHORTEST:
        raise ValueError(
            f"the prefix of a job id must have at least {SHORTEST} digits, got {text!r}; add more "
            "digits"
        )
    return UUID(digits.ljust(_DIGITS, "0")), UUID(digits.ljust(_DIGITS, "f"))


def ending_of(text: str) -> str | None:
    """Return the digits of a text that is long enough to identify a job by the end of its id.

    Short log lines show the end of an id, since it is random while the beginning is a time.
    """
    digits = text.strip().lower().replace("-", "")
    return digits if _ENDING <= len(digits) < _DIGITS else None


def shortened(ids: Sequence[UUID]) -> list[str]:
    """Return prefixes of ids, all of one length, that are unique among them."""
    whole = sorted({str(each) for each in ids})
    needed = max(map(_common, whole, whole[1:]), default=0) + 1
    length = max(_SHOWN, needed)
    # Jobs that one producer made in one millisecond differ in their last digits only.
    length = _WHOLE if length > _WHOLE - 4 else length
    return [str(each)[:length].rstrip("-") for each in ids]


def _common(one: str, other: str) -> int:
    pairs = zip(one, other, strict=True)
    return next((n for n, (left, right) in enumerate(pairs) if left != right), len(one))


class Origin:
    """A stretch of a process's life in which jobs were made, and the ids of those that were sent.

    An enqueue whose outcome is unknown may be repeated even after its job has ended. A store that
    keeps ended jobs elsewhere has to look for the id there, which takes several times as long as
    the insert. A job that was made in this very process, and has not been sent from it, cannot be
    there. No clock decides about it: clocks run ahead, and are set back.

    A job refers to its origin for as long as the job is kept, so nothing is forgotten too early,
    nor kept for longer than that. A pickled or deep-copied job has none: other processes, and other
    drafts, cannot know what becomes of the first.
    """

    __slots__ = ("_sent", "process")

    def __init__(self, process: int) -> None:
        self.process = process
        """The pid: a forked child has a copy of this object, and does not see what its parent
        sends."""
        self._sent: dict[int, object] = {}

    def send(self, job: int, sending: object) -> bool:
        """Record that an id is sent, and return whether it never was before."""
        # One step, so that of two threads only one is the first.
        return self._sent.setdefault(job, sending) is sending

    def __reduce__(self) -> tuple[Any, tuple[()]]:
        """Become None in another process."""
        return _elsewhere, ()


def _elsewhere() -> None:
    return None


def are_fresh(jobs: Iterable[tuple[int, Origin | None]], process: int) -> bool:
    """Return whether all these jobs are sent for the first time ever; all count as sent now.

    Jobs are given as integers, since a UUID is slow to hash.
    """
    sending = object()
    ids: set[int] = set()
    fresh = True
    for job, origin in jobs:
        here = origin is not None and origin.process == process
        fresh = fresh and here and job not in ids
        if origin is not None and not origin.send(job, sending):
            fresh = False
        ids.add(job)
    return fresh
