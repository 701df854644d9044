"""Owns the encoding of values in database columns: JSON, and times as microseconds."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any

import msgspec

from windlass.core.jobs.job import Attempt, ErrorInfo, Progress, Saga
from windlass.core.jobs.states import State
from windlass.core.workers import WorkerInfo, WorkerPulse

STATES = {state.value: state for state in State}
SAGAS = {saga.value: saga for saga in Saga}
HISTORY = msgspec.json.Decoder(tuple[Attempt, ...])
HEADERS = msgspec.json.Decoder(dict[str, str])
ERROR = msgspec.json.Decoder(ErrorInfo)
PROGRESS = msgspec.json.Decoder(Progress)
INFO = msgspec.json.Decoder(WorkerInfo)
PULSE = msgspec.json.Decoder(WorkerPulse)
_EARLIEST = datetime.min.replace(tzinfo=UTC)
_LATEST = datetime.max.replace(tzinfo=UTC)


def as_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def instants_since(epoch: datetime) -> Callable[[int], datetime]:
    """Return a function that decodes instants counted in microseconds since an epoch."""

    @lru_cache(1024)  # Jobs that were enqueued, or claimed, together share their times.
    def instant(value: int) -> datetime:
        try:
            return epoch + timedelta(microseconds=value)
        except OverflowError:
            return _LATEST if value > 0 else _EARLIEST

    return instant
