"""Owns the open streams of jobs of one page: how many there may be, and what they read together."""

from __future__ import annotations

import weakref
from uuid import UUID

from windlass.app.app import Windlass
from windlass.core.jobs.streams import Position, StreamPage
from windlass.web.live.shared_answers import SharedAnswers

MAX_JOB_STREAMS = 200
_FRESH_SECONDS = 0.2
"""Seconds for which a page of a stream serves all who ask for it."""
_Key = tuple[UUID, Position, int]


class TooManyJobStreams(Exception):
    """There are as many open streams of jobs as one process serves."""


class Place:
    """The place of one open stream, taken for as long as it is referenced."""


class JobStreams:
    """Bounds the open streams of jobs, and reads for all who listen to the same job.

    Listeners of a job are at the same place, its end, most of the time: fifty of them cost the
    store what one costs.
    """

    def __init__(self, app: Windlass) -> None:
        self._app = app
        # Weak: a response that never starts gives its place back without a word.
        self._places: weakref.WeakSet[Place] = weakref.WeakSet()
        self._pages = SharedAnswers[_Key](_FRESH_SECONDS)

    @property
    def streams(self) -> int:
        """The number of open streams."""
        return len(self._places)

    def take_place(self) -> Place:
        """Return a place for one more stream.

        Raises:
            TooManyJobStreams: there is none.
        """
        if len(self._places) >= MAX_JOB_STREAMS:
            raise TooManyJobStreams
        place = Place()
        self._places.add(place)
        return place

    async def read_page(self, job: UUID, after: Position, limit: int) -> StreamPage:
        """Read a page of a stream, once for all who ask for it at about the same time."""
        key = job, after, limit
        return await self._pages.get(key, lambda: self._app.store.stream_read(job, after, limit))
