"""The routes: order a report, look at it, watch it, cancel it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from uuid import UUID

from fastapi import FastAPI, HTTPException, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from examples.fastapi_service.jobs import jobs, render
from windlass import Handle, JobCancelled, JobDead, State, StreamRestart, UnknownJob
from windlass.contrib.fastapi import WindlassApp, windlass_lifespan

api = FastAPI(title="Reports", lifespan=windlass_lifespan(jobs, worker=True, concurrency=10))
api.mount("/jobs", jobs.web())  # Only for this host; behind your own login: docs/asgi.md.


class Order(BaseModel):
    """What a client sends."""

    month: str = Field(pattern=r"^\d{4}-\d{2}$")
    pages: int = Field(default=1, ge=1, le=100)


@api.post("/reports", status_code=202)
async def order(wanted: Order, request: Request, response: Response) -> dict[str, object]:
    """Order a report, or join the order of the same month."""
    handle = await render.aenqueue(wanted.month, wanted.pages)
    response.headers["location"] = str(request.url_for("look", job=handle.id))
    return {"id": str(handle.id), "joined": handle.is_duplicate}


@api.get("/reports/{job}")
async def look(job: UUID, app: WindlassApp) -> dict[str, object]:
    """Return how far a report is, and the report when it is done."""
    handle = await _found(job, app)
    info = await handle.ainfo()
    result = await handle.aresult() if info.state is State.COMPLETED else None
    done = info.progress.fraction if info.progress else None
    return {"state": info.state, "progress": done, "result": result, "reason": info.reason}


@api.get("/reports/{job}/stream")
async def watch(job: UUID, app: WindlassApp) -> StreamingResponse:
    """Send each page as an event when it is there."""
    handle = await _found(job, app)
    return StreamingResponse(_events(handle), media_type="text/event-stream")


@api.delete("/reports/{job}", status_code=204)
async def cancel(job: UUID, app: WindlassApp) -> None:
    """Cancel a report, also while it is made."""
    await (await _found(job, app)).acancel()


async def _found(job: UUID, app: WindlassApp) -> Handle[object]:
    handle = app.handle(job)
    try:
        is_report = (await handle.ainfo()).kind == render.kind
    except UnknownJob:
        is_report = False
    if not is_report:
        raise HTTPException(404, "there is no such report")
    return handle


async def _events(handle: Handle[object]) -> AsyncIterator[str]:
    end = "completed"
    try:
        async for chunk in handle.astream():
            restarted = isinstance(chunk, StreamRestart)
            yield f"data: {json.dumps('restarted' if restarted else chunk)}\n\n"
    except (JobDead, JobCancelled) as error:
        end = type(error).__name__
    yield f"event: end\ndata: {json.dumps(end)}\n\n"
