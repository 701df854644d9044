"""Owns the watcher: one for a process, it looks at the store and tells open pages what changed.

It looks only while a page is open, and at what all pages share.
"""

from __future__ import annotations

import asyncio
import json
import signal
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress

from windlass.app.snapshot import Snapshot
from windlass.core.errors import WindlassError
from windlass.observability.logs import get_logger
from windlass.web.live.reads import Reads

log = get_logger("windlass.web")
_LOOK_SECONDS = 1.0
_KEEP_ALIVE_SECONDS = 15.0
_STREAM_SECONDS = 300.0
"""Seconds after which a stream ends, and its page opens another: servers wait for it to end."""
_BACKLOG = 4
MAX_STREAMS = 500
RETRY_MILLISECONDS = 3_000


class TooManyStreams(Exception):
    """There are as many open pages as one process serves; a page that is refused polls."""


class Watcher:
    """Feeds the streams of all open pages from one look at the store."""

    def __init__(self, reads: Reads) -> None:
        self._reads = reads
        # Weak: a response that never starts drops its queue without a word.
        self._listeners: weakref.WeakSet[asyncio.Queue[str | None]] = weakref.WeakSet()
        self._task: asyncio.Task[None] | None = None
        self._known: dict[str, str] = {}
        self._closed = False

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return len(self._listeners)

    @property
    def is_ending(self) -> bool:
        """Whether open streams have to end, since the server does."""
        return self._closed or _is_server_ending()

    def close(self) -> None:
        """End all streams, so that the server can end."""
        self._closed = True
        self._tell(None)

    def subscribe(self) -> AsyncIterator[str]:
        """Return the events for one open page, as text of Server-Sent Events.

        Raises:
            TooManyStreams: no more pages can be served live.
        """
        if len(self._listeners) >= MAX_STREAMS or self._closed:
            raise TooManyStreams
        own: asyncio.Queue[str | None] = asyncio.Queue(_BACKLOG)
        self._listeners.add(own)
        return self._events(own)

    async def _events(self, own: asyncio.Queue[str | None]) -> AsyncIterator[str]:
        try:
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._watch(), name="windlass web watcher")
            yield f"retry: {RETRY_MILLISECONDS}\n: windlass\n\n"
            end = asyncio.get_running_loop().time() + _STREAM_SECONDS
            while not self._closed and asyncio.get_running_loop().time() < end:
                try:
                    event = await asyncio.wait_for(own.get(), _KEEP_ALIVE_SECONDS)
                except TimeoutError:
                    event = ": still here\n\n"
                if event is None:
                    return
                yield event
        finally:
            self._listeners.discard(own)
            if not self._listeners and self._task is not None:
                # Forgotten at once: a stream that starts before it has ended needs another.
                self._task.cancel()
                self._task = None

    async def _watch(self) -> None:
        while not self._closed:
            if _is_server_ending():
                self.close()
                return
            try:
                found = _topics(await self._reads.snapshot())
            except WindlassError as error:
                # The page says so, too, as soon as it reads anything.
                found = {"store": str(error)}
            except Exception as error:
                log.exception("web.watcher_failed")
                found = {"store": repr(error)}
            changed = [name for name, value in found.items() if self._known.get(name) != value]
            self._known = {**self._known, **found}
            if changed:
                # Before the event: what was read earlier would be shown as new.
                self._reads.refresh()
                self._tell(f"event: changed\ndata: {json.dumps(changed)}\n\n")
            await asyncio.sleep(_LOOK_SECONDS)

    def _tell(self, event: str | None) -> None:
        for each in list(self._listeners):
            _put(each, event)


def _is_server_ending() -> bool:
    """Return whether uvicorn has been asked to end; it waits for streams, and tells no mount."""
    server = getattr(signal.getsignal(signal.SIGTERM), "__self__", None)
    return bool(getattr(server, "should_exit", False))


def _topics(snapshot: Snapshot) -> Mapping[str, str]:
    """Return what pages depend on, each as text that differs when it changed."""
    stats = snapshot.stats
    jobs = [(each.name, sorted(each.jobs.items())) for each in stats.queues]
    done = [(each.name, each.runs, each.failed, each.dead) for each in stats.kinds]
    processed = [(each.id, each.processed) for each in stats.workers]
    return {
        "jobs": repr((jobs, processed)),
        "queues": repr((jobs, stats.arrival_rate, stats.service_rate, sorted(snapshot.pauses))),
        "kinds": repr((done, sorted(snapshot.pauses))),
        "errors": repr([(each.group, each.count, each.dead) for each in stats.errors]),
        "workers": repr([(each.id, each.state, each.busy, each.slots) for each in stats.workers]),
        "breakers": repr((stats.breakers, stats.half_open)),
        "store": "",
    }


def _put(queue: asyncio.Queue[str | None], event: str | None) -> None:
    if event is None and queue.full():
        with suppress(asyncio.QueueEmpty):
            queue.get_nowait()
    # A page that reads too slowly misses an event; the next one brings it up to date.
    with suppress(asyncio.QueueFull):
        queue.put_nowait(event)
