"""Owns the log context: the run to which log lines belong, and its redaction."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextvars import ContextVar, copy_context
from typing import Any, Protocol
from uuid import UUID

from windlass.core.jobs.job import Job
from windlass.core.payloads.redaction import Redaction


class Running(Protocol):
    """A run, or another source of log lines about jobs."""

    @property
    def log_fields(self) -> Mapping[str, object]:
        """The fields of every log line in this context."""

    @property
    def redaction(self) -> Redaction:
        """The redaction of every log line in this context."""


_STRUCTLOG = "structlog.contextvars"
_variables: dict[str, ContextVar[Any]] = {}
running: ContextVar[Running | None] = ContextVar("windlass_running", default=None)
"""The current run. One variable for all its facts, since setting a variable costs time."""


def begin(here: Running) -> None:
    """Set the current run, and bind its fields for the user's structlog if that is loaded.

    Every run has a context of its own, so nothing has to be unbound.
    """
    running.set(here)
    if _STRUCTLOG in sys.modules:
        for name, each in here.log_fields.items():
            variable = _variables.get(name) or _variable(name)
            variable.set(str(each) if type(each) is UUID else each)


def _variable(name: str) -> ContextVar[Any]:
    """Return structlog's own variable for a name: setting it takes half the time of binding."""
    bind = getattr(sys.modules[_STRUCTLOG], "bind_contextvars", None)
    if bind is None:  # Another thread is importing it.
        return ContextVar("windlass_unbound")
    variable: ContextVar[Any] = copy_context().run(bind, **{name: None})[name].var
    _variables[name] = variable
    return variable


def fields_here() -> Mapping[str, object]:
    """Return the fields of the current run; none outside of a run."""
    here = running.get()
    return {} if here is None else here.log_fields


def fields_of(job: Job) -> dict[str, Any]:
    """Return the fields of every log line about a job; the worker is its holder."""
    fields = {
        "job_id": job.id,
        "worker_id": job.worker,
        "kind": job.kind,
        "queue": job.queue,
        "attempt": job.attempt,
    }
    flow = job.flow
    return fields if flow is None else {**fields, "flow": flow}
