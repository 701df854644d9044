"""Owns what `top` changes in the store once somebody has said yes, and what it says of that."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from uuid import UUID

from windlass.app import Windlass
from windlass.cli.harvest import CHUNK, Choice, search
from windlass.cli.screen.view import Lever
from windlass.cli.show import plural
from windlass.core.job import JobFilter
from windlass.core.states import State


async def pull(
    app: Windlass, lever: Lever, told: Callable[[str], None], left: Callable[[], bool]
) -> str:
    """Do it, and say what came of it; `told` is called in between with how far it is.

    Of what takes several steps, no more are begun once `left` says that nobody looks any more.

    Raises:
        WindlassError: it could not be done, or not all of it.
        ValueError: a name that cannot be one.
    """
    if lever.what == "job":
        return await _move(app, lever)
    if lever.verb == "redrive":
        return await _redrive(app, lever, told, left)
    what = {lever.what: lever.name}
    if lever.verb == "pause":
        changed = await app.control.pause(**what)
        return f"{lever.what} {lever.name} {'is paused' if changed else 'was paused already'}"
    changed = await app.control.resume(**what)
    return f"{lever.what} {lever.name} {'goes on' if changed else 'was not paused'}"


async def _move(app: Windlass, lever: Lever) -> str:
    job = UUID(lever.name)
    if lever.verb == "retry":
        await app.control.retry(job)
        return f"job {job} is due now"
    return f"job {job} " + ("redriven" if await app.control.redrive([job]) else "is not dead")


async def _redrive(
    app: Windlass, lever: Lever, told: Callable[[str], None], left: Callable[[], bool]
) -> str:
    which = JobFilter(states=(State.DEAD,), kind=lever.kind, fingerprint=lever.name)
    ids = await search(app, Choice(which=which))
    done = 0
    oldest_first = ids[::-1]
    for start in range(0, len(ids), CHUNK):
        if left():
            again = shlex.join(("--group", lever.name, "--kind", lever.kind))
            return f"{done:,} of {len(ids):,} redriven; the others: windlass dead redrive {again}"
        told(f"redriving: {start:,} of {plural(len(ids), 'job')}")
        done += len(await app.control.redrive(oldest_first[start : start + CHUNK]))
    return f"{plural(done, 'dead job')} redriven" if ids else "none of them is dead any more"
