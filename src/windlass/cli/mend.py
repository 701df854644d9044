"""Owns how a person mends the payload of a dead job, in an editor or by a JSON document."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import click

from windlass.app import Windlass
from windlass.cli import show, target
from windlass.core.errors import ConfigError, PayloadError, UnknownJob
from windlass.core.job import Job
from windlass.core.payload import encode_json
from windlass.core.states import State


def redrive_mended(
    app: str | None, url: str | None, job_id: UUID, given: str | None, *, dry_run: bool
) -> bool:
    """Redrive a dead job with the payload that is given, or else edited; False if it is as it was.

    Raises:
        WindlassError: there is no such dead job, or its handler cannot take the payload.
    """
    job, chosen = _look(app, url, job_id)
    payload = _checked(job, chosen, given) if given is not None else _edited(job, chosen)
    if payload is None:
        return False
    if not dry_run:
        target.visit(app, url, lambda chosen: chosen.control.redrive_with(job_id, payload))
    return True


def _look(app: str | None, url: str | None, job_id: UUID) -> tuple[Job, Windlass]:
    async def work(chosen: Windlass) -> tuple[Job, Windlass]:
        job = await chosen.store.get(job_id)
        if job is None:
            raise UnknownJob(job_id)
        return job, chosen

    job, chosen = target.visit(app, url, work)
    if job.state is not State.DEAD:
        raise ConfigError(f"job {job_id} is {job.state}, not dead, so its payload stays as it is")
    if list(chosen.registry):
        chosen.load_imports(chosen.settings.imports)
    return job, chosen


def _edited(job: Job, app: Windlass) -> bytes | None:
    """Let a person edit the payload until it can be taken, or they give up; nothing is lost."""
    before = _pretty(job.payload)
    text = before
    while True:
        edited = click.edit(text, extension=".json")
        if edited is None or edited.strip() == before.strip():
            return None
        try:
            return _checked(job, app, edited)
        except (ConfigError, PayloadError) as error:
            show.error(str(error))
            if not click.confirm("Edit it again?", default=True, err=True):
                return None
            text = edited


def _checked(job: Job, app: Windlass, text: str) -> bytes:
    """Return a payload as it is stored, after a look whether its handler could take it."""
    try:
        value = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"this is no payload, since it is no JSON: {error}") from None
    payload = encode_json("payload", value, limit=app.settings.max_payload)
    if job.kind in app.registry:
        app.registry[job.kind].target.codec.decode(payload, kind=job.kind)
    return payload


def _pretty(payload: bytes) -> str:
    try:
        value: Any = json.loads(payload)
    except (ValueError, RecursionError):
        return payload.decode(errors="replace")
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")
