"""Owns the page of one job: why it does not run, its story, and its data."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from windlass.app.control.why import Why
from windlass.core.jobs.job import Job
from windlass.core.payloads.masked_job import value_of
from windlass.core.workflows.step_rows import StepRow, steps_of
from windlass.web.access.visible import visible, without_data
from windlass.web.actions.remedies import for_job, for_reason
from windlass.web.live.job_stream import KeptChunks, kept_chunks
from windlass.web.rendering.story import story_of
from windlass.web.site import access_of, reads_of, render, see_other, site_of

_MAX_STEPS = 200
_MAX_ACTIONS = 20
_MAX_CHUNKS = 200
_MAX_CHUNK_CHARACTERS = 20_000


async def job(request: Request) -> Response:
    """Show one job by its id, or by a part of it that is unique."""
    app, reads, access = site_of(request).app, reads_of(request), access_of(request)
    given = request.path_params["id"]
    job_id = (await reads.find_job(given)).id
    if given != str(job_id):
        return see_other(request, f"/jobs/{job_id}")
    why = await reads.why(job_id)
    found = visible(app, why.job)
    shown = found if access.payloads else without_data(found)
    steps = _steps(shown)
    acted = await reads.audit(job=job_id, since=found.created_at, limit=_MAX_ACTIONS)
    context = {
        "job": shown,
        "payload": value_of(shown.payload) if access.payloads else None,
        "result": None if shown.result is None else value_of(shown.result),
        "reasons": [(each, list(for_reason(found, each))) for each in why.reasons],
        "buttons": list(for_job(found)),
        "story": story_of(shown, why.now, why=_waits_for(why), acted=acted.entries),
        "steps": steps[:_MAX_STEPS],
        "more_steps": max(len(steps) - _MAX_STEPS, 0),
        "knows_limits": why.knows_limits,
        "stream": await _stream(request, found),
        "stream_from": request.query_params.get("stream", ""),
    }
    return render(request, "job.html", context, now=why.now)


async def _stream(request: Request, found: Job) -> KeptChunks | None:
    """Return the part of the job's stream that the page shows; None if the person may see none."""
    if not access_of(request).payloads:
        return None
    after = request.query_params.get("stream") or None
    kept = await kept_chunks(
        site_of(request), found, after, most=_MAX_CHUNKS, characters=_MAX_CHUNK_CHARACTERS
    )
    return kept if kept.chunks or after or not kept.is_over else None


def _waits_for(why: Why) -> str:
    return why.reasons[0].message if why.reasons else ""


def _steps(found: Job) -> list[StepRow]:
    try:
        return steps_of(found)
    except ValueError:
        return [StepRow(name=entry[:200], state="of another release") for entry in found.steps]
