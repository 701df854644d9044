"""Owns a fast path for the two log lines of every run, `job.started` and `job.finished`.

They equal those of `Logger.info`: a test compares them. A process with handlers other than
Windlass's own uses `Logger.info`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as quoted
from typing import ClassVar
from uuid import UUID

from windlass.core.jobs.ids import flow_of
from windlass.core.jobs.job import Job
from windlass.core.payloads.redaction import Redaction
from windlass.observability.log_handler import LogHandler, Witness
from windlass.observability.logs import shown

RUNS = "windlass.job"
"""The logger of runs, and of lines that handlers log through their context."""
_SECOND = 1_000_000_000
_MAX_CACHED_FIELDS = 1_000


class RunLines:
    """Posts the lines of runs to the one handler that writes them; witnesses get starts.

    The lines are formatted when they are written, many at a time.
    """

    __slots__ = ("_alike", "_lines", "_posted", "_second", "_stamp", "_witnesses")

    def __init__(self, lines: LogHandler, witnesses: Sequence[Witness]) -> None:
        self._lines = lines
        self._posted = lines.posted
        self._witnesses = witnesses
        self._second = -1
        self._stamp = ""
        self._alike: dict[tuple[str, str, int, str], tuple[str, str]] = {}

    @property
    def is_due(self) -> bool:
        """Whether lines wait to be written."""
        return self._lines.is_due

    def started(self, job: Job, worker_id: str) -> Post:
        """Post that a run has begun; return the post, for `finished`."""
        began = time.time_ns()
        post = (self, job, worker_id, began, 0, 0.0)
        self._posted.append(post)
        if not self._lines.is_due:
            self._lines.schedule()
        if self._witnesses:
            self._tell(began, job, worker_id)
        return post

    def finished(self, started: Post, seconds: float) -> None:
        """Post that a run has ended without an error.

        If nothing was posted or written since its start, which is usual, one post has both.
        """
        _, job, worker_id, began, *_ = started
        posted, ended = self._posted, time.time_ns()
        try:
            latest = posted.pop()  # One call, since a thread may be about to write them.
        except IndexError:
            latest = None
        if latest is not started:
            began = 0
            if latest is not None:
                posted.append(latest)
        posted.append((self, job, worker_id, began, ended, seconds))
        if not self._lines.is_due:
            self._lines.schedule()

    def written(self, posts: Sequence[Post]) -> str:
        """Return the lines of some posts."""
        made: list[str] = []
        alike, second = self._alike, self._second * _SECOND
        for _, job, worker_id, began, ended, seconds in posts:
            key = (job.kind, job.queue, job.attempt, worker_id)
            as_json = (alike.get(key) or self._remember(key))[0]
            fields = f'"logger": "windlass.job", "job_id": "{_dashed(job.id)}"{as_json}'
            if (flow := flow_of(job.id)) is not None:
                fields = f'{fields}, "flow": "{flow}"'
            if began:
                if not 0 <= began - second < _SECOND:
                    second = self._tick(began // _SECOND)
                micros = (began - second) // 1000
                made.append(
                    f'{{"timestamp": "{self._stamp}.{micros:06d}Z", "level": "info", '
                    f'"event": "job.started", {fields}}}\n'
                )
            if ended:
                if not 0 <= ended - second < _SECOND:
                    second = self._tick(ended // _SECOND)
                micros = (ended - second) // 1000
                made.append(
                    f'{{"timestamp": "{self._stamp}.{micros:06d}Z", "level": "info", '
                    f'"event": "job.finished", {fields}, "duration": {seconds:.6f}}}\n'
                )
        return "".join(made)

    def _tell(self, now: int, job: Job, worker_id: str) -> None:
        key = (job.kind, job.queue, job.attempt, worker_id)
        _, as_text = self._alike.get(key) or self._remember(key)
        second, rest = divmod(now, _SECOND)
        if second != self._second:
            self._tick(second)
        job_id = _dashed(job.id)
        moment = f"{self._stamp}.{rest // 1_000_000:03d}Z"
        for witness in self._witnesses:
            witness.note(
                f"{moment} INFO windlass.job job.started job_id={job_id} {as_text}", job_id
            )

    def _tick(self, second: int) -> int:
        self._second = second
        self._stamp = datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()
        return second * _SECOND

    def _remember(self, key: tuple[str, str, int, str]) -> tuple[str, str]:
        """Cache the fields that many runs have in common, as JSON and as text."""
        if len(self._alike) >= _MAX_CACHED_FIELDS:
            self._alike.clear()
        kind, queue, attempt, worker_id = key
        as_json = (
            f', "worker_id": {quoted(worker_id)}, "kind": {quoted(kind)}, '
            f'"queue": {quoted(queue)}, "attempt": {attempt}'
        )
        fields = {"worker_id": worker_id, "kind": kind, "queue": queue, "attempt": attempt}
        as_text = " ".join(f"{name}={shown(each)}" for name, each in fields.items())
        self._alike[key] = as_json, as_text
        return self._alike[key]


Post = tuple[RunLines, Job, str, int, int, float]
"""The poster, the job, its worker, its begin and end, and its duration in seconds.

Begin and end are Unix times in nanoseconds; 0: that line has another post.
"""


class _Known:
    """The cached poster of this process, and the handlers for which it is valid."""

    hearers: ClassVar[list[logging.Handler]] = []
    poster: RunLines | None = None
    redaction: Redaction | None = None
    """The redaction that is known not to change these lines."""


def run_lines(redaction: Redaction) -> RunLines | None:
    """Return the poster for the lines of runs; None if `Logger.info` has to log them.

    While posted lines wait to be written, the handlers are not checked again.
    """
    known = _Known.poster
    if known is not None and known.is_due and redaction is _Known.redaction:
        return known
    hearers = _hearers()
    if redaction.hides("duration") or not all(_can_take(each) for each in hearers):
        return None
    _Known.redaction = redaction
    if hearers != _Known.hearers:
        _Known.hearers, _Known.poster = hearers, _poster(hearers)
    return _Known.poster


def _hearers() -> list[logging.Handler]:
    """Return the root handlers; none if a logger in between handles lines by itself."""
    logger = logging.getLogger(RUNS)
    if not logger.isEnabledFor(logging.INFO) or logger.filters:
        return []
    while logger.parent is not None:
        if logger.handlers or not logger.propagate:
            return []
        logger = logger.parent
    return logger.handlers[:]


def _can_take(hearer: logging.Handler) -> bool:
    """Return whether a handler takes every line of a run without a log record."""
    is_ours = hearer.takes_posts if type(hearer) is LogHandler else isinstance(hearer, Witness)
    return is_ours and not hearer.filters and hearer.level <= logging.INFO


def _poster(hearers: Sequence[logging.Handler]) -> RunLines | None:
    writers = [each for each in hearers if isinstance(each, LogHandler)]
    witnesses = [each for each in hearers if isinstance(each, Witness)]
    return RunLines(writers[0], witnesses) if len(writers) == 1 else None


def _dashed(job_id: UUID) -> str:
    """Return an id as `str` does, in half the time."""
    text = f"{job_id.int:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
