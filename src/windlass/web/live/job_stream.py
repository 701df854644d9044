"""Owns the stream of one job as Server-Sent Events, and the part of it that a page shows.

A listener gets all chunks from the first one on, or those after the last event that it received.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from windlass.app.masking import redaction_of
from windlass.app.streams import Listener
from windlass.core.errors import UnknownJob, WindlassError
from windlass.core.jobs.job import Job
from windlass.core.jobs.states import FINISHED, State
from windlass.core.jobs.streams import StreamPage, StreamRestart
from windlass.observability.logs import get_logger
from windlass.web.access.own_jobs import find_job
from windlass.web.live.open_streams import Place, TooManyJobStreams
from windlass.web.live.watcher import RETRY_MILLISECONDS
from windlass.web.problems import problem
from windlass.web.site import Site, access_of, site_of

log = get_logger("windlass.web")
_MIN_PAUSE_SECONDS = 0.1
_MAX_PAUSE_SECONDS = 1.0
"""Seconds between two looks at the store, and at whether the server ends, while no chunk comes."""
_KEEP_ALIVE_SECONDS = 15.0
_STREAM_SECONDS = 300.0
"""Seconds after which a stream ends, and its listener opens another: servers wait for it to end."""
_MAX_SENT = 64 * 1024
"""Characters of events that are sent at once."""
_NOT_SHOWN = "your login does not show payloads, so it cannot see what a job streams"
_TOO_MANY = "too many streams of jobs are open; close a page that shows one, then try again"
_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass(frozen=True, kw_only=True)
class KeptChunks:
    """Chunks of a stream after a position, masked, as many as a page shows."""

    chunks: tuple[tuple[int, Any], ...]
    """Each with its number."""
    position: str
    """The position of the last of them."""
    is_full: bool
    """Whether the page has no room for more."""
    is_over: bool
    """Whether the job has ended, and these are the last chunks."""


async def stream(request: Request) -> Response:
    """Send what a job streams until it ends: from its first chunk on, or after `Last-Event-ID`.

    `after` is the same for a first request. With `wait=no`, only what is there is sent.
    """
    site, access, query = site_of(request), access_of(request), request.query_params
    if not access.payloads:
        return problem(request, 403, _NOT_SHOWN)
    job = await find_job(site.app, access, request.path_params["id"])
    after = request.headers.get("last-event-id") or query.get("after")
    source = _Source(site, job.id, after or None)
    if request.method == "HEAD":
        return Response(media_type="text/event-stream", headers=_HEADERS)
    try:
        place = site.job_streams.take_place()
    except TooManyJobStreams:
        return problem(request, 503, _TOO_MANY)
    events = source.events(place, waits=query.get("wait") != "no")
    return StreamingResponse(events, media_type="text/event-stream", headers=_HEADERS)


async def kept_chunks(
    site: Site, job: Job, after: str | None, *, most: int, characters: int
) -> KeptChunks:
    """Return the first chunks of a stream, or those after a position, within these bounds.

    Raises:
        ValueError: `after` is not a position.
    """
    source = _Source(site, job.id, after)
    page = await source.listener.read_once()
    chunks: list[tuple[int, Any]] = []
    is_full = False
    for chunk in source.taken():
        if isinstance(chunk, StreamRestart):
            continue
        chunks.append((source.listener.position.number, chunk))
        characters -= len(json.dumps(chunk))
        is_full = len(chunks) == most or characters <= 0
        if is_full:
            break
    # Otherwise the page of the store was the last one only if nothing follows it.
    has_more = is_full or bool(page.groups and (await source.listener.read_once()).groups)
    return KeptChunks(
        chunks=tuple(chunks),
        position=str(source.listener.position),
        is_full=has_more,
        is_over=job.state in FINISHED and not has_more,
    )


class _Source:
    """Reads the stream of a job for one listener, and writes its events."""

    def __init__(self, site: Site, job: UUID, after: str | None) -> None:
        self._site = site
        self._job = job
        self._redaction = redaction_of(site.app)
        self._state = State.PENDING
        self.listener = Listener(
            site.app,
            job,
            chunk_type=Any,
            after=after,
            timeout=None,
            check_end=lambda _: None,
            read_page=site.job_streams.read_page,
        )

    def taken(self) -> Iterator[Any]:
        """Yield the chunks that were read, masked."""
        while True:
            try:
                chunk = self.listener.take()
            except LookupError:
                return
            is_restart = isinstance(chunk, StreamRestart)
            yield chunk if is_restart else self._redaction.value(chunk)

    async def events(self, place: Place, *, waits: bool) -> AsyncIterator[str]:
        """Yield the events of a stream; `place` is taken until the last of them is sent."""
        yield f"retry: {RETRY_MILLISECONDS}\n: windlass\n\n"
        try:
            async for text in self._live() if waits else self._present():
                yield text
        except WindlassError as error:
            # It was purged, or the store is unreachable: the listener asks again, and learns it.
            log.warning("web.stream_failed", job=str(self._job), error=str(error))
        finally:
            del place

    async def _live(self) -> AsyncIterator[str]:
        clock = asyncio.get_running_loop().time
        end, last, pause = clock() + _STREAM_SECONDS, clock(), _MIN_PAUSE_SECONDS
        while not self._site.watcher.is_ending and clock() < end:
            page = await self._page()
            for text in self._written():
                last, pause = clock(), _MIN_PAUSE_SECONDS
                yield text
            if (
                page is not None
                and not page.groups
                and not page.is_live
                and await self._has_ended()
            ):
                yield self._ended()
                return
            if clock() - last >= _KEEP_ALIVE_SECONDS:
                last = clock()
                yield ": still here\n\n"
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _MAX_PAUSE_SECONDS)

    async def _present(self) -> AsyncIterator[str]:
        while (page := await self.listener.read_once()).groups:
            for text in self._written():
                yield text
        if not page.is_live and await self._has_ended():
            yield self._ended()

    async def _page(self) -> StreamPage | None:
        """Read on; None if that takes so long that the end of the server has to be looked at."""
        try:
            return await asyncio.wait_for(self.listener.read_once(), _MAX_PAUSE_SECONDS)
        except TimeoutError:
            return None

    async def _has_ended(self) -> bool:
        job = await self._site.app.store.get(self._job)
        if job is None:
            raise UnknownJob(self._job)
        self._state = job.state
        return job.state in FINISHED  # Otherwise it was redriven since.

    def _written(self) -> Iterator[str]:
        """Yield the events of what was read, many at once."""
        text = ""
        for chunk in self.taken():
            place = f"id: {self.listener.position}\n"
            if isinstance(chunk, StreamRestart):
                text += f"event: restart\n{place}data: {chunk.kept}\n\n"
            else:
                text += f"{place}data: {json.dumps(chunk)}\n\n"
            if len(text) >= _MAX_SENT:
                yield text
                text = ""
        if text:
            yield text

    def _ended(self) -> str:
        return f"event: end\ndata: {json.dumps({'state': self._state.value})}\n\n"
