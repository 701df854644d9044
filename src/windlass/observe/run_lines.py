"""Owns the two lines of every run, `job.started` and `job.finished`, in the form made for haste.

They say what `Logger.info` would: a test compares them. Where anybody but our own handler hears
the lines of a process, `Logger.info` it is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from json.encoder import encode_basestring_ascii as quoted
from typing import ClassVar
from uuid import UUID

from windlass.core.job import Job
from windlass.observe.lines import Lines, Witness
from windlass.observe.logs import shown

STARTED, FINISHED = OF_RUNS = ("job.started", "job.finished")
"""What these lines are called."""
_RUNS = "windlass.job"
_SECOND = 1_000_000_000
_MANY = 1_000


class RunLines:
    """Posts the lines of runs to the one handler that writes them; witnesses hear of starts."""

    __slots__ = ("_alike", "_second", "_stamp", "_witnesses", "lines")

    def __init__(self, lines: Lines, witnesses: Sequence[Witness]) -> None:
        self.lines = lines
        self._witnesses = witnesses
        self._second = 0
        self._stamp = ""
        self._alike: dict[tuple[str, str, int, str], tuple[str, str]] = {}

    def started(self, job: Job, worker_id: str) -> str:
        """Tell that a run has begun; return what its other line says as well."""
        key = (job.kind, job.queue, job.attempt, worker_id)
        as_json, as_text = self._alike.get(key) or self._remember(key)
        job_id = _dashed(job.id)
        fields = f"{job_id}{as_json}"
        if (flow := job.flow) is not None:
            fields = f'{fields}, "flow": "{flow}"'
        moment = self._post(STARTED, fields, "")
        for witness in self._witnesses:
            witness.note(f"{moment} INFO windlass.job {STARTED} job_id={job_id} {as_text}", job_id)
        return fields

    def finished(self, fields: str, seconds: float) -> None:
        """Tell that a run has come to its end without an error."""
        self._post(FINISHED, fields, f', "duration": {seconds:.6f}')

    def _post(self, event: str, fields: str, rest: str) -> str:
        second, nanoseconds = divmod(time.time_ns(), _SECOND)
        if second != self._second:
            self._second = second
            self._stamp = datetime.fromtimestamp(second, UTC).replace(tzinfo=None).isoformat()
        moment = f"{self._stamp}.{nanoseconds // 1000:06d}Z"
        self.lines.post(
            f'{{"timestamp": "{moment}", "level": "info", "event": "{event}", '
            f'"logger": "windlass.job", "job_id": "{fields}{rest}}}\n'
        )
        return moment

    def _remember(self, key: tuple[str, str, int, str]) -> tuple[str, str]:
        """Write the fields that many runs have in common, as JSON and for people."""
        if len(self._alike) >= _MANY:
            self._alike.clear()
        kind, queue, attempt, worker_id = key
        as_json = (
            f'", "worker_id": {quoted(worker_id)}, "kind": {quoted(kind)}, '
            f'"queue": {quoted(queue)}, "attempt": {attempt}'
        )
        fields = {"worker_id": worker_id, "kind": kind, "queue": queue, "attempt": attempt}
        as_text = " ".join(f"{name}={shown(each)}" for name, each in fields.items())
        self._alike[key] = as_json, as_text
        return self._alike[key]


class _Known:
    """Who posts the lines of this process, as it was found before the last of them was written."""

    hearers: ClassVar[list[logging.Handler]] = []
    poster: RunLines | None = None


def run_lines() -> RunLines | None:
    """Return who posts the lines of runs here; None if `Logger.info` has to log them.

    As long as lines wait to be written, who heard the first of them hears the next as well.
    """
    known = _Known.poster
    if known is not None and known.lines.has_posted:
        return known
    hearers = _hearers()
    if not all(_can_take(each) for each in hearers):
        return None
    if hearers != _Known.hearers:
        _Known.hearers, _Known.poster = hearers, _poster(hearers)
    return _Known.poster


def _hearers() -> list[logging.Handler]:
    """Return who hears the lines of runs; nobody if somebody hears them on a way of his own."""
    logger = logging.getLogger(_RUNS)
    if not logger.isEnabledFor(logging.INFO) or logger.filters:
        return []
    while logger.parent is not None:
        if logger.handlers or not logger.propagate:
            return []
        logger = logger.parent
    return logger.handlers[:]


def _can_take(hearer: logging.Handler) -> bool:
    """Say whether a handler hears every line of a run, and can do without a record of it."""
    is_ours = hearer.takes_posts if type(hearer) is Lines else isinstance(hearer, Witness)
    return is_ours and not hearer.filters and hearer.level <= logging.INFO


def _poster(hearers: Sequence[logging.Handler]) -> RunLines | None:
    writers = [each for each in hearers if isinstance(each, Lines)]
    witnesses = [each for each in hearers if isinstance(each, Witness)]
    return RunLines(writers[0], witnesses) if len(writers) == 1 else None


def _dashed(job_id: UUID) -> str:
    """Write an id as `str` does, in half of the time."""
    text = f"{job_id.int:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
