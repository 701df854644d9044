"""Owns the rotation of keys: secrets under old keys are encrypted again with the first one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from windlass.app.secrets.encryption import Encryption
from windlass.core.changes import Changes
from windlass.core.jobs.job import Job
from windlass.core.jobs.moves import Move, Verb
from windlass.core.jobs.queries import JobFilter
from windlass.core.jobs.states import State
from windlass.core.payloads.secret import MARK, Sealing

if TYPE_CHECKING:
    from windlass.app.app import Windlass

_CHUNK = 100
# Inside a JSON string its quotes would be escaped, so this matches objects only.
_SEALED = re.compile(rf'{{\s*"{re.escape(MARK)}"\s*:\s*"([\w.+/=-]+)"\s*}}'.encode())


class Rotated(Struct, frozen=True, kw_only=True):
    """The result, in numbers of jobs."""

    looked_at: int = 0
    outdated: int = 0
    """Jobs with a secret that another key than the first has encrypted."""
    rotated: int = 0
    unreadable: int = 0
    """Jobs whose key is not configured; they stay unchanged."""
    in_steps: int = 0
    """Jobs with such a secret in a recorded step, which needs its key until the job has ended."""


def sealed_by(text: bytes) -> set[str]:
    """Return the ids of the keys that have encrypted the secrets in a JSON text."""
    return {found[1].decode().partition(".")[0] for found in _SEALED.finditer(text)}


async def rotate_keys(
    app: Windlass, *, dry_run: bool = False, advance: Callable[[Rotated], None] = lambda _: None
) -> Rotated:
    """Encrypt the secrets of all waiting and dead jobs with the first key, a hundred at a time.

    Jobs that run, or that change meanwhile, stay unchanged; running it again does the rest.
    `advance` is called with the progress.

    Raises:
        ConfigError: there is no key.
    """
    app.encryption.check("re-encrypting secrets needs a key")
    done = Rotated()
    which = JobFilter(states=(State.SCHEDULED, State.PENDING, State.DEAD))
    page = await app.store.find(which, limit=_CHUNK, after=None)
    while True:
        done = await _rotate_some(app, page.jobs, done, dry_run=dry_run)
        advance(done)
        if page.after is None:
            return done
        page = await app.store.find(which, limit=_CHUNK, after=page.after)


async def _rotate_some(
    app: Windlass, jobs: Sequence[Job], done: Rotated, *, dry_run: bool
) -> Rotated:
    moves: list[Move] = []
    unreadable = in_steps = 0
    for job in jobs:
        in_steps += any(_is_outdated(step.encode(), app.encryption) for step in job.steps)
        try:
            payload = resealed(job, app.encryption)
        except ValueError:
            unreadable += 1
            continue
        if payload is not None:
            moves.append(Move(verb=Verb.RESEAL, id=job.id, before=job.payload, payload=payload))
    rotated = 0
    if moves and not dry_run:
        applied = await app.store.apply([], lambda _, __: Changes(answer=None, moves=moves))
        rotated = sum(after is not None for after in applied.moved)
    return Rotated(
        looked_at=done.looked_at + len(jobs),
        outdated=done.outdated + len(moves) + unreadable,
        rotated=done.rotated + rotated,
        unreadable=done.unreadable + unreadable,
        in_steps=done.in_steps + in_steps,
    )


def _is_outdated(text: bytes, encryption: Encryption) -> bool:
    sealed = (found[1].decode() for found in _SEALED.finditer(text))
    return not all(map(encryption.is_current, sealed))


def resealed(job: Job, encryption: Encryption) -> bytes | None:
    """Return a job's payload with its secrets under the first key; None if they are already.

    Raises:
        ValueError: one of them cannot be opened.
    """
    sealing = Sealing(encryption, "payload", job.kind)
    payload = _resealed(job.payload, sealing, encryption)
    return None if payload == job.payload else payload


def _resealed(text: bytes, sealing: Sealing, encryption: Encryption) -> bytes:
    # Idempotent: a value under the current key is left as it is.
    bound = sealing.bound

    def again(found: re.Match[bytes]) -> bytes:
        sealed = found[1].decode()
        if encryption.is_current(sealed):
            return found[0]
        plain = _resealed(encryption.open(sealed, bound=bound), sealing, encryption)
        return f'{{"{MARK}":"{encryption.seal(plain, bound=bound)}"}}'.encode()

    return _SEALED.sub(again, text)
