"""Owns what runs here: to whom the lines that are written belong, and what they must not show."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from windlass.core.job import Job
from windlass.core.redaction import Redaction


class Running(Protocol):
    """A run, or whatever else may log in the name of jobs."""

    @property
    def log_fields(self) -> Mapping[str, object]:
        """What every line inside of it carries."""

    @property
    def redaction(self) -> Redaction:
        """What is masked in every line inside of it."""


running: ContextVar[Running | None] = ContextVar("windlass_running", default=None)
"""What runs here. One variable for all that is to be known, since setting one takes its time."""


def fields_here() -> Mapping[str, object]:
    """Return what every line carries that is written here: in a job, its id and more."""
    here = running.get()
    return {} if here is None else here.log_fields


def fields_of(job: Job) -> dict[str, Any]:
    """Return what every line about a job carries; the worker is its holder."""
    fields = {
        "job_id": job.id,
        "worker_id": job.worker,
        "kind": job.kind,
        "queue": job.queue,
        "attempt": job.attempt,
    }
    flow = job.flow
    return fields if flow is None else {**fields, "flow": flow}
