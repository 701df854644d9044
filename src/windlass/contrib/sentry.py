"""Owns reports to Sentry: one event for each run that failed and counts as a failure.

`sentry_sdk.init(...)` as in every program, and `report_to_sentry(app)`.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

import sentry_sdk
from sentry_sdk.integrations.logging import ignore_logger
from sentry_sdk.utils import event_from_exception

from windlass.app import Windlass
from windlass.core.failures.error_classes import ErrorClass
from windlass.core.jobs.settle import Policy
from windlass.handlers.context import Context
from windlass.handlers.middleware.watching import RunEnd, Watcher
from windlass.handlers.registry import CallNext, Registry
from windlass.observability.logs import get_logger

__all__ = ["report_to_sentry"]

log = get_logger("windlass.sentry")
_OWN_MODULES = ("windlass", "importlib")
_DEAD = "job.dead"
"""The event of the line that a worker logs about a dead job, by the logger `windlass.worker`."""
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_REMEMBERED = 10_000
"""How many jobs are remembered as reported until that line comes, which is moments later."""
_FLUSH_SECONDS = 2.0


def report_to_sentry(app: Windlass) -> None:
    """Report each failed run of the app's jobs to Sentry, once; call it before a worker starts.

    An event has the kind, queue, attempt and id of the job, and the frames of your own code. Runs
    that do not count as failures are left out: snoozed, cancelled and released ones, and those that
    met a system error. Without `sentry_sdk.init(...)` nothing is reported.
    """
    reports = _Reports(app.registry)
    sentry_sdk.get_global_scope().add_event_processor(reports.without_second)
    ignore_logger("windlass.sentry")
    app.add_middleware(reports)
    app.on_shutdown(_flush)


class _Reports(Watcher):
    """Middleware that is called with the end of each run."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._reported: dict[str, None] = {}

    async def __call__(self, _: Context, call_next: CallNext) -> Any:
        """Do nothing around the run: `ended` knows its outcome."""
        return await call_next()

    async def ended(self, context: Context, end: RunEnd) -> None:
        """Report a run that failed."""
        try:
            if end.error is not None and self._counts(context, end, end.error):
                self._remember(str(context.job_id))
                _report(context, end.error)
        except Exception:
            log.exception("sentry.failed", **context.log_fields)

    def without_second(self, event: Any, hint: dict[str, Any]) -> Any:
        """Leave out the log line about a dead job whose last run is an event already."""
        record = hint.get("log_record")
        if record is not None and record.name == "windlass.worker":
            text = record.getMessage()
            if _DEAD in text and any(each in self._reported for each in _ID.findall(text)):
                return None
        return event

    def _remember(self, job_id: str) -> None:
        self._reported[job_id] = None
        if len(self._reported) > _REMEMBERED:
            del self._reported[next(iter(self._reported))]

    def _counts(self, context: Context, end: RunEnd, error: BaseException) -> bool:
        if end.end != "raised":
            return True  # A timeout, or a dead process.
        kind = self._registry[context.kind]
        policy = Policy(retry=kind.retry, errors=kind.errors, app_errors=self._registry.errors)
        try:
            found = policy.class_of(error)
        except Exception:  # noqa: BLE001 - a function of a user's, whose error is logged elsewhere.
            found = policy.without_functions().class_of(error)
        return found is not ErrorClass.SYSTEM


def _report(context: Context, error: BaseException) -> None:
    client = sentry_sdk.get_client()
    if not client.is_active():
        return
    mechanism = {"type": "windlass", "handled": False}
    event, hint = event_from_exception(error, client_options=client.options, mechanism=mechanism)
    for value in event.get("exception", {}).get("values", []):
        _keep_theirs(value.get("stacktrace") or {})
    with sentry_sdk.new_scope() as scope:
        scope.set_transaction_name(context.kind, source="task")
        scope.set_tag("windlass.kind", context.kind)
        scope.set_tag("windlass.queue", context.queue)
        scope.set_tag("windlass.job_id", str(context.job_id))
        facts = {name: str(value) for name, value in context.log_fields.items()}
        scope.set_context("windlass", {**facts, "attempt": context.attempt})
        scope.capture_event(event, hint)


def _keep_theirs(stack: dict[str, Any]) -> None:
    """Leave out the frames of Windlass around those of the user's code, if there are any."""
    frames = stack.get("frames") or []
    theirs = [each for each in frames if not _is_ours(str(each.get("module")))]
    if theirs:
        stack["frames"] = theirs


def _is_ours(module: str) -> bool:
    return module.partition(".")[0] in _OWN_MODULES


async def _flush() -> None:
    """Send what is left, before the process ends."""
    await asyncio.to_thread(sentry_sdk.flush, _FLUSH_SECONDS)
