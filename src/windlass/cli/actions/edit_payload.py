"""Owns how a person corrects the payload of a dead job, in an editor or by a JSON document."""

from __future__ import annotations

import json
from uuid import UUID

import typer

from windlass.app import Windlass
from windlass.app.registration.importing import load_imports
from windlass.cli import options
from windlass.cli.actions.editor import edit
from windlass.cli.output import console as show
from windlass.core.errors import ConfigError, PayloadError, UnknownJob
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import State
from windlass.core.payloads.json_checks import strict_json


def redrive_edited(
    target: options.Target, job_id: UUID, given: str | None, *, dry_run: bool
) -> bool:
    """Redrive a dead job with the given or edited payload; False if it is unchanged.

    Raises:
        WindlassError: there is no such dead job, or its handler cannot take the payload.
    """
    job, chosen = _look(target, job_id)
    payload = _checked(job, chosen, given) if given is not None else _edited(job, chosen)
    if payload is None:
        return False
    if not dry_run:
        target.visit(lambda chosen: chosen.control.aredrive_with(job_id, payload))
    return True


def _look(target: options.Target, job_id: UUID) -> tuple[Job, Windlass]:
    async def work(chosen: Windlass) -> tuple[Job, Windlass]:
        job = await chosen.store.get(job_id)
        if job is None:
            raise UnknownJob(job_id)
        return job, chosen

    job, chosen = target.visit(work)
    if job.state is not State.DEAD:
        raise ConfigError(
            f"job {job_id} is {job.state}, not dead, so its payload cannot be changed"
        )
    if list(chosen.registry):
        load_imports(chosen.settings.imports)
    return job, chosen


def _edited(job: Job, app: Windlass) -> bytes | None:
    before = _pretty(job, app)
    text = before
    while True:
        edited = edit(text, suffix=".json", otherwise="give the payload with --payload JSON")
        if edited.strip() == before.strip():
            return None
        try:
            return _checked(job, app, edited)
        except (ConfigError, PayloadError) as error:
            show.error(str(error))
            if not typer.confirm("Edit it again?", default=True, err=True):
                return None
            text = edited


def _checked(job: Job, app: Windlass, text: str) -> bytes:
    try:
        value = strict_json(text)
    except ValueError as error:
        raise ConfigError(f"the payload is not valid JSON: {error}") from None
    return app.registry.checked_payload(job.kind, value, limit=app.settings.max_payload)


def _pretty(job: Job, app: Windlass) -> str:
    try:
        json.loads(job.payload)
    except (ValueError, RecursionError):
        return job.payload.decode(errors="replace")
    value = app.registry.readable_payload(job.kind, job.payload, whole=True)
    return json.dumps(value, indent=2, ensure_ascii=False) + "\n"
