"""Owns spans: a producer's of an enqueue, a consumer's around a run, linked by job headers.

They follow OpenTelemetry's conventions for messaging. Windlass imports OpenTelemetry only if
`traces` is on; with "auto", the program must have imported it and set a provider.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

from msgspec.structs import replace

from windlass.core.errors import ConfigError
from windlass.core.failures.describe import describe
from windlass.core.jobs.ids import flow_of
from windlass.core.jobs.job import SCHEDULE, ErrorInfo, Job, NewJob
from windlass.observability.logs import get_logger
from windlass.settings import Traces
from windlass.version import __version__

if TYPE_CHECKING:
    from opentelemetry.trace import Span, Tracer, TracerProvider

TRACEPARENT, TRACESTATE = "traceparent", "tracestate"
"""The headers of a job that carry the context of its producer, as W3C Trace Context has them."""
log = get_logger("windlass.traces")
_SYSTEM = "windlass"
_API = "opentelemetry.trace"


def is_loaded(choice: Traces) -> bool:
    """Return whether there may be spans in this process; import nothing for "auto".

    Raises:
        ConfigError: traces are on, and OpenTelemetry is not installed.
    """
    if choice == "on":
        _imported()
    return choice != "off" and _API in sys.modules


def sending(jobs: list[NewJob], choice: Traces) -> AbstractContextManager[list[NewJob]]:
    """Put a producer's span around an enqueue; yield the jobs with its context."""
    tracing = tracing_in_force(choice)
    return nullcontext(jobs) if tracing is None else tracing.sending(jobs)


def tracing_in_force(choice: Traces = "auto") -> Tracing | None:
    """Return the tracing of this process; None if it is off, or no provider is set yet."""
    if choice == "off":
        return None
    api = sys.modules.get(_API)
    if api is None:
        if choice != "on":
            return None
        api = _imported()
    # Another thread may be importing it.
    proxy = getattr(api, "ProxyTracerProvider", None)
    if proxy is None:
        return None
    provider = api.get_tracer_provider()
    if isinstance(provider, proxy):
        return None
    if _Known.tracing is None or _Known.tracing.provider is not provider:
        _Known.tracing = Tracing(api, provider)
    return _Known.tracing


def _imported() -> ModuleType:
    try:
        return importlib.import_module(_API)
    except ImportError as error:
        raise ConfigError(
            "traces are on, but OpenTelemetry is not installed: pip install windlass[otel]"
        ) from error


class Tracing:
    """Makes spans with the program's provider, whose errors fail no enqueue and no run."""

    def __init__(self, api: Any, provider: TracerProvider) -> None:
        from opentelemetry.context import Context
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self.provider = provider
        self._api = api
        self._tracer: Tracer = provider.get_tracer("windlass", __version__)
        self._propagator = TraceContextTextMapPropagator()
        self._nowhere = Context()

    @contextmanager
    def sending(self, jobs: list[NewJob]) -> Iterator[list[NewJob]]:
        """Yield the jobs with the context in their headers; one that they have already stays."""
        queues = {job.queue for job in jobs}
        queue = queues.pop() if len(queues) == 1 else None
        attributes: dict[str, Any] = _attributes("enqueue", "send", queue)
        if len(jobs) == 1:
            attributes |= _about(jobs[0])
        else:
            attributes |= {"messaging.batch.message_count": len(jobs), **_conversation(jobs)}
        with self._span(
            "enqueue" if queue is None else f"enqueue {queue}",
            self._api.SpanKind.PRODUCER,
            attributes,
        ) as span:
            carried: dict[str, str] = {}
            with _harmless("inject"):
                self._propagator.inject(carried)
            try:
                yield [_carrying(job, carried) for job in jobs]
            except Exception as error:
                self.failed(span, describe(error))
                raise

    def making(self, job: NewJob) -> tuple[NewJob, Span | None]:
        """Begin the span of a job that no code enqueues, in a trace of its own.

        The span is current nowhere; `made` ends it, and without that it is never exported.
        """
        attributes = {**_attributes("enqueue", "send", job.queue), **_about(job)}
        if SCHEDULE in job.headers:
            attributes["windlass.schedule"] = job.headers[SCHEDULE]
        carried: dict[str, str] = {}
        begun: list[Span] = []
        with _harmless("start"):
            span = self._tracer.start_span(
                f"enqueue {job.queue}",
                context=self._nowhere,
                kind=self._api.SpanKind.PRODUCER,
                attributes=attributes,
            )
            begun.append(span)
            self._propagator.inject(carried, self._api.set_span_in_context(span, self._nowhere))
        return _carrying(job, carried), begun[0] if begun else None

    def made(self, span: Span) -> None:
        """End the span of a job that is in the store."""
        with _harmless("end"):
            span.end()

    def running(self, job: Job, worker_id: str) -> AbstractContextManager[Span | None]:
        """Put a consumer's span around a run: in its producer's trace, and linked to its span."""
        parent = self._propagator.extract(_strings(job.headers))
        origin = self._api.get_current_span(parent).get_span_context()
        attributes = {
            **_attributes("process", "process", job.queue),
            **_about(job),
            "messaging.client.id": worker_id,
            "windlass.attempt": job.attempt,
        }
        return self._span(
            f"process {job.queue}",
            self._api.SpanKind.CONSUMER,
            attributes,
            context=parent,
            links=[self._api.Link(origin)] if origin.is_valid else [],
        )

    def failed(self, span: Span | None, error: ErrorInfo) -> None:
        """Record a redacted error in a span."""
        if span is None:
            return
        with _harmless("fail"):
            span.set_attribute("error.type", error.type)
            span.set_status(self._api.Status(self._api.StatusCode.ERROR, str(error)))
            span.add_event(
                "exception",
                {
                    "exception.type": error.type,
                    "exception.message": error.message,
                    "exception.stacktrace": error.traceback,
                },
            )

    def interrupted(self, span: Span | None) -> None:
        """Record in a span that its run was interrupted, or continues later."""
        if span is not None:
            with _harmless("interrupt"):
                span.set_attribute("windlass.interrupted", value=True)

    @contextmanager
    def _span(
        self, name: str, kind: Any, attributes: Mapping[str, Any], **more: Any
    ) -> Iterator[Span | None]:
        # Exceptions recorded by OpenTelemetry itself would not be masked.
        plain: dict[str, Any] = {"record_exception": False, "set_status_on_exception": False}
        begun: list[Span] = []
        with _harmless("start"):
            begun.append(
                self._tracer.start_span(name, kind=kind, attributes=attributes, **plain, **more)
            )
        span = begun[0] if begun else None
        if span is None:
            yield None
            return
        try:
            with self._api.use_span(span, end_on_exit=False, **plain):
                yield span
        finally:
            with _harmless("end"):
                span.end()


class _Known:
    """The tracing of the last provider, and the steps at which one has failed."""

    tracing: Tracing | None = None
    broken: ClassVar[set[str]] = set()


@contextmanager
def _harmless(step: str) -> Iterator[None]:
    """Suppress errors of OpenTelemetry; the first of every step is logged."""
    try:
        yield
    except Exception:
        if step not in _Known.broken:
            _Known.broken.add(step)
            remedy = (
                "fix the span processors of the program; enqueues and runs continue without traces"
            )
            log.exception("traces.failed", step=step, remedy=remedy)


def _attributes(operation: str, kind: str, queue: str | None) -> dict[str, Any]:
    found = {
        "messaging.system": _SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": kind,
    }
    return found if queue is None else {**found, "messaging.destination.name": queue}


def _about(job: Job | NewJob) -> dict[str, Any]:
    found: dict[str, Any] = {
        "messaging.message.id": str(job.id),
        "messaging.message.body.size": len(job.payload),
        "windlass.kind": job.kind,
    }
    return found | _conversation([job])


def _conversation(jobs: Sequence[Job | NewJob]) -> dict[str, Any]:
    flows = {flow_of(job.id) for job in jobs}
    flow = flows.pop() if len(flows) == 1 else None
    return {} if flow is None else {"messaging.message.conversation_id": str(flow)}


def _carrying(job: NewJob, carried: Mapping[str, str]) -> NewJob:
    if not carried or TRACEPARENT in job.headers:
        return job
    return replace(job, headers={**job.headers, **carried})


def _strings(headers: Mapping[str, Any]) -> dict[str, str]:
    """Return the trace context in headers; producers may have put anything there."""
    named = (TRACEPARENT, TRACESTATE)
    return {name: headers[name] for name in named if isinstance(headers.get(name), str)}
