"""Owns the rotation of keys: what old keys have encrypted is encrypted again with the first one."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from windlass.app.vault import Vault
from windlass.core.changes import Changes, Move, Verb
from windlass.core.job import Job, JobFilter
from windlass.core.secret import MARK, Sealing
from windlass.core.states import State

if TYPE_CHECKING:
    from windlass.app.app import Windlass

_CHUNK = 100
# Inside of a JSON string its quotes would be escaped, so this is found nowhere but as an object.
_SEALED = re.compile(rf'{{\s*"{re.escape(MARK)}"\s*:\s*"([\w.+/=-]+)"\s*}}'.encode())


@dataclass(frozen=True, kw_only=True)
class Rotated:
    """What came of it, in jobs."""

    looked_at: int = 0
    outdated: int = 0
    """Those with a secret that another key than the first has encrypted."""
    rotated: int = 0
    unreadable: int = 0
    """Those whose key is not here; they stay as they are."""


async def rotate_keys(
    app: Windlass, *, dry_run: bool = False, advance: Callable[[Rotated], None] = lambda _: None
) -> Rotated:
    """Encrypt the secrets of all waiting and dead jobs with the first key, a hundred at a time.

    Jobs that run, or that change meanwhile, stay as they are; done again, it does the rest.
    `advance` is told how far it is.

    Raises:
        ConfigError: there is no key.
    """
    app.vault.check("secrets are to be encrypted again")
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
    unreadable = 0
    for job in jobs:
        try:
            payload = resealed(job, app.vault)
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
    )


def resealed(job: Job, vault: Vault) -> bytes | None:
    """Return a job's payload with its secrets under the first key; None if they are already.

    Raises:
        ValueError: one of them cannot be opened.
    """
    sealing = Sealing(vault, "payload", job.kind)
    payload = _resealed(job.payload, sealing, vault)
    return None if payload == job.payload else payload


def _resealed(text: bytes, sealing: Sealing, vault: Vault) -> bytes:
    """Seal again only where it is needed, so that doing it twice changes nothing."""
    bound = sealing.bound

    def again(found: re.Match[bytes]) -> bytes:
        sealed = found[1].decode()
        if vault.is_current(sealed):
            return found[0]
        plain = _resealed(vault.open(sealed, bound=bound), sealing, vault)
        return f'{{"{MARK}":"{vault.seal(plain, bound=bound)}"}}'.encode()

    return _SEALED.sub(again, text)
